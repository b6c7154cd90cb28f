#include "compute/log/log_ring.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/rule.h"

namespace pando {
namespace {

constexpr size_t kSpareBytesMax = 4;
constexpr uint64_t kMarks = 1024;  // about so many in a ring

}  // namespace

LogRing::LogRing(const Shape& shape, const LogPlace& first)
    : shape_(shape), next_(first), durable_(first.lsn - 1) {
  PANDO_CHECK_LE(shape.batch_bytes_max, shape.ring_bytes / 8);
  marks_.push_back({0, first});
  Open(first.lsn);
}

bool LogRing::TryPromise(uint64_t cost, bool last) {
  const uint64_t most = last ? capacity_bytes() : capacity_bytes() / 16 * 15;
  if (used_bytes() + promised_ + cost > most) return false;
  promised_ += cost;
  return true;
}

void LogRing::Open(Lsn first) {
  open_ = std::make_shared<LogBatch>();
  open_->first_lsn = first;
  if (!spare_bytes_.empty()) {
    open_->bytes = std::move(spare_bytes_.back());
    spare_bytes_.pop_back();
  }
  open_->bytes.resize(kLogBatchHeaderBytes);
}

Lsn LogRing::Append(const LogMessage& message, uint64_t cost) {
  const uint32_t bytes = LogMessageBytes(message.key.size(), message.value.size());
  PANDO_DCHECK_LE(CostOf(bytes), cost);
  if (open_->bytes.size() + bytes > shape_.batch_bytes_max) Close();
  const size_t at = open_->bytes.size();
  open_->bytes.resize(at + bytes);
  EncodeLogMessage(message, open_->bytes.data() + at);
  open_->message_bytes += bytes;
  open_->promised += cost;
  return open_->first_lsn + open_->messages++;
}

void LogRing::Close() {
  promised_ -= open_->promised;
  Place(std::move(open_));
  PANDO_CHECK_LE(used_bytes() + promised_, shape_.ring_bytes) << "a message without room";
  Open(next_.lsn);
}

void LogRing::Place(std::shared_ptr<LogBatch> closed) {
  LogBatch& batch = *closed;
  const uint64_t bytes = kLogBatchHeaderBytes + batch.message_bytes;
  batch.bytes.resize(LogLinesBytes(bytes));
  padding_ += batch.bytes.size() - bytes;
  batch.start = batch.position = tail_;
  const uint64_t mark_bytes = std::max<uint64_t>(shape_.ring_bytes / kMarks, kLogLineBytes);
  if (tail_ - marks_.back().position >= mark_bytes) marks_.push_back({tail_, next_});
  const uint64_t left = shape_.ring_bytes - tail_ % shape_.ring_bytes;
  if (batch.bytes.size() > left) {
    next_.seed = SealLogFiller(next_, batch.filler);
    ++next_.counter;
    batch.position += left;
    padding_ += left;
  }
  next_.seed = SealLogBatch(next_, batch.bytes, batch.message_bytes);
  ++next_.counter;
  next_.lsn = batch.end_lsn();
  tail_ = batch.position + batch.bytes.size();
  batch.number = next_number_++;
  closed_.push_back(std::move(closed));
}

void LogRing::MoveTo(const Shape& shape, uint32_t epoch) {
  PANDO_CHECK_LE(shape_.ring_bytes, shape.ring_bytes);
  PANDO_CHECK_EQ(shape_.batch_bytes_max, shape.batch_bytes_max);
  shape_ = shape;
  std::deque<std::shared_ptr<LogBatch>> before = std::move(closed_);
  closed_.clear();
  next_ = {.log_id = next_.log_id, .epoch = epoch, .lsn = durable_ + 1};
  tail_ = base_position_ = free_until_ = 0;
  in_flight_ = 0;
  marks_.assign(1, {0, next_});
  const uint64_t undurable = unwritten_;
  unwritten_ = next_number_;
  for (const std::shared_ptr<LogBatch>& batch : before) {
    if (batch->number < undurable) continue;
    auto moved = std::make_shared<LogBatch>();  // somebody may read the bytes of the other
    moved->bytes = batch->bytes;
    moved->first_lsn = batch->first_lsn;
    moved->messages = batch->messages;
    moved->message_bytes = batch->message_bytes;
    Place(std::move(moved));
  }
}

LogBatch* LogRing::FirstClosed() const {
  for (uint64_t number = unwritten_; number != next_number_; ++number) {
    LogBatch* const batch = At(number);
    if (!batch->posted) return batch;
  }
  return nullptr;
}

Lsn LogRing::FirstUnposted() const {
  const LogBatch* const batch = FirstClosed();
  return batch != nullptr ? batch->first_lsn : open_->first_lsn;
}

std::shared_ptr<LogBatch> LogRing::Take() {
  LogBatch* batch = FirstClosed();
  if (batch == nullptr) {
    PANDO_CHECK(open_->messages > 0) << "nothing to write";
    Close();
    batch = closed_.back().get();
  }
  batch->posted = true;
  ++in_flight_;
  return closed_[batch->number - closed_.front()->number];
}

std::shared_ptr<LogBatch> LogRing::OldestInFlight() const {
  for (uint64_t number = unwritten_; number != next_number_; ++number) {
    const LogBatch* const batch = At(number);
    if (batch->posted && !batch->written) return closed_[number - closed_.front()->number];
  }
  return nullptr;
}

void LogRing::NotePutBack(LogBatch* batch) {
  if (batch->written) return;
  batch->posted = false;
  --in_flight_;
}

void LogRing::NoteWritten(LogBatch* batch) {
  if (batch->written) return;
  batch->written = true;
  --in_flight_;
  while (unwritten_ != next_number_ && At(unwritten_)->written) {
    durable_ = At(unwritten_)->end_lsn() - 1;
    ++unwritten_;
  }
}

void LogRing::NoteChainOver(LogBatch* batch) {
  --batch->chains;
  // One before it may be in flight for long.
  if (batch->number < unwritten_ && batch->chains == 0) KeepBytes(std::move(batch->bytes));
  FreeBytes();
}

void LogRing::KeepBytes(std::vector<std::byte> bytes) {
  if (!bytes.empty() && spare_bytes_.size() < kSpareBytesMax)
    spare_bytes_.push_back(std::move(bytes));
}

LogRing::Mark LogRing::MarkAt(Lsn base) const {
  if (base >= next_.lsn) return {tail_, next_};
  const auto above =
      std::upper_bound(marks_.begin(), marks_.end(), base,
                       [](Lsn lsn, const Mark& mark) { return lsn < mark.place.lsn; });
  return above == marks_.begin() ? marks_.front() : *std::prev(above);
}

void LogRing::NoteBase(const Mark& mark) {
  while (!marks_.empty() && marks_.front().position <= mark.position) marks_.pop_front();
  marks_.push_front(mark);
  base_position_ = mark.position;
  FreeBytes();
}

void LogRing::FreeBytes() {
  const auto is_quiet = [](const LogBatch& batch) {
    return batch.written && (batch.chains == 0 || !RuleHolds(Rule::kW3Reuse));
  };
  while (!closed_.empty() && closed_.front()->number < unwritten_ && is_quiet(*closed_.front())) {
    KeepBytes(std::move(closed_.front()->bytes));
    closed_.pop_front();
  }
  free_until_ = closed_.empty() ? base_position_ : std::min(base_position_, closed_.front()->start);
}

}  // namespace pando
