#include "pando/executor.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/quiet_thread.h"
#include "common/base/rate_limited_log.h"
#include "common/base/status.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/thrown.h"
#include "compute/client/tree_closer.h"
#include "compute/client/write_many.h"

namespace pando {
namespace {

// Writes in one batch, and waiting operations that are looked at for it.
constexpr size_t kBatchMax = 64;
constexpr size_t kLookMax = 256;
// A batch ends when the first of its writes has to. So it is of those whose time is much the same:
// apart by no more than this part of what is left.
constexpr int64_t kTimePart = 8;

std::optional<WriteKind> WriteKindOf(Operation::Kind kind) {
  switch (kind) {
    case Operation::Kind::kGet:
    case Operation::Kind::kScan:
      return std::nullopt;
    case Operation::Kind::kPut:
      return WriteKind::kPut;
    case Operation::Kind::kInsert:
      return WriteKind::kInsert;
    case Operation::Kind::kUpdate:
      return WriteKind::kUpdate;
    case Operation::Kind::kErase:
      return WriteKind::kErase;
    case Operation::Kind::kReplace:
      return WriteKind::kReplace;
    case Operation::Kind::kEraseIf:
      return WriteKind::kEraseIf;
    case Operation::Kind::kUpsert:
      return WriteKind::kUpsert;
  }
  return std::nullopt;
}

// An operation that was submitted.
struct Job {
  const Tree* tree;
  Operation operation;
  std::function<void(OperationResult)> done;
  int64_t deadline_ns;
  std::multimap<int64_t, std::list<Job>::iterator>::iterator expiry;  // while it waits

  bool is_write() const { return WriteKindOf(operation.kind).has_value(); }
  WriteOperation AsWrite() const {
    return {.kind = *WriteKindOf(operation.kind),
            .key = operation.key,
            .value = operation.value,
            .expected = operation.expected};
  }
};

// One that is alone.
OperationResult Perform(SessionImpl& session, const Job& job) {
  const Operation& operation = job.operation;
  OperationResult result;
  if (operation.kind == Operation::Kind::kGet) {
    result.status = session.Get(*job.tree, operation.key, &result.value, {}, job.deadline_ns);
  } else if (operation.kind == Operation::Kind::kScan) {
    result.status = session.Scan(*job.tree,
                                 {.from = operation.key,
                                  .to = operation.to,
                                  .reverse = operation.reverse,
                                  .limit = operation.limit},
                                 &result.rows, job.deadline_ns);
  } else {
    WriteOperation write = job.AsWrite();
    result.status = session.Prepare(*job.tree, operation.function, &write);
    if (result.status.ok()) {
      result.status = session.Write(*job.tree, write, {}, job.deadline_ns, &result.value);
    }
  }
  return result;
}

// Of the count of what an executor has accepted: it takes nothing more.
constexpr size_t kClosed = size_t{1} << 62;

void NoteEnded(std::atomic<size_t>* accepted) {
  if (accepted->fetch_sub(1, std::memory_order_acq_rel) == kClosed + 1) accepted->notify_all();
}

// A thread with a session, and what waits for it.
//
// Thread safety: Submit() and Stop() from any thread. Invariants:
//   0. The thread runs from Start() to Stop(); before and afterwards nothing is submitted.
//   1. A job waits in the queue until a coroutine is there that executes it at once, so whatever
//      holds up those before it, the keeper ends it at its deadline. Nor does the thread block: a
//      tree that it has the last reference to is closed on another one.
//   2. There are as many runners as the client's options allow coroutines, and one more for the
//      keeper. Each runner takes one job: repairs, which are tasks like them, get their turn
//      between.
//   3. With a write it takes those that wait with it, of the same tree: none waits for others to
//      come. They end one by one, as each is done, and all of them by the earliest of their
//      deadlines: what had no effect by then and has time left waits again, in front.
class Worker {
 public:
  Worker(std::unique_ptr<Session> session, int runners_max, std::atomic<size_t>* accepted)
      : session_(std::move(session)),
        runners_max_(runners_max),
        accepted_(*accepted),
        keeper_(&scheduler()) {}
  ~Worker() { Stop(); }

  // ResourceExhausted: the system has no thread for it.
  absl::Status Start() {
    PANDO_ASSIGN_OR_RETURN(
        thread_, StartQuietThread("pando-executor", [this] {
          scheduler().Spawn([this] { Keep(); });
          scheduler().RunUntil([this] { return stopping_ && scheduler().idle(); });
        }));
    return absl::OkStatus();
  }
  // Once what was submitted has ended.
  void Stop() {
    if (!thread_.joinable()) return;
    stopping_ = true;
    keeper_.Unpark();
    thread_.join();
  }

  // Of an operation that is submitted now.
  int64_t DeadlineNs(int64_t timeout_ms) const {
    return NowNs() + ImplOf(*session_).TimeoutNs(timeout_ms);
  }

  void Submit(Job job) {
    bool new_runner, earlier;
    {
      std::lock_guard lock(mutex_);
      earlier = job.deadline_ns < keeper_until_ns_;
      if (earlier) keeper_until_ns_ = job.deadline_ns;  // one wake-up is enough
      const auto at = jobs_.insert(jobs_.end(), std::move(job));
      at->expiry = expiries_.emplace(at->deadline_ns, at);
      new_runner = runners_ < runners_max_;
      runners_ += new_runner;
    }
    if (new_runner) {
      const bool posted = scheduler().Post([this] { RunOne(); });
      PANDO_CHECK(posted) << "an operation was submitted to an executor that is being destroyed";
    }
    if (earlier) keeper_.Unpark();
  }

 private:
  Scheduler& scheduler() { return ImplOf(*session_).scheduler(); }
  int64_t NowNs() const { return ImplOf(*session_).context().NowNs(); }

  void End(Job& job, OperationResult result) {
    NoteEnded(&accepted_);  // before: its callback may submit another one in its place
    const auto thrown = CallContained([&] { job.done(std::move(result)); });
    if (!thrown.has_value()) return;
    PANDO_LOG_LIMITED(thrown_log_, ERROR)
        << "the callback of an operation threw; the operation had ended, and the executor goes "
           "on: "
        << *thrown;
  }

  // Takes the job out of the queue.
  void TakeLocked(std::list<Job>::iterator job, std::list<Job>* to) {
    expiries_.erase(job->expiry);
    to->splice(to->end(), jobs_, job);
  }

  // The next job, and if that is a write those that go with it.
  void TakeBatchLocked(std::list<Job>* to) {
    TakeLocked(jobs_.begin(), to);
    const Job& first = to->front();
    if (!first.is_write()) return;
    const int64_t apart_max_ns = (first.deadline_ns - NowNs()) / kTimePart;
    auto next = jobs_.begin();
    for (size_t looked = 0; looked < kLookMax && next != jobs_.end(); ++looked) {
      if (to->size() == kBatchMax) return;
      const auto job = next++;
      const int64_t apart_ns = std::abs(job->deadline_ns - first.deadline_ns);
      if (job->tree == first.tree && job->is_write() && apart_ns <= apart_max_ns) {
        TakeLocked(job, to);
      }
    }
  }

  // Waits again, before all others.
  void PutBack(std::list<Job> jobs) {
    bool earlier = false;
    {
      std::lock_guard lock(mutex_);
      for (auto job = jobs.begin(); job != jobs.end(); ++job) {
        job->expiry = expiries_.emplace(job->deadline_ns, job);
        earlier = earlier || job->deadline_ns < keeper_until_ns_;
      }
      jobs_.splice(jobs_.begin(), jobs);
    }
    if (earlier) keeper_.Unpark();
  }

  // A runner: executes the next job, and leaves those behind it to another runner.
  void RunOne() {
    std::list<Job> taken;
    {
      std::lock_guard lock(mutex_);
      if (!jobs_.empty()) TakeBatchLocked(&taken);
    }
    if (taken.size() > 1) {
      RunBatch(std::move(taken));
    } else if (!taken.empty()) {
      Job& job = taken.front();
      const bool late = NowNs() >= job.deadline_ns;
      End(job, late ? Expired() : Perform(ImplOf(*session_), job));
    }
    {
      std::lock_guard lock(mutex_);
      if (jobs_.empty()) {
        --runners_;
        if (stopping_) keeper_.Unpark();
        return;
      }
    }
    scheduler().Spawn([this] { RunOne(); });
  }

  void RunBatch(std::list<Job> jobs) {
    struct Entry {
      std::list<Job>::iterator job;
      WriteOperation operation;
      OperationResult result;
    };
    SessionImpl& session = ImplOf(*session_);
    // Its own: there is still something to do for the tree when all of the writes have ended, and
    // their caller may close it by then.
    std::shared_ptr<TreeImpl> impl = SharedImplOf(*jobs.front().tree);
    std::unique_ptr<Tree> own = ImplAccess::Make<Tree>(impl);
    const Tree& tree = *own;
    int64_t until_ns = kNeverNs;
    std::vector<Entry> batch;
    batch.reserve(jobs.size());
    std::vector<RunWrite> writes;
    for (auto next = jobs.begin(); next != jobs.end();) {
      const auto job = next++;
      OperationResult refusal = NowNs() >= job->deadline_ns ? Expired() : OperationResult();
      WriteOperation operation = job->AsWrite();
      if (refusal.status.ok()) {
        refusal.status = session.Prepare(tree, job->operation.function, &operation);
      }
      if (!refusal.status.ok()) {
        End(*job, std::move(refusal));
        jobs.erase(job);
        continue;
      }
      until_ns = std::min(until_ns, job->deadline_ns);
      Entry& entry = batch.emplace_back(Entry{job, operation, {}});
      writes.push_back({&entry.operation, &entry.result.status, &entry.result.value});
    }
    ExecuteWrites(session, tree, writes, {}, until_ns, [&](size_t i) {
      const auto job = batch[i].job;
      const int64_t now_ns = NowNs();
      const bool cut_short = absl::IsDeadlineExceeded(batch[i].result.status) &&
                             now_ns >= until_ns && now_ns < job->deadline_ns;
      if (cut_short) return;
      End(*job, std::move(batch[i].result));
      jobs.erase(job);
    });
    if (!jobs.empty()) PutBack(std::move(jobs));
    own.reset();
    session.Keep(std::move(impl));
  }

  static OperationResult Expired() {
    return {.status = absl::DeadlineExceededError(
                "deadline passed while the operation waited in the executor's queue: it had no "
                "effect")};
  }

  // The keeper: ends what has waited until its deadline.
  void Keep() {
    while (true) {
      std::list<Job> expired;
      int64_t until_ns;
      bool over;
      {
        std::lock_guard lock(mutex_);
        const int64_t now_ns = NowNs();
        while (!expiries_.empty() && expiries_.begin()->first <= now_ns) {
          TakeLocked(expiries_.begin()->second, &expired);
        }
        until_ns = expiries_.empty() ? kNeverNs : expiries_.begin()->first;
        keeper_until_ns_ = until_ns;
        over = stopping_ && jobs_.empty() && runners_ == 0;  // a batch may put some back
      }
      if (!expired.empty()) {
        const OperationResult result = Expired();  // made once: they may be many
        for (Job& job : expired) End(job, result);
      }
      if (over) return;
      keeper_.ParkUntil(until_ns);
    }
  }

  const std::unique_ptr<Session> session_;
  const int runners_max_;
  std::atomic<size_t>& accepted_;  // of the executor
  RateLimitedLog thrown_log_;
  Parking keeper_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::list<Job> jobs_;  // in the order they came
  std::multimap<int64_t, std::list<Job>::iterator> expiries_;
  int runners_ = 0;                     // tasks that run or have been posted
  int64_t keeper_until_ns_ = kNeverNs;  // when the keeper looks next
  std::thread thread_;
};

// Submit() goes to the workers in turn.
class ThreadedExecutor : public Executor {
 public:
  ThreadedExecutor(Client* client, const Options& options)
      : client_(*client), queue_max_(std::min(options.queue_max, kClosed / 2)) {}
  // Callbacks may submit more, until they are refused: no worker goes before all have ended.
  ~ThreadedExecutor() override {
    for (size_t accepted = accepted_.fetch_add(kClosed) + kClosed; accepted != kClosed;
         accepted = accepted_.load()) {
      accepted_.wait(accepted);
    }
    for (const auto& worker : workers_) worker->Stop();
  }

  // Before all else; its workers' sessions get it.
  absl::StatusOr<TreeCloser*> StartCloser() {
    PANDO_RETURN_IF_ERROR(closer_.Start());
    return &closer_;
  }
  absl::Status AddWorker(std::unique_ptr<Session> session) {
    workers_.push_back(std::make_unique<Worker>(
        std::move(session), ImplOf(client_).options().coroutines_per_session, &accepted_));
    return workers_.back()->Start();
  }

  absl::Status Submit(const Tree& tree, Operation operation,
                      std::function<void(OperationResult)> done) override {
    PANDO_RETURN_IF_ERROR(CheckTimeout(operation.timeout_ms));
    if (const size_t accepted = accepted_.fetch_add(1, std::memory_order_relaxed);
        accepted >= queue_max_) {
      NoteEnded(&accepted_);
      if (accepted >= kClosed) {
        return absl::FailedPreconditionError("the executor is being destroyed");
      }
      return absl::ResourceExhaustedError(
          absl::StrCat(queue_max_, " operations are waiting in the executor"));
    }
    const size_t turn = next_.fetch_add(1, std::memory_order_relaxed) % workers_.size();
    Worker& worker = *workers_[turn];
    const int64_t deadline_ns = worker.DeadlineNs(operation.timeout_ms);
    worker.Submit({&tree, std::move(operation), std::move(done), deadline_ns, {}});
    return absl::OkStatus();
  }

 private:
  Client& client_;
  const size_t queue_max_;
  std::atomic<size_t> accepted_{0};
  std::atomic<size_t> next_{0};
  TreeCloser closer_;  // ends after the workers
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(Client* client, const Options& options) {
  if (options.workers < 1 || options.workers > 1024) {
    return absl::InvalidArgumentError("an executor has 1..1024 workers");
  }
  auto executor = std::make_unique<ThreadedExecutor>(client, options);
  PANDO_ASSIGN_OR_RETURN(TreeCloser* const closer, executor->StartCloser());
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < options.workers; ++i) {
    // One coroutine more, for the keeper.
    PANDO_ASSIGN_OR_RETURN(std::unique_ptr<SessionContext> context,
                           ImplOf(*client).NewSessionContext(/*more_coroutines=*/1));
    sessions.push_back(ImplAccess::Make<Session>(
        std::make_unique<SessionImpl>(&ImplOf(*client), std::move(context), closer)));
  }
  for (auto& session : sessions) PANDO_RETURN_IF_ERROR(executor->AddWorker(std::move(session)));
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
