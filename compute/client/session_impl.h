// The inside of a Session: runs operations in coroutines, and repairs what they noticed.
//
// Not thread-safe. Invariants:
//   1. Outside its scheduler a session has no operation in flight: a call from outside returns when
//      all of the session's tasks are done. So a waiter in a lock queue is always one that can
//      receive a handover (rule L6).
//   2. Repairs (rules S3, M1, C5) noticed by operations run with the next write, task or Run(),
//      never on a get's time.
#pragma once

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compute/client/client_impl.h"
#include "compute/client/tree_closer.h"
#include "compute/core/session_context.h"
#include "compute/route/routed_tree.h"
#include "pando/client.h"

namespace pando {

// InvalidArgument: it is negative.
absl::Status CheckTimeout(int64_t timeout_ms);

class SessionImpl {
 public:
  // `closer`: of a session that is never called from outside its tasks.
  SessionImpl(ClientImpl* client, std::unique_ptr<SessionContext> context,
              TreeCloser* closer = nullptr)
      : client_(*client),
        context_(std::move(context)),
        closer_(closer),
        usual_timeout_ns_(NsOf(client->options().operation_timeout_ms)) {}
  ~SessionImpl();

  // No `deadline_ns` of the session's clock: it comes of `options`, from now on.
  static constexpr int64_t kFromNow = OperationContext::kUnset;
  absl::Status Get(const Tree& tree, std::string_view key, std::string* value,
                   const OperationOptions& options, int64_t deadline_ns = kFromNow);
  // `answer`: as RoutedTree::Write().
  absl::Status Write(const Tree& tree, const WriteOperation& operation,
                     const OperationOptions& options, int64_t deadline_ns = kFromNow,
                     std::string* answer = nullptr);
  absl::Status Upsert(const Tree& tree, std::string_view key, UpsertFunction function,
                      std::string_view operand, const OperationOptions& options,
                      int64_t deadline_ns, std::string* answer);
  // What Write() refuses before anything is done, InvalidArgument. An upsert gets its function;
  // what is given as the value of an erase is no matter, and goes.
  absl::Status Prepare(const Tree& tree, UpsertFunction function, WriteOperation* operation) const;
  // The head of many writes, prepared and sorted by key: as WriteRun() of the index, also where the
  // session or the tree refuses them.
  size_t WriteRun(const Tree& tree, absl::Span<const RunWrite> writes,
                  const OperationOptions& options, int64_t deadline_ns,
                  std::vector<MissingSeparator>* later);
  absl::Status Scan(const Tree& tree, const CursorOptions& options, std::vector<KeyValue>* rows,
                    int64_t deadline_ns = kFromNow);
  absl::Status Sweep(const Tree& tree, SweepResult* result, const OperationOptions& options);
  absl::Status BulkLoad(const Tree& tree, const std::function<bool(KeyValue*)>& next);
  absl::StatusOr<CheckReport> Check(const Tree& tree, const CheckOptions& options);

  // Any other job on the tree, as an operation of this session.
  absl::Status Perform(const Tree& tree, const OperationOptions& options,
                       absl::FunctionRef<absl::Status(OperationContext&)> job,
                       int64_t deadline_ns = kFromNow);
  // Cursors must be gone before the session (CHECKed).
  void AddCursor() { ++cursors_; }
  void RemoveCursor() { --cursors_; }

  // Calls `work(i)` for each i < count from as many coroutines as there are; returns when all have
  // returned. Those whose turn has not come by the deadline go to `refuse(i, status)`.
  void ForEach(size_t count, int64_t deadline_ns, absl::FunctionRef<void(size_t)> work,
               absl::FunctionRef<void(size_t, const absl::Status&)> refuse);

  // Runs a call of several operations in a coroutine of this session, or in the caller's; from
  // outside with the repairs that are due, which end by the call's deadline, too.
  void RunCall(int64_t deadline_ns, absl::FunctionRef<void()> run);
  // Coroutines that operations may have at once.
  size_t coroutines_max() const {
    return static_cast<size_t>(client_.options().coroutines_per_session);
  }

  // Of a call with these OperationOptions::timeout_ms, which CheckTimeout() lets pass.
  int64_t TimeoutNs(int64_t timeout_ms) const {
    return timeout_ms == 0 ? usual_timeout_ns_ : NsOf(timeout_ms);
  }
  // Of such a call that begins now.
  int64_t DeadlineNs(int64_t timeout_ms) const { return context_->NowNs() + TimeoutNs(timeout_ms); }
  // Keeps the first exception that leaves a task, for Run(), and logs the others.
  void Spawn(std::function<void()> task);
  // Throws what Spawn() has kept.
  void Run();
  // Without that: for calls that have results of their own.
  void RunTasks();
  // The last reference to a tree that a task has used may not go in the task: closing a tree waits.
  // The task has no other reference to it than this one.
  void Keep(std::shared_ptr<TreeImpl> tree);
  // Those that no closer has go. Outside coroutines, while no task holds a lock that somebody may
  // wait for.
  void LetTreesGo() {
    if (!kept_trees_.empty()) kept_trees_.clear();
  }
  Scheduler& scheduler() { return context_->scheduler(); }
  SessionContext& context() { return *context_; }

 private:
  struct Repair {
    std::weak_ptr<TreeImpl> tree;  // does not keep it open
    std::optional<MissingSeparator> missing;
    std::optional<std::string> underfull;
    bool sweep = false;
    int again = 0;  // so often it was noted again
  };
  class CallersDeadline;
  // Also of one that is refused.
  static int64_t NsOf(int64_t timeout_ms) {
    return std::clamp(timeout_ms, -kTimeoutMsMax, kTimeoutMsMax) * kMillisecondNs;
  }
  static constexpr size_t kRepairsMax = 256;  // more are noticed again later
  // Of merges that others were in the way of: somebody may hold a lock for good.
  static constexpr int kRepairAgainMax = 8;

  // Runs `job`, an absl::Status(OperationContext&), in a coroutine of this session, now.
  template <typename Job>
  absl::Status Execute(const Tree& tree, int64_t timeout_ms, int64_t deadline_ns,
                       OperationCost* cost, const Job& job);
  // In the handler of an exception that has left a task.
  void NoteException();
  // From outside the session's coroutines.
  absl::Status RunOutside(absl::FunctionRef<void()> run);
  absl::Status Refusal(const Tree& tree, int64_t timeout_ms) const;
  void NoteRepairs(const Tree& tree, OperationContext& context);
  void SpawnRepairs();
  void RunRepair(RoutedTree& tree, Repair& repair);
  // Of a repair that begins now.
  int64_t RepairDeadlineNs(int64_t timeout_ns) const;

  ClientImpl& client_;
  std::unique_ptr<SessionContext> context_;
  TreeCloser* const closer_;
  const int64_t usual_timeout_ns_;
  std::deque<Repair> repairs_;
  // Of the operation called from outside that waits for repairs, too: they may take no longer.
  int64_t callers_deadline_ns_ = kNeverNs;
  std::vector<std::shared_ptr<TreeImpl>> kept_trees_;  // each once
  std::exception_ptr thrown_;                          // by a task, and not yet by Run()
  size_t cursors_ = 0;
};

}  // namespace pando
