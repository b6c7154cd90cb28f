#include "compute/owner/flush.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/fabric/recoverable.h"
#include "compute/index/operations.h"
#include "compute/index/write_run.h"
#include "compute/index/write_workers.h"

namespace pando {
namespace {

// Leaves in flight at a time.
constexpr size_t kFlushCoroutines = 16;

FlushResult ResultOf(const FlushItem& item, const absl::Status& status) {
  // What was to be erased and is not there, as its leaf said under its lock, is done.
  if (status.ok() || (item.erased && status == KeyNotFound())) return FlushResult::kDone;
  // A server that is gone takes nothing either, and may be gone for long.
  return absl::IsResourceExhausted(status) || IsServerGone(status) ? FlushResult::kRefused
                                                                   : FlushResult::kFailed;
}

class FlushHost final : public WriteWorkers::Host {
 public:
  FlushHost(SessionContext* session, TreeContext* leaves, int64_t deadline_ns, uint64_t* written)
      : session_(*session), leaves_(*leaves), deadline_ns_(deadline_ns), written_(*written) {}

  SessionContext& session() override { return session_; }
  size_t coroutines_max() const override { return kFlushCoroutines; }
  size_t WriteRun(absl::Span<const RunWrite> writes,
                  std::vector<MissingSeparator>* later) override {
    session_.AdoptServers();
    if (leaves_.fate.lost()) {
      for (const RunWrite& write : writes) *write.result = leaves_.fate.status();
      return writes.size();
    }
    OperationContext context = NewContext();
    const size_t done = pando::WriteRun(context, leaves_, writes, later);
    const auto is_written = [](const RunWrite& write) { return write.result->ok(); };
    if (std::ranges::any_of(writes.first(done), is_written)) ++written_;
    // What a session of users leaves to its next write is done here: this one has the time.
    if (context.missing.has_value()) {
      (void)InsertSeparator(context, leaves_, *std::move(context.missing));
    }
    if (context.underfull.has_value()) {
      (void)MergeUnderfull(context, leaves_, /*level=*/0, *context.underfull);
    }
    SweepIfDue(context);
    return done;
  }
  std::optional<std::string> NextBorder(std::string_view key) override {
    OperationContext context = NewContext();
    return pando::NextBorder(context, leaves_, key);
  }
  void LeadTo(std::string_view key) override {
    if (leaves_.fate.lost()) return;
    OperationContext context = NewContext();
    (void)pando::LeadTo(context, leaves_, key);
  }
  void InsertSeparators(std::vector<MissingSeparator>* separators) override {
    if (leaves_.fate.lost()) return;
    OperationContext context = NewContext();
    (void)pando::InsertSeparators(context, leaves_, separators);
    SweepIfDue(context);
  }

 private:
  OperationContext NewContext() {
    OperationContext context(&session_, deadline_ns_);
    context.fate = &leaves_.fate;
    return context;
  }
  // Whose refill is told of orphans has the turn: nobody else sweeps for a while (rule C5).
  void SweepIfDue(OperationContext& context) {
    if (!context.sweep_due || leaves_.fate.lost()) return;
    SweepResult result;
    (void)SweepTree(context, leaves_, /*thorough=*/false, &result);
  }

  SessionContext& session_;
  TreeContext& leaves_;
  const int64_t deadline_ns_;
  uint64_t& written_;  // leaves
};

}  // namespace

absl::Status LeavesGoneError() {
  return absl::UnavailableError("leaves on a memory server that is gone");
}

bool IsServerGone(const absl::Status& status) {
  return absl::IsUnavailable(status) && !IsRecoverable(status);
}

absl::Status FlushToLeaves(SessionContext* session, TreeContext* leaves, int64_t deadline_ns,
                           const std::vector<FlushItem>& items, FlushCounts* counts,
                           absl::FunctionRef<void(size_t, FlushResult)> ended) {
  std::vector<WriteOperation> operations;
  std::vector<absl::Status> results(items.size());
  std::vector<RunWrite> writes;
  operations.reserve(items.size());
  writes.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const FlushItem& item = items[i];
    operations.push_back({.kind = item.erased ? WriteKind::kErase : WriteKind::kPut,
                          .key = item.key,
                          .value = item.value});
    writes.push_back({&operations[i], &results[i], nullptr});
  }
  absl::Status first;
  FlushHost host(session, leaves, deadline_ns, &counts->leaves);
  const auto done = [&](size_t i) {
    const FlushResult result = ResultOf(items[i], results[i]);
    switch (result) {
      case FlushResult::kDone:
        ++counts->messages;
        break;
      case FlushResult::kRefused:
        ++counts->refused;
        if (IsServerGone(results[i])) ++counts->gone;
        break;
      case FlushResult::kFailed:
        ++counts->failed;
        break;
    }
    const bool is_first = first.ok() || absl::IsResourceExhausted(first);
    if (result != FlushResult::kDone && is_first) first = results[i];
    ended(i, result);
  };
  WriteWorkers workers(&host, writes, deadline_ns, done);
  if (workers.Sort()) {
    workers.Run();
  } else {
    workers.RefuseAll();
  }
  return first;
}

}  // namespace pando
