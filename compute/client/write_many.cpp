#include "compute/client/write_many.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/status.h"
#include "compute/client/access.h"

namespace pando {
namespace {

// Writes that are prepared between two looks at the clock.
constexpr size_t kPiece = 1024;

// The writes of one call: each run is an operation of the session.
class CallHost final : public WriteWorkers::Host {
 public:
  CallHost(SessionImpl* session, const Tree* tree, const OperationOptions* options,
           int64_t deadline_ns)
      : session_(*session), tree_(*tree), options_(*options), deadline_ns_(deadline_ns) {}

  SessionContext& session() override { return session_.context(); }
  size_t coroutines_max() const override { return session_.coroutines_max(); }
  size_t WriteRun(absl::Span<const RunWrite> writes,
                  std::vector<MissingSeparator>* later) override {
    return session_.WriteRun(tree_, writes, options_, deadline_ns_, later);
  }
  std::optional<std::string> NextBorder(std::string_view key) override {
    OperationContext context(&session_.context(), deadline_ns_);
    return routed().NextBorder(context, key);
  }
  void LeadTo(std::string_view key) override {
    (void)session_.Perform(
        tree_, options_, [&](OperationContext& context) { return routed().LeadTo(context, key); },
        deadline_ns_);
  }
  void InsertSeparators(std::vector<MissingSeparator>* separators) override {
    (void)session_.Perform(
        tree_, options_,
        [&](OperationContext& context) {
          absl::Status status = context.expired() ? context.DeadlineError("inserting separators")
                                                  : routed().InsertMissing(context, separators);
          // The next operations that miss the others insert them.
          if (!separators->empty()) context.missing = std::move(separators->front());
          return status;
        },
        deadline_ns_);
  }

 private:
  RoutedTree& routed() const { return ImplOf(tree_).routed(); }

  SessionImpl& session_;
  const Tree& tree_;
  const OperationOptions& options_;
  const int64_t deadline_ns_;
};

}  // namespace

void ExecuteWrites(SessionImpl& session, const Tree& tree, absl::Span<const RunWrite> writes,
                   const OperationOptions& options, int64_t deadline_ns,
                   absl::FunctionRef<void(size_t)> done) {
  if (writes.empty()) return;
  CallHost host(&session, &tree, &options, deadline_ns);
  WriteWorkers workers(&host, writes, deadline_ns, done);
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
