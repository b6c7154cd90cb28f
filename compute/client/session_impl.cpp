#include "compute/client/session_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "compute/client/access.h"
#include "compute/client/cursor_impl.h"
#include "compute/client/thrown.h"

namespace pando {
namespace {

// How long a noticed separator may still be on its way from the session that split, in chain times.
constexpr int64_t kRepairDelayChains = 16;
// How long a repair may take, in chain times: a caller from outside waits for it.
constexpr int64_t kRepairTimeoutChains = 1024;
// Of what takes as long as there is data.
constexpr int64_t kWholeTreeTimeoutMs = 24 * 3600 * 1000;

// Inline, with refusals apart: a status that is only examined costs time (compute/README.md).
bool KeyFits(const TreeContext& tree, std::string_view key) {
  return !key.empty() && key.size() <= tree.layout.key_bytes_max();
}
bool ValueFits(const TreeContext& tree, std::string_view value) {
  return value.size() <= tree.entry.shape.value_bytes_max;
}
[[gnu::noinline]] absl::Status KeyRefusal(const TreeContext& tree, std::string_view key) {
  return absl::InvalidArgumentError(absl::StrCat("a key of ", key.size(), " bytes; tree '",
                                                 tree.entry.name, "' takes 1..",
                                                 tree.layout.key_bytes_max()));
}
[[gnu::noinline]] absl::Status ValueRefusal(const TreeContext& tree, std::string_view value) {
  return absl::InvalidArgumentError(absl::StrCat("a value of ", value.size(), " bytes; tree '",
                                                 tree.entry.name, "' takes 0..",
                                                 tree.entry.shape.value_bytes_max));
}

}  // namespace

SessionImpl::~SessionImpl() {
  repairs_.clear();
  scheduler().Drain();
  if (thrown_ != nullptr) {
    PANDO_LOG(ERROR) << "a session ends before it could report the exception that left one of its "
                        "tasks, as Session::Run() was not called after it: "
                     << DescribeThrown(thrown_);
  }
  PANDO_CHECK_EQ(cursors_, 0u) << "a session was destroyed before its cursors";
  LetTreesGo();
  client_.RemoveSession(context_.get());
}

absl::Status SessionImpl::RunOutside(absl::FunctionRef<void()> run) {
  if (Scheduler::Current() != nullptr) {
    return absl::FailedPreconditionError("a session was used inside another session's task");
  }
  scheduler().Spawn([run] { run(); });
  scheduler().Drain();
  LetTreesGo();
  return absl::OkStatus();
}

absl::Status CheckTimeout(int64_t timeout_ms) {
  if (timeout_ms >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a timeout of ", timeout_ms, " ms: give 0 for the client's operation_timeout_ms, or more"));
}

// Why nothing can be done with the tree, or within that time.
[[gnu::noinline]] absl::Status SessionImpl::Refusal(const Tree& tree, int64_t timeout_ms) const {
  PANDO_RETURN_IF_ERROR(CheckTimeout(timeout_ms));
  if (&ImplOf(tree).client() != &client_) {
    return absl::InvalidArgumentError("the tree was opened by another client");
  }
  return context_->fenced() ? FencedError() : ImplOf(tree).context().fate.status();
}

// Inline with its job: few frames between a suspension and the caller (common/sched/README.md).
template <typename Job>
[[gnu::always_inline]] inline absl::Status SessionImpl::Execute(const Tree& tree,
                                                                int64_t timeout_ms,
                                                                int64_t deadline_ns,
                                                                OperationCost* cost,
                                                                const Job& job) {
  TreeContext& tree_context = ImplOf(tree).context();
  context_->AdoptServers();
  if (&ImplOf(tree).client() != &client_ || context_->fenced() || tree_context.fate.lost() ||
      timeout_ms < 0) [[unlikely]]
    return Refusal(tree, timeout_ms);
  const auto run = [&]() __attribute__((always_inline)) {
    OperationContext context(context_.get(),
                             OperationContext::Timeout{TimeoutNs(timeout_ms), deadline_ns});
    context.fate = &tree_context.fate;
    absl::Status status = job(context);
    if (cost != nullptr) *cost += context.cost;
    if (context.missing.has_value() || context.underfull.has_value() || context.sweep_due)
        [[unlikely]]
      NoteRepairs(tree, context);
    return status;
  };
  if (Scheduler::Current() == &scheduler()) [[likely]] {
    absl::Status status = run();
    if (!repairs_.empty()) SpawnRepairs();
    return status;
  }
  absl::Status status;
  PANDO_RETURN_IF_ERROR(RunOutside([&] { status = run(); }));
  return status;
}

// While an operation that was called from outside runs.
class SessionImpl::CallersDeadline {
 public:
  CallersDeadline(SessionImpl* session, int64_t deadline_ns) : session_(*session) {
    session_.callers_deadline_ns_ = deadline_ns;
  }
  ~CallersDeadline() { session_.callers_deadline_ns_ = kNeverNs; }
  CallersDeadline(const CallersDeadline&) = delete;
  CallersDeadline& operator=(const CallersDeadline&) = delete;

 private:
  SessionImpl& session_;
};

int64_t SessionImpl::RepairDeadlineNs(int64_t timeout_ns) const {
  return std::min(context_->NowNs() + std::min(timeout_ns, TimeoutNs(0)), callers_deadline_ns_);
}

void SessionImpl::NoteRepairs(const Tree& tree, OperationContext& context) {
  if (repairs_.size() >= kRepairsMax) return;
  repairs_.push_back({SharedImplOf(tree), std::move(context.missing), std::move(context.underfull),
                      context.sweep_due, /*again=*/0});
}

void SessionImpl::RunRepair(RoutedTree& tree, Repair& repair) {
  context_->AdoptServers();
  const TreeFate& fate = tree.shared().fate;
  if (fate.lost()) return;
  OperationContext context(context_.get(),
                           RepairDeadlineNs(kRepairTimeoutChains * context_->chain_ns()));
  context.fate = &fate;
  // Best effort: the next operation that misses it tries again.
  if (repair.missing.has_value()) {
    context.BackOff(kRepairDelayChains);
    context_->counters().separator_repairs.Add();
    (void)tree.InsertMissing(context, *std::move(repair.missing));
  }
  if (repair.underfull.has_value()) {
    (void)tree.MergeUnderfullLeaf(context, *repair.underfull);
    // Of an emptied leaf no operation need ever notice anything again.
    if (context.underfull.has_value() && repair.again < kRepairAgainMax &&
        repairs_.size() < kRepairsMax) {
      repairs_.push_back({.tree = repair.tree,
                          .missing = std::nullopt,
                          .underfull = std::move(context.underfull),
                          .again = repair.again + 1});
    }
  }
  // Where this repair's own refill was told of orphans nobody else is for a while.
  if ((repair.sweep || context.sweep_due) && !fate.lost()) {
    // Of this repair, which has begun before the tree was lost perhaps (rule R8).
    OperationContext sweep(context, RepairDeadlineNs(kNeverNs));
    SweepResult result;
    (void)tree.Sweep(sweep, /*thorough=*/false, &result);
  }
}

void SessionImpl::Keep(std::shared_ptr<TreeImpl> tree) {
  if (closer_ != nullptr) return closer_->Take(std::move(tree));
  const auto kept = std::find(kept_trees_.begin(), kept_trees_.end(), tree);
  if (kept == kept_trees_.end()) kept_trees_.push_back(std::move(tree));
}

void SessionImpl::SpawnRepairs() {
  while (!repairs_.empty()) {
    auto repair = std::make_shared<Repair>(std::move(repairs_.front()));
    repairs_.pop_front();
    // The tree's handle stays open while it is repaired.
    std::shared_ptr<TreeImpl> tree = repair->tree.lock();
    if (tree == nullptr) continue;
    scheduler().Spawn([this, repair, tree = std::move(tree)]() mutable {
      RunRepair(tree->routed(), *repair);
      Keep(std::move(tree));
    });
  }
}

void SessionImpl::Spawn(std::function<void()> task) {
  scheduler().Spawn([this, task = std::move(task)] {
    // Beyond this border is a coroutine's end, which no exception passes.
    try {
      task();
    } catch (...) {
      NoteException();
    }
  });
}

void SessionImpl::NoteException() {
  if (thrown_ == nullptr) {
    thrown_ = std::current_exception();
    return;
  }
  PANDO_LOG(ERROR)
      << "a second exception has left a task of this session; Session::Run() throws the "
         "first, and this one is lost: "
      << DescribeThrown(std::current_exception());
}

void SessionImpl::RunTasks() {
  SpawnRepairs();
  scheduler().Drain();
  LetTreesGo();
}

void SessionImpl::Run() {
  RunTasks();
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

absl::Status SessionImpl::Get(const Tree& tree, std::string_view key, std::string* value,
                              const OperationOptions& options, int64_t deadline_ns) {
  RoutedTree& routed = ImplOf(tree).routed();
  if (!KeyFits(routed.shared(), key)) [[unlikely]]
    return KeyRefusal(routed.shared(), key);
  return Execute(tree, options.timeout_ms, deadline_ns, options.cost,
                 [&](OperationContext& operation) { return routed.Get(operation, key, value); });
}

absl::Status SessionImpl::Write(const Tree& tree, const WriteOperation& operation,
                                const OperationOptions& options, int64_t deadline_ns,
                                std::string* answer) {
  RoutedTree& routed = ImplOf(tree).routed();
  if (!KeyFits(routed.shared(), operation.key)) [[unlikely]]
    return KeyRefusal(routed.shared(), operation.key);
  if (!ValueFits(routed.shared(), operation.value)) [[unlikely]]
    return ValueRefusal(routed.shared(), operation.value);
  std::optional<CallersDeadline> deadline;
  if (!repairs_.empty() && Scheduler::Current() == nullptr) [[unlikely]] {
    deadline.emplace(this, context_->NowNs() + TimeoutNs(options.timeout_ms));
    SpawnRepairs();
  }
  return Execute(tree, options.timeout_ms, deadline_ns, options.cost,
                 [&](OperationContext& op) { return routed.Write(op, operation, answer); });
}

absl::Status SessionImpl::Upsert(const Tree& tree, std::string_view key, UpsertFunction function,
                                 std::string_view operand, const OperationOptions& options,
                                 int64_t deadline_ns, std::string* answer) {
  WriteOperation operation{.kind = WriteKind::kUpsert, .key = key, .value = operand};
  PANDO_RETURN_IF_ERROR(Prepare(tree, function, &operation));
  return Write(tree, operation, options, deadline_ns, answer);
}

absl::Status SessionImpl::Prepare(const Tree& tree, UpsertFunction function,
                                  WriteOperation* operation) const {
  const TreeContext& context = ImplOf(tree).context();
  if (!KeyFits(context, operation->key)) return KeyRefusal(context, operation->key);
  if (operation->kind == WriteKind::kUpsert) {
    PANDO_RETURN_IF_ERROR(
        CheckOperand(function, operation->value, context.entry.shape.value_bytes_max));
    operation->function = client_.upserts().Find(function);
    operation->function_number = function;
    if (operation->function == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("no upsert function ", static_cast<uint32_t>(function),
                       ": register it first (Client::RegisterUpsertFunction())"));
    }
  }
  // No matter what is given as the value of what is erased.
  const bool erases =
      operation->kind == WriteKind::kErase || operation->kind == WriteKind::kEraseIf;
  if (erases) operation->value = {};
  if (!ValueFits(context, operation->value)) return ValueRefusal(context, operation->value);
  return absl::OkStatus();
}

size_t SessionImpl::WriteRun(const Tree& tree, absl::Span<const RunWrite> writes,
                             const OperationOptions& options, int64_t deadline_ns,
                             std::vector<MissingSeparator>* later) {
  size_t done = 0;
  const auto run = [&](OperationContext& operation) {
    done = ImplOf(tree).routed().WriteRun(operation, writes, later);
    return absl::OkStatus();
  };
  const absl::Status refusal = Execute(tree, options.timeout_ms, deadline_ns, options.cost, run);
  if (refusal.ok()) return done;
  for (const RunWrite& write : writes) *write.result = refusal;
  return writes.size();
}

absl::Status SessionImpl::Scan(const Tree& tree, const CursorOptions& options,
                               std::vector<KeyValue>* rows, int64_t deadline_ns) {
  rows->clear();
  PANDO_RETURN_IF_ERROR(CheckCursorOptions(options));
  RoutedTree& routed = ImplOf(tree).routed();
  return Execute(tree, options.operation.timeout_ms, deadline_ns, options.operation.cost,
                 [&](OperationContext& operation) {
                   const KeyRange range = RangeOf(options, tree.key_bytes_max());
                   return routed.Scan(operation, range, options.reverse, options.limit,
                                      static_cast<size_t>(options.read_ahead), rows);
                 });
}

absl::Status SessionImpl::Perform(const Tree& tree, const OperationOptions& options,
                                  absl::FunctionRef<absl::Status(OperationContext&)> job,
                                  int64_t deadline_ns) {
  return Execute(tree, options.timeout_ms, deadline_ns, options.cost, job);
}

absl::Status SessionImpl::Sweep(const Tree& tree, SweepResult* result,
                                const OperationOptions& options) {
  return Execute(tree, options.timeout_ms, kFromNow, options.cost,
                 [&](OperationContext& operation) {
                   return ImplOf(tree).routed().Sweep(operation, /*thorough=*/true, result);
                 });
}

absl::Status SessionImpl::BulkLoad(const Tree& tree, const std::function<bool(KeyValue*)>& next) {
  const auto take = [&next](KeyValue* entry) -> absl::StatusOr<bool> {
    bool is_one = false;
    const auto thrown = CallContained([&] { is_one = next(entry); });
    if (!thrown.has_value()) return is_one;
    return absl::CancelledError(absl::StrCat(
        "bulk load: nothing was loaded, as the callback for the next entry threw: ", *thrown));
  };
  return Execute(tree, kWholeTreeTimeoutMs, kFromNow, nullptr, [&](OperationContext& operation) {
    PANDO_RETURN_IF_ERROR(ImplOf(tree).routed().BulkLoad(operation, take));
    // What was loaded first may have gone since, with its memory server.
    const absl::Status there = ImplOf(tree).context().CheckServers(operation, /*waits=*/true);
    if (there.ok() || absl::IsDataLoss(there)) return there;
    // Others may see the entries already: no refusal, whatever the question's end was.
    return OutcomeUnknownError(absl::StrCat(
        "bulk load: the entries were stored, but whether every memory server still has them could "
        "not be found out (Client::TreeStatus() asks again): ",
        there.ToString()));
  });
}

absl::StatusOr<CheckReport> SessionImpl::Check(const Tree& tree, const CheckOptions& options) {
  if (options.problems_max == 0) {
    return absl::InvalidArgumentError(
        "problems_max is 0: such a check would look at nothing, and find no problem; give 1 or "
        "more");
  }
  absl::StatusOr<CheckReport> report = absl::UnknownError("");
  const int64_t timeout_ms = options.timeout_ms != 0 ? options.timeout_ms : kWholeTreeTimeoutMs;
  PANDO_RETURN_IF_ERROR(
      Execute(tree, timeout_ms, kFromNow, nullptr, [&](OperationContext& operation) {
        report = ImplOf(tree).routed().Check(operation, client_.check_servers(), options);
        return report.status();
      }));
  return report;
}

void SessionImpl::ForEach(size_t count, int64_t deadline_ns, absl::FunctionRef<void(size_t)> work,
                          absl::FunctionRef<void(size_t, const absl::Status&)> refuse) {
  if (count == 0) return;
  // Helpers share the counter with the caller. The caller works too, so it finishes even if no
  // helper ever gets a coroutine; it waits only for helpers that have taken an item.
  struct Shared {
    explicit Shared(Scheduler* scheduler) : parking(scheduler) {}
    size_t next = 0;
    size_t busy = 0;
    Parking parking;
  };
  const auto run = [&, this] {
    auto shared = std::make_shared<Shared>(&scheduler());
    const auto take_items = [this, count, deadline_ns, work](Shared& s) {
      while (s.next < count && context_->NowNs() < deadline_ns) {
        ++s.busy;
        work(s.next++);
        --s.busy;
      }
    };
    const size_t helpers = std::min(count, coroutines_max()) - 1;
    for (size_t i = 0; i < helpers; ++i) {
      scheduler().Spawn([shared, take_items, count] {
        if (shared->next >= count) return;  // too late: the caller may be gone
        take_items(*shared);
        shared->parking.Unpark();
      });
    }
    take_items(*shared);
    const size_t taken = std::exchange(shared->next, count);
    while (shared->busy > 0) shared->parking.ParkUntil(kNeverNs);
    const absl::Status refusal = NoTurnError();  // made once: they may be very many
    for (size_t i = taken; i < count; ++i) refuse(i, refusal);
  };
  RunCall(deadline_ns, run);
}

void SessionImpl::RunCall(int64_t deadline_ns, absl::FunctionRef<void()> run) {
  if (Scheduler::Current() != nullptr) return run();
  const CallersDeadline deadline(this, deadline_ns);
  scheduler().Spawn([run] { run(); });
  RunTasks();
}

}  // namespace pando
