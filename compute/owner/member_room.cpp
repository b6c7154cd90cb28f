// What a member's records take in memory and in the log, and who waits for room (rules B2, B3, T7,
// W5).
#include <algorithm>
#include <memory>

#include "common/base/status.h"
#include "compute/owner/member.h"

namespace pando {
namespace {

// After how many messages writers look how full the log is.
constexpr Lsn kLooksAtLog = 64;
// Places that the clock looks at for one record that comes.
constexpr size_t kEvictLooks = 64;

}  // namespace

Member::Sizes Member::SizesOf(const Partition& partition) {
  const auto bytes_of = [](const Partition::Amount& amount) {
    return amount.bytes + kDirtyOverheadBytes * amount.records;
  };
  return {.bytes = partition.bytes(),
          .dirty_bytes = bytes_of(partition.dirty()),
          .refused_bytes = bytes_of(partition.refused())};
}

void Member::NoteChange(const Sizes& before, const Partition& partition) {
  const Sizes now = SizesOf(partition);
  if (now.bytes != before.bytes) {
    bytes_.fetch_add(now.bytes - before.bytes, std::memory_order_relaxed);
  }
  if (now.refused_bytes != before.refused_bytes) {
    refused_bytes_.fetch_add(now.refused_bytes - before.refused_bytes, std::memory_order_relaxed);
  }
  if (now.dirty_bytes == before.dirty_bytes) return;
  const size_t dirty =
      dirty_bytes_.fetch_add(now.dirty_bytes - before.dirty_bytes, std::memory_order_relaxed) +
      now.dirty_bytes - before.dirty_bytes;
  if (dirty > HighMark() && !flush_wanted_.load(std::memory_order_relaxed)) KickFlush();
}

bool Member::MayKeep(Random& random) const {
  return bytes_.load(std::memory_order_relaxed) < options_.hot_bytes ||
         random.NextDouble() < options_.promote;
}

void Member::Evict(Partition* partition) {
  const size_t bytes = bytes_.load(std::memory_order_relaxed);
  if (bytes <= options_.hot_bytes) [[likely]]
    return;
  const Sizes before = SizesOf(*partition);
  partition->Evict(bytes - options_.hot_bytes, kEvictLooks);
  NoteChange(before, *partition);
}

std::optional<Lsn> Member::TryAppend(const LogMessage& message) {
  if (!HasRoom()) return std::nullopt;
  const std::optional<Lsn> lsn = log_->TryAppend(message);
  if (lsn.has_value() && *lsn % kLooksAtLog == 0 && LogIsFull()) KickFlush();
  return lsn;
}

absl::StatusOr<RedoLog::Reservation> Member::ReserveForWrite(OperationContext& context,
                                                             size_t key_bytes, size_t value_bytes) {
  while (true) {
    PANDO_RETURN_IF_ERROR(AwaitRoom(context));
    const bool was_refusing = is_refusing();
    if (LogIsFull()) KickFlush();
    absl::StatusOr<RedoLog::Reservation> reservation =
        log_->Reserve(context, key_bytes, value_bytes);
    // Whoever waited for the log's room had looked before, and so had all others in that queue:
    // together they would make more dirty than may be, perhaps more than the log can hold of what
    // memory servers refuse.
    const bool has_room = dirty_bytes_.load(std::memory_order_relaxed) < DirtyBytesMaxNow() &&
                          is_refusing() == was_refusing;
    if (!reservation.ok() || has_room) return reservation;
  }
}

absl::Status Member::AwaitRoom(OperationContext& context) {
  while (!HasRoom()) {
    if (log_failed()) return log_->failure();
    if (session_->fenced()) return FencedError();
    const auto parking = std::make_shared<Parking>(&context.session.scheduler());
    {
      std::lock_guard lock(mutex_);
      writers_.push_back(parking);
    }
    KickFlush();
    // Between the look and the queue room may have come.
    const bool woken = HasRoom() || parking->ParkUntil(context.deadline_ns());
    {
      std::lock_guard lock(mutex_);
      std::erase(writers_, parking);
    }
    if (!woken) return context.DeadlineError("waiting until records are flushed to their leaves");
  }
  return absl::OkStatus();
}

size_t Member::DirtyBytesMax() const {
  return std::min<size_t>(
      {options_.dirty_bytes_max, log_->capacity_bytes() / 2, Partition::kBytesMax / 2});
}

bool Member::LogIsFull() const { return log_->used_bytes() > log_->capacity_bytes() / 4 * 3; }

size_t Member::DirtyBytesMaxNow() const {
  const size_t most = DirtyBytesMax();
  const size_t refused_now = refused_bytes_.load(std::memory_order_relaxed) +
                             adopting_bytes_.load(std::memory_order_relaxed);
  if (!is_refusing() && refused_now == 0) return most;
  // What is dirty may be refused next. If both took three quarters of the ring, the log would be
  // full of nothing else, for ever.
  const size_t both = log_->capacity_bytes() / 8 * 5;
  const size_t refused = std::min(refused_now, both);
  return std::min(most, std::max<size_t>(both - refused, log_->capacity_bytes() / 16));
}

bool Member::HasRoom() const {
  if (dirty_bytes_.load(std::memory_order_relaxed) >= DirtyBytesMaxNow()) return false;
  // What is refused needs room to be appended again.
  return !is_refusing() || !LogIsFull();
}

void Member::KickFlush() {
  flush_wanted_.store(true, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  if (flush_parking_ != nullptr) flush_parking_->Unpark();
}

void Member::WakeWriters() {
  std::deque<std::shared_ptr<Parking>> woken;
  {
    std::lock_guard lock(mutex_);
    // A member that waits has a log; one that recovers others may have none.
    if (writers_.empty()) return;
    if (!HasRoom() && !log_failed() && !session_->fenced()) return;
    woken.swap(writers_);
  }
  for (const auto& parking : woken) parking->Unpark();
}

}  // namespace pando
