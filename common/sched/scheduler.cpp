#include "common/sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/sched/scheduler_impl.h"

namespace pando {

using sched::CurrentWorker;
using sched::Inbox;
using sched::Worker;
namespace {

// The worker that calls; it has to be one of `scheduler`.
Worker* Caller(const Scheduler* scheduler) {
  Worker* const worker = CurrentWorker();
  PANDO_CHECK(worker != nullptr && worker->scheduler == scheduler)
      << "called outside of a coroutine of this scheduler";
  return worker;
}

}  // namespace

Scheduler::Scheduler(Endpoint* endpoint, Options options)
    : endpoint_(endpoint), impl_(std::make_unique<Impl>(this, options)) {
  endpoint_->set_runner([this] { RunReady(); });
}

Scheduler::~Scheduler() {
  PANDO_CHECK(Current() != this) << "destroyed inside one of its coroutines";
  impl_->inbox->RefuseTasks();
  PANDO_CHECK_EQ(impl_->active, 0u) << "tasks are unfinished: Drain() first";
  Drain();  // what was accepted but not started
  impl_->inbox->Close();
  impl_->stopping = true;
  for (const auto& worker : impl_->workers) worker->coroutine->Resume();
  endpoint_->set_runner(nullptr);
}

Scheduler* Scheduler::Current() {
  Worker* const worker = CurrentWorker();
  return worker == nullptr ? nullptr : worker->scheduler;
}

bool Scheduler::Prepare(int count) {
  while (impl_->workers.size() < static_cast<size_t>(count)) {
    Worker* const worker = impl_->NewWorker();
    if (worker == nullptr) return false;
    worker->next = std::exchange(impl_->idle_head, worker);
  }
  return true;
}

void Scheduler::Spawn(std::function<void()> task) {
  impl_->Accept(std::move(task));
  if (!impl_->in_run_ready) impl_->RequestRunner();
}

bool Scheduler::Post(std::function<void()> task) {
  return impl_->inbox->Send({std::move(task), nullptr});
}

void Scheduler::Post(Chain* chain, Worker* worker) {
  chain->set_on_done(
      [](Chain*, void* context) {
        auto* const waiting = static_cast<Worker*>(context);
        waiting->scheduler->impl_->OnePendingDone(waiting);
      },
      worker);
  endpoint_->Post(chain);
}

void Scheduler::Await(Chain* chain) {
  Worker* const worker = Caller(this);
  worker->pending = 1;
  endpoint_->set_overlap(impl_->ready_count > 0);
  Post(chain, worker);
  impl_->WaitPending(worker, 1);
}

void Scheduler::AwaitAll(std::span<Chain* const> chains) {
  Worker* const worker = Caller(this);
  worker->pending = static_cast<int>(chains.size());
  endpoint_->set_overlap(impl_->ready_count > 0);
  for (Chain* const chain : chains) Post(chain, worker);
  impl_->WaitPending(worker, static_cast<int>(chains.size()));
}

absl::StatusOr<std::string> Scheduler::Call(ServerId server, std::string request,
                                            int64_t deadline_ns) {
  Worker* const worker = Caller(this);
  PendingCall call;
  call.server = server;
  call.request = std::move(request);
  call.deadline_ns = deadline_ns;
  call.on_done = [](PendingCall*, void* context) {
    auto* const waiting = static_cast<Worker*>(context);
    waiting->scheduler->impl_->OnePendingDone(waiting);
  };
  call.context = worker;
  worker->pending = 1;
  endpoint_->Call(&call);
  // The endpoint keeps the deadline; the timer sees to it that it is polled then.
  if (worker->pending != 0 && deadline_ns != kNeverNs)
    impl_->timers.Arm(&worker->timer, deadline_ns);
  impl_->WaitPending(worker, 1);
  impl_->timers.Disarm(&worker->timer);
  if (!call.status.ok()) return std::move(call.status);
  return std::move(call.reply);
}

void Scheduler::Yield() { impl_->Suspend(Caller(this), Worker::State::kReady); }

void Scheduler::SleepUntil(int64_t ns) {
  Worker* const worker = Caller(this);
  impl_->timers.Arm(&worker->timer, ns);
  impl_->Suspend(worker, Worker::State::kWaiting);
}

bool Scheduler::RunReady() {
  if (impl_->in_run_ready) return false;  // an endpoint's runner, called from inside a task
  impl_->in_run_ready = true;
  const bool had_mail = impl_->ReadMail();
  impl_->FireTimers();
  const size_t count = impl_->ready_count;
  for (size_t i = 0; i < count; ++i) {
    Worker* const worker = impl_->ready_head;
    impl_->ready_head = worker->next;
    if (impl_->ready_head == nullptr) impl_->ready_tail = nullptr;
    --impl_->ready_count;
    impl_->Resume(worker);
  }
  impl_->in_run_ready = false;
  impl_->RequestRunner();
  return count > 0 || had_mail;  // mail that nobody waits for any more is why idle() was false
}

void Scheduler::RunUntil(const std::function<bool()>& done) {
  PANDO_CHECK(!impl_->in_run_ready) << "RunUntil() inside a task of the same scheduler";
  Inbox& inbox = *impl_->inbox;
  const bool was_awake = inbox.SetAwake(true);
  const bool was_in_run_until = std::exchange(impl_->in_run_until, true);
  while (!done()) {
    const bool ran = RunReady();
    const bool completed = endpoint_->Poll() > 0;
    if (ran || completed || impl_->ready_count > 0) continue;
    if (!inbox.FallAsleep()) continue;
    impl_->in_run_until = false;
    endpoint_->Wait(impl_->timers.next_due_ns());
    impl_->in_run_until = true;
    inbox.SetAwake(true);
  }
  impl_->in_run_until = was_in_run_until;
  inbox.SetAwake(was_awake);
  if (!was_in_run_until) impl_->RequestRunner();
}

bool Scheduler::idle() const { return impl_->assigned == 0 && impl_->inbox->empty(); }

size_t Scheduler::active_tasks() const { return impl_->active; }

}  // namespace pando
