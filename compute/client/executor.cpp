#include "pando/executor.h"

#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "compute/client/session_impl.h"

namespace pando {
namespace {

OperationResult Perform(Session& session, const Tree& tree, const Operation& operation) {
  OperationResult result;
  const OperationOptions options{.timeout_ms = operation.timeout_ms};
  switch (operation.kind) {
    case Operation::Kind::kGet:
      result.status = session.GetTo(tree, operation.key, &result.value, options);
      break;
    case Operation::Kind::kPut:
      result.status = session.Put(tree, operation.key, operation.value, options);
      break;
    case Operation::Kind::kInsert:
      result.status = session.Insert(tree, operation.key, operation.value, options);
      break;
    case Operation::Kind::kUpdate:
      result.status = session.Update(tree, operation.key, operation.value, options);
      break;
    case Operation::Kind::kErase:
      result.status = session.Erase(tree, operation.key, options);
      break;
    case Operation::Kind::kScan:
      result.status = session.Scan(tree, operation.key, operation.limit, &result.rows, options);
      break;
  }
  return result;
}

// Worker threads, each driving one session; Submit() posts to the least recently used one in turn.
class ThreadedExecutor : public Executor {
 public:
  explicit ThreadedExecutor(const Options& options) : queue_max_(options.queue_max) {}

  ~ThreadedExecutor() override {
    stopping_ = true;
    for (Worker& worker : workers_) worker.session->impl().scheduler().Post([] {});
    for (Worker& worker : workers_) worker.thread.join();
  }

  void AddWorker(std::unique_ptr<Session> session) {
    Session* const s = session.get();
    workers_.push_back({std::move(session), std::thread([this, s] {
                          Scheduler& scheduler = s->impl().scheduler();
                          scheduler.RunUntil([&] { return stopping_ && scheduler.idle(); });
                        })});
  }

  absl::Status Submit(const Tree& tree, Operation operation,
                      std::function<void(OperationResult)> done) override {
    if (queued_.fetch_add(1, std::memory_order_relaxed) >= queue_max_) {
      queued_.fetch_sub(1, std::memory_order_relaxed);
      return absl::ResourceExhaustedError(
          absl::StrCat(queue_max_, " operations are waiting in the executor"));
    }
    const size_t turn = next_.fetch_add(1, std::memory_order_relaxed) % workers_.size();
    Session* const session = workers_[turn].session.get();
    const bool posted = session->impl().scheduler().Post(
        [this, session, &tree, operation = std::move(operation), done = std::move(done)] {
          OperationResult result = Perform(*session, tree, operation);
          queued_.fetch_sub(1, std::memory_order_relaxed);
          done(std::move(result));
        });
    PANDO_CHECK(posted) << "an operation was submitted to an executor that is being destroyed";
    return absl::OkStatus();
  }

 private:
  struct Worker {
    std::unique_ptr<Session> session;
    std::thread thread;
  };
  const size_t queue_max_;
  std::atomic<size_t> queued_{0};
  std::atomic<size_t> next_{0};
  std::atomic<bool> stopping_{false};
  std::vector<Worker> workers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(Client* client, const Options& options) {
  if (options.workers < 1 || options.workers > 1024) {
    return absl::InvalidArgumentError("an executor has 1..1024 workers");
  }
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < options.workers; ++i) {
    PANDO_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, client->NewSession());
    sessions.push_back(std::move(session));
  }
  auto executor = std::make_unique<ThreadedExecutor>(options);
  for (auto& session : sessions) executor->AddWorker(std::move(session));
  return executor;
}

OperationResult Executor::Execute(const Tree& tree, Operation operation) {
  std::promise<OperationResult> promise;
  const absl::Status submitted = Submit(tree, std::move(operation), [&promise](OperationResult r) {
    promise.set_value(std::move(r));
  });
  if (!submitted.ok()) return {.status = submitted};
  return promise.get_future().get();
}

}  // namespace pando
