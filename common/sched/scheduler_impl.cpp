#include "common/sched/scheduler_impl.h"

#include <alloca.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "common/base/check.h"
#include "common/base/rate_limited_log.h"
#include "common/sched/stack_room.h"

namespace pando {
namespace sched {
namespace {

thread_local Worker* current_worker = nullptr;

}  // namespace

[[gnu::noinline]] Worker* CurrentWorker() { return current_worker; }
[[gnu::noinline]] Worker* SetCurrentWorker(Worker* worker) {
  return std::exchange(current_worker, worker);
}

Worker* Worker::FromTimer(Timer* timer) {
  // Worker is not standard-layout, so offsetof is conditionally supported; GCC and Clang define it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  return reinterpret_cast<Worker*>(reinterpret_cast<char*>(timer) - offsetof(Worker, timer));
#pragma GCC diagnostic pop
}

}  // namespace sched

using sched::Coroutine;
using sched::Inbox;
using sched::Letter;
using sched::SetCurrentWorker;
using sched::Timer;
using sched::Worker;

namespace {

constexpr size_t kStackColours = 8;
constexpr size_t kStackColourBytes = 512;

// Of all sessions: they have too many together.
RateLimitedLog& FewCoroutinesLog() {
  static auto* const log = new RateLimitedLog(1);
  return *log;
}

}  // namespace

Scheduler::Impl::Impl(Scheduler* owner, Options scheduler_options)
    : scheduler(owner),
      endpoint(&owner->endpoint()),
      options(scheduler_options),
      room(options.stack_room != nullptr ? *options.stack_room : sched::StackRoom::OfProcess()),
      inbox(std::make_shared<Inbox>(endpoint)) {
  PANDO_CHECK_GT(options.coroutines_max, 0);
}

Scheduler::Impl::~Impl() {
  const auto stacks = static_cast<int64_t>(workers.size());
  workers.clear();
  room.Give(stacks);
}

Worker* Scheduler::Impl::TakeWorker() {
  if (idle_head != nullptr) return std::exchange(idle_head, idle_head->next);
  if (workers.size() >= static_cast<size_t>(options.coroutines_max)) return nullptr;
  Worker* const worker = NewWorker();
  if (worker != nullptr) return worker;
  PANDO_CHECK(!workers.empty()) << "no memory for a coroutine stack of " << options.stack_bytes
                                << " bytes, or no room for it in this process";
  PANDO_LOG_LIMITED(FewCoroutinesLog(), WARNING)
      << "the sessions of this process have as many coroutines as its mappings (vm.max_map_count) "
         "or its memory allow: this one goes on with "
      << workers.size() << ", and has fewer operations in flight";
  return nullptr;
}

Worker* Scheduler::Impl::NewWorker() {
  // Those that have come go on with what they have, until others end.
  if (!room.TryTake(workers.size() < static_cast<size_t>(options.coroutines_needed))) {
    return nullptr;
  }
  auto worker = std::make_unique<Worker>(scheduler);
  worker->coroutine = Coroutine::Create(options.stack_bytes, &RunWorker, worker.get());
  if (worker->coroutine == nullptr) {
    room.Give(1);
    // Go on with what there is.
    if (!workers.empty()) options.coroutines_max = static_cast<int>(workers.size());
    return nullptr;
  }
  worker->stack_offset = workers.size() % kStackColours * kStackColourBytes;
  workers.push_back(std::move(worker));
  return workers.back().get();
}

void Scheduler::Impl::Accept(std::function<void()> task) {
  Worker* const worker = TakeWorker();
  if (worker == nullptr) {
    queued.push_back(std::move(task));
    return;
  }
  if (!queued.empty()) {  // there is room for one more since
    queued.push_back(std::move(task));
    task = std::move(queued.front());
    queued.pop_front();
  }
  worker->task = std::move(task);
  ++assigned;
  MakeReady(worker);
}

void Scheduler::Impl::RunWorker(void* argument) noexcept {
  auto* const worker = static_cast<Worker*>(argument);
  // Stacks are mapped alike, so without this the same frames of all coroutines would compete for
  // the same sets of the first-level cache.
  void* const unused = alloca(worker->stack_offset + 1);
  asm volatile("" : : "r"(unused) : "memory");
  Impl* const impl = worker->scheduler->impl_.get();
  while (!impl->stopping) {
    ++impl->active;
    worker->task();
    worker->task = nullptr;  // what it holds goes before the task counts as finished
    --impl->active;
    --impl->assigned;
    if (!impl->queued.empty()) {
      worker->task = std::move(impl->queued.front());
      impl->queued.pop_front();
      ++impl->assigned;
      impl->Suspend(worker, Worker::State::kReady);
    } else {
      worker->next = std::exchange(impl->idle_head, worker);
      impl->Suspend(worker, Worker::State::kIdle);
    }
  }
}

void Scheduler::Impl::OnePendingDone(Worker* worker) {
  if (--worker->pending == 0 && worker->state == Worker::State::kWaiting) MakeReady(worker);
}

void Scheduler::Impl::Deliver(Parking::State* parking) {
  // A letter may be older than the present wait: then the phase is not kUnparked, or nobody waits.
  if (parking->waiter == nullptr ||
      parking->phase.load(std::memory_order_acquire) != Parking::State::kUnparked) {
    return;
  }
  Worker* const worker = std::exchange(parking->waiter, nullptr);
  timers.Disarm(&worker->timer);
  if (worker->state == Worker::State::kWaiting) MakeReady(worker);  // else its time came first
}

bool Scheduler::Impl::ReadMail() {
  inbox->Take(&letters);
  const bool any = !letters.empty();
  for (Letter& letter : letters) {
    if (letter.parking != nullptr) {
      Deliver(letter.parking.get());
    } else {
      Accept(std::move(letter.task));
    }
  }
  letters.clear();
  return any;
}

void Scheduler::Impl::FireTimers() {
  if (timers.empty()) return;
  const int64_t now_ns = scheduler->NowNs();
  while (Timer* const timer = timers.PopDue(now_ns)) {
    Worker* const worker = Worker::FromTimer(timer);
    // A worker that waits for a call has a timer only so that the endpoint is polled at its
    // deadline.
    if (worker->pending == 0 && worker->state == Worker::State::kWaiting) MakeReady(worker);
  }
}

void Scheduler::Impl::RequestRunner() {
  int64_t wanted_ns = timers.next_due_ns();
  if (!in_run_until && (ready_count > 0 || !inbox->empty())) wanted_ns = scheduler->NowNs();
  if (wanted_ns == kNeverNs) return;
  const bool asked = runner_asked_ns <= wanted_ns && runner_asked_ns > scheduler->NowNs();
  if (asked) return;
  runner_asked_ns = wanted_ns;
  endpoint->WakeAt(wanted_ns);
}

}  // namespace pando
