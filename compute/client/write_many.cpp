#include "compute/client/write_many.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "compute/client/access.h"

namespace pando {
namespace {

// Writes that are gone through between two looks at the clock.
constexpr size_t kPiece = 1024;

// The coroutines that share one call's writes.
class WriteWorkers {
 public:
  WriteWorkers(SessionImpl* session, const Tree* tree, absl::Span<const RunWrite> writes,
               const OperationOptions& options, int64_t deadline_ns,
               absl::FunctionRef<void(size_t)> done)
      : session_(*session),
        tree_(*tree),
        options_(options),
        deadline_ns_(deadline_ns),
        done_(done),
        order_(writes.size()),
        sorted_(writes.begin(), writes.end()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
  }

  // By key, those of one key as they are. False: the deadline has passed, and nothing is sorted.
  bool Sort() {
    bool is_late = IsLate(), is_sorted = true;
    for (size_t i = 1; is_sorted && !is_late && i < sorted_.size(); ++i) {
      is_sorted = KeyOf(i - 1) <= KeyOf(i);
      if (i % kPiece == 0) is_late = IsLate();
    }
    if (is_late || is_sorted) return !is_late;
    const auto before = [this](size_t a, size_t b) { return KeyOf(a) < KeyOf(b); };
    std::vector<size_t> order = order_;
    for (size_t i = 0; i < order.size(); i += kPiece) {
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(i);
      const size_t count = std::min(kPiece, order.size() - i);
      std::stable_sort(begin, begin + static_cast<std::ptrdiff_t>(count), before);
      if (IsLate()) return false;
    }
    for (size_t width = kPiece; width < order.size(); width *= 2) {
      if (!Merge(width, before, &order)) return false;
    }
    std::vector<RunWrite> sorted;
    sorted.reserve(order.size());
    for (const size_t i : order) sorted.push_back(sorted_[i]);
    sorted_ = std::move(sorted);
    order_ = std::move(order);
    return true;
  }

  // In a coroutine, which works too: it finishes even if no helper ever gets one.
  void Run() {
    link_ = std::make_shared<Link>(&session_.scheduler(), this);
    if (sorted_.size() > 1 && !Border(0).has_value()) Lead();
    do {
      Work();
      while (busy_ > 0) link_->parking.ParkUntil(kNeverNs);
    } while (next_ < sorted_.size() && !IsLate());
    Refuse(next_, sorted_.size());
    link_->workers = nullptr;
  }

  // None of them has had a turn.
  void RefuseAll() { Refuse(0, sorted_.size()); }

 private:
  // What helpers find whose turn comes late.
  struct Link {
    Link(Scheduler* scheduler, WriteWorkers* of) : parking(scheduler), workers(of) {}
    Parking parking;        // of who has called
    WriteWorkers* workers;  // null: the call has returned
  };
  struct Claim {
    size_t begin = 0, end = 0;
  };

  // Each two pieces of `width` that are sorted become one. False: the deadline has passed.
  template <typename Before>
  bool Merge(size_t width, const Before& before, std::vector<size_t>* order) const {
    std::vector<size_t> merged;
    merged.reserve(order->size());
    while (merged.size() < order->size()) {
      size_t first = merged.size(), second = std::min(first + width, order->size());
      const size_t middle = second, end = std::min(second + width, order->size());
      while (merged.size() < end) {
        const bool is_second =
            first == middle || (second < end && before((*order)[second], (*order)[first]));
        merged.push_back((*order)[is_second ? second++ : first++]);
        if (merged.size() % kPiece == 0 && IsLate()) return false;
      }
    }
    *order = std::move(merged);
    return true;
  }

  std::string_view KeyOf(size_t i) const { return sorted_[i].operation->key; }
  bool IsLate() const { return session_.context().NowNs() >= deadline_ns_; }
  size_t helpers_max() const { return session_.coroutines_max() - 1; }

  RoutedTree& routed() const { return ImplOf(tree_).routed(); }
  // Nobody shares anything out before the way to the first leaf is known. What is in it is said by
  // those who go it.
  void Lead() {
    (void)session_.Perform(
        tree_, options_,
        [this](OperationContext& context) { return routed().LeadTo(context, KeyOf(0)); },
        deadline_ns_);
  }
  // Of the i-th, "" for the end of the tree; no value: nobody knows.
  std::optional<std::string> Border(size_t i) const {
    OperationContext context(&session_.context(), deadline_ns_);
    return routed().NextBorder(context, KeyOf(i));
  }
  // The first one from `end` on that is of another key than the one before it.
  size_t WholeKeys(size_t end) const {
    while (end < sorted_.size() && KeyOf(end) == KeyOf(end - 1)) ++end;
    return end;
  }
  // Where the writes of the leaf of the i-th end; no value: nobody knows.
  std::optional<size_t> EndOfLeaf(size_t i) const {
    const std::optional<std::string> border = Border(i);
    if (!border.has_value()) return std::nullopt;
    if (border->empty()) return sorted_.size();
    const auto end =
        std::partition_point(sorted_.begin() + static_cast<std::ptrdiff_t>(i), sorted_.end(),
                             [&](const RunWrite& write) { return write.operation->key < *border; });
    return WholeKeys(std::max(static_cast<size_t>(end - sorted_.begin()), i + 1));
  }

  Claim Take() {
    Claim claim{next_, 0};
    // Where nothing is known each goes to a place of its own, and finds the way there.
    const size_t share = (sorted_.size() - next_) / (2 * session_.coroutines_max());
    const std::optional<size_t> end = EndOfLeaf(next_);
    claim.end = end.has_value() ? *end : WholeKeys(next_ + std::max<size_t>(share, 1));
    next_ = claim.end;
    return claim;
  }

  void CallHelper() {
    if (next_ >= sorted_.size() || helpers_ >= helpers_max()) return;
    ++helpers_;
    session_.scheduler().Spawn([link = link_] {
      if (link->workers == nullptr) return;
      link->workers->Work();
      --link->workers->helpers_;
      link->parking.Unpark();
    });
  }

  void Work() {
    while (next_ < sorted_.size() && !IsLate()) {
      Claim claim = Take();
      CallHelper();
      ++busy_;
      GoThrough(&claim);
      --busy_;
    }
  }

  void GoThrough(Claim* claim) {
    while (claim->begin < claim->end) {
      if (IsLate()) return Refuse(claim->begin, claim->end);
      const absl::Span<const RunWrite> writes(&sorted_[claim->begin], claim->end - claim->begin);
      const size_t done = session_.WriteRun(tree_, writes, options_, deadline_ns_, &separators_);
      for (size_t i = claim->begin; i < claim->begin + done; ++i) done_(order_[i]);
      claim->begin += done;
      GiveBack(claim);
      InsertSeparators();
    }
  }

  // One coroutine at a time, also for the others: those of one parent go into it in one write.
  void InsertSeparators() {
    if (is_inserting_) return;
    is_inserting_ = true;
    while (!separators_.empty()) {
      std::vector<MissingSeparator> now = std::exchange(separators_, {});
      std::sort(now.begin(), now.end(),
                [](const auto& a, const auto& b) { return a.separator < b.separator; });
      (void)session_.Perform(
          tree_, options_,
          [&](OperationContext& context) {
            absl::Status status = context.expired() ? context.DeadlineError("inserting separators")
                                                    : routed().InsertMissing(context, &now);
            // Whoever misses the others inserts them.
            if (!now.empty()) context.missing = std::move(now.front());
            return status;
          },
          deadline_ns_);
    }
    is_inserting_ = false;
  }

  // What turns out to be other leaves', if nobody has claimed anything behind it.
  void GiveBack(Claim* claim) {
    if (claim->begin == claim->end || claim->end != next_) return;
    claim->end = std::min(claim->end, EndOfLeaf(claim->begin).value_or(claim->end));
    next_ = claim->end;
    CallHelper();
  }

  void Refuse(size_t begin, size_t end) {
    const absl::Status refusal = NoTurnError();  // made once: they may be very many
    for (size_t i = begin; i < end; ++i) {
      *sorted_[i].result = refusal;
      done_(order_[i]);
    }
  }

  SessionImpl& session_;
  const Tree& tree_;
  const OperationOptions& options_;
  const int64_t deadline_ns_;
  const absl::FunctionRef<void(size_t)> done_;
  std::vector<size_t> order_;     // by place in `sorted_`: the caller's number
  std::vector<RunWrite> sorted_;  // by key
  size_t next_ = 0;               // those before are somebody's
  size_t busy_ = 0;               // who have a claim
  size_t helpers_ = 0;
  std::vector<MissingSeparator> separators_;  // of leaves that were split
  bool is_inserting_ = false;
  std::shared_ptr<Link> link_;
};

}  // namespace

void ExecuteWrites(SessionImpl& session, const Tree& tree, absl::Span<const RunWrite> writes,
                   const OperationOptions& options, int64_t deadline_ns,
                   absl::FunctionRef<void(size_t)> done) {
  if (writes.empty()) return;
  WriteWorkers workers(&session, &tree, writes, options, deadline_ns, done);
  if (!workers.Sort()) return workers.RefuseAll();
  session.RunCall(deadline_ns, [&] { workers.Run(); });
}

void ExecuteCall(SessionImpl& session, const Tree& tree, size_t count,
                 absl::FunctionRef<CallWrite(size_t)> write_of, const OperationOptions& options,
                 int64_t deadline_ns) {
  absl::Status refusal = CheckTimeout(options.timeout_ms);
  std::vector<WriteOperation> operations;  // it never moves: views of it are handed out
  operations.reserve(count);
  std::vector<RunWrite> prepared;
  prepared.reserve(count);
  size_t reached = 0;
  for (; refusal.ok() && reached < count; ++reached) {
    if (reached % kPiece == 0 && session.context().NowNs() >= deadline_ns) {
      refusal = NoTurnError();
      break;
    }
    const CallWrite write = write_of(reached);
    WriteOperation& operation = operations.emplace_back(write.operation);
    *write.result = session.Prepare(tree, write.function, &operation);
    if (write.result->ok()) prepared.push_back({&operation, write.result, write.answer});
  }
  for (size_t i = reached; i < count; ++i) *write_of(i).result = refusal;
  ExecuteWrites(session, tree, prepared, options, deadline_ns, [&](size_t i) {
    const RunWrite& write = prepared[i];
    const bool says = IsConditionFailed(*write.result) ||
                      (write.result->ok() && write.operation->kind == WriteKind::kUpsert);
    if (write.answer != nullptr && !says) write.answer->clear();
  });
}

}  // namespace pando
