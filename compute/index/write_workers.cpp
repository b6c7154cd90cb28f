#include "compute/index/write_workers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/clock.h"
#include "common/base/rule.h"

namespace pando {
namespace {

// Writes that are gone through between two looks at the clock.
constexpr size_t kPiece = 1024;

}  // namespace

struct WriteWorkers::Link {
  Link(Scheduler* scheduler, WriteWorkers* of) : parking(scheduler), workers(of) {}
  Parking parking;        // of who has called
  WriteWorkers* workers;  // null: the call has returned
};

absl::Status NoTurnError() {
  return absl::DeadlineExceededError(
      "the call's deadline passed before it was this one's turn: it had no effect");
}

WriteWorkers::WriteWorkers(Host* host, absl::Span<const RunWrite> writes, int64_t deadline_ns,
                           absl::FunctionRef<void(size_t)> done)
    : host_(*host),
      deadline_ns_(deadline_ns),
      done_(done),
      order_(writes.size()),
      sorted_(writes.begin(), writes.end()) {
  std::iota(order_.begin(), order_.end(), size_t{0});
}

bool WriteWorkers::Sort() {
  if (!RuleHolds(Rule::kB1)) return true;  // the variant writes them in the caller's order
  bool is_late = IsLate(), is_sorted = true;
  for (size_t i = 1; is_sorted && !is_late && i < sorted_.size(); ++i) {
    is_sorted = KeyOf(i - 1) <= KeyOf(i);
    if (i % kPiece == 0) is_late = IsLate();
  }
  if (is_late || is_sorted) return !is_late;
  std::vector<size_t> order = order_;
  for (size_t i = 0; i < order.size(); i += kPiece) {
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(i);
    const size_t count = std::min(kPiece, order.size() - i);
    std::stable_sort(begin, begin + static_cast<std::ptrdiff_t>(count),
                     [this](size_t a, size_t b) { return IsBefore(a, b); });
    if (IsLate()) return false;
  }
  for (size_t width = kPiece; width < order.size(); width *= 2) {
    if (!Merge(width, &order)) return false;
  }
  std::vector<RunWrite> sorted;
  sorted.reserve(order.size());
  for (const size_t i : order) sorted.push_back(sorted_[i]);
  sorted_ = std::move(sorted);
  order_ = std::move(order);
  return true;
}

bool WriteWorkers::Merge(size_t width, std::vector<size_t>* order) const {
  std::vector<size_t> merged;
  merged.reserve(order->size());
  while (merged.size() < order->size()) {
    size_t first = merged.size(), second = std::min(first + width, order->size());
    const size_t middle = second, end = std::min(second + width, order->size());
    while (merged.size() < end) {
      const bool is_second =
          first == middle || (second < end && IsBefore((*order)[second], (*order)[first]));
      merged.push_back((*order)[is_second ? second++ : first++]);
      if (merged.size() % kPiece == 0 && IsLate()) return false;
    }
  }
  *order = std::move(merged);
  return true;
}

void WriteWorkers::Run() {
  link_ = std::make_shared<Link>(&host_.session().scheduler(), this);
  // Nobody shares anything out before the way to the first leaf is known. What is in it is said by
  // those who go it.
  if (sorted_.size() > 1 && !host_.NextBorder(KeyOf(0)).has_value()) host_.LeadTo(KeyOf(0));
  do {
    Work();
    while (busy_ > 0) link_->parking.ParkUntil(kNeverNs);
  } while (next_ < sorted_.size() && !IsLate());
  Refuse(next_, sorted_.size());
  link_->workers = nullptr;
}

size_t WriteWorkers::WholeKeys(size_t end) const {
  while (end < sorted_.size() && KeyOf(end) == KeyOf(end - 1)) ++end;
  return end;
}

std::optional<size_t> WriteWorkers::EndOfLeaf(size_t i) const {
  const std::optional<std::string> border = host_.NextBorder(KeyOf(i));
  if (!border.has_value()) return std::nullopt;
  if (border->empty()) return sorted_.size();
  const auto end =
      std::partition_point(sorted_.begin() + static_cast<std::ptrdiff_t>(i), sorted_.end(),
                           [&](const RunWrite& write) { return write.operation->key < *border; });
  return WholeKeys(std::max(static_cast<size_t>(end - sorted_.begin()), i + 1));
}

WriteWorkers::Claim WriteWorkers::Take() {
  Claim claim{next_, 0};
  // Where nothing is known each goes to a place of its own, and finds the way there.
  const size_t share = (sorted_.size() - next_) / (2 * host_.coroutines_max());
  const std::optional<size_t> end = EndOfLeaf(next_);
  claim.end = end.has_value() ? *end : WholeKeys(next_ + std::max<size_t>(share, 1));
  next_ = claim.end;
  return claim;
}

void WriteWorkers::CallHelper() {
  if (next_ >= sorted_.size() || helpers_ >= helpers_max()) return;
  ++helpers_;
  host_.session().scheduler().Spawn([link = link_] {
    if (link->workers == nullptr) return;
    link->workers->Work();
    --link->workers->helpers_;
    link->parking.Unpark();
  });
}

void WriteWorkers::Work() {
  while (next_ < sorted_.size() && !IsLate()) {
    Claim claim = Take();
    CallHelper();
    ++busy_;
    ExecuteClaim(&claim);
    --busy_;
  }
}

void WriteWorkers::ExecuteClaim(Claim* claim) {
  while (claim->begin < claim->end) {
    if (IsLate()) return Refuse(claim->begin, claim->end);
    const absl::Span<const RunWrite> writes(&sorted_[claim->begin], claim->end - claim->begin);
    const size_t done = host_.WriteRun(writes, &separators_);
    for (size_t i = claim->begin; i < claim->begin + done; ++i) done_(order_[i]);
    claim->begin += done;
    GiveBack(claim);
    InsertSeparators();
  }
}

void WriteWorkers::InsertSeparators() {
  if (is_inserting_) return;
  is_inserting_ = true;
  while (!separators_.empty()) {
    std::vector<MissingSeparator> now = std::exchange(separators_, {});
    host_.InsertSeparators(&now);
  }
  is_inserting_ = false;
}

void WriteWorkers::GiveBack(Claim* claim) {
  if (claim->begin == claim->end || claim->end != next_) return;
  claim->end = std::min(claim->end, EndOfLeaf(claim->begin).value_or(claim->end));
  next_ = claim->end;
  CallHelper();
}

void WriteWorkers::Refuse(size_t begin, size_t end) {
  const absl::Status refusal = NoTurnError();  // made once: they may be very many
  for (size_t i = begin; i < end; ++i) {
    *sorted_[i].result = refusal;
    done_(order_[i]);
  }
}

}  // namespace pando
