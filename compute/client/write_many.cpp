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
        order_(writes.size()) {
    const auto key_of = [&](size_t i) { return writes[i].operation->key; };
    std::iota(order_.begin(), order_.end(), size_t{0});
    const auto before = [&](size_t a, size_t b) { return key_of(a) < key_of(b); };
    if (!std::is_sorted(order_.begin(), order_.end(), before)) {
      std::stable_sort(order_.begin(), order_.end(), before);
    }
    sorted_.reserve(writes.size());
    for (const size_t i : order_) sorted_.push_back(writes[i]);
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
    for (size_t i = begin; i < end; ++i) {
      *sorted_[i].result = NoTurnError();
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
  session.RunCall(deadline_ns, [&] { workers.Run(); });
}

void ExecuteCall(SessionImpl& session, const Tree& tree, std::vector<CallWrite> writes,
                 const OperationOptions& options) {
  const absl::Status refusal = CheckTimeout(options.timeout_ms);
  if (!refusal.ok()) {
    for (const CallWrite& write : writes) *write.result = refusal;
    return;
  }
  const int64_t deadline_ns = session.context().NowNs() + session.TimeoutNs(options.timeout_ms);
  std::vector<RunWrite> prepared;
  prepared.reserve(writes.size());
  for (CallWrite& write : writes) {
    *write.result = session.Prepare(tree, write.function, &write.operation);
    if (write.result->ok()) prepared.push_back({&write.operation, write.result, write.answer});
  }
  ExecuteWrites(session, tree, prepared, options, deadline_ns, [&](size_t i) {
    const RunWrite& write = prepared[i];
    const bool says = IsConditionFailed(*write.result) ||
                      (write.result->ok() && write.operation->kind == WriteKind::kUpsert);
    if (write.answer != nullptr && !says) write.answer->clear();
  });
}

}  // namespace pando
