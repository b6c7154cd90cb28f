// The inside of a Scheduler. Internal to common/sched.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "common/sched/inbox.h"
#include "common/sched/scheduler.h"
#include "common/sched/timer_heap.h"
#include "common/sched/worker.h"

namespace pando {

struct Scheduler::Impl {
  // A task that never has to wait gives way after this many chains.
  static constexpr int kImmediateMax = 64;

  Impl(Scheduler* owner, Options scheduler_options);
  ~Impl();

  // nullptr: there is no memory for it, or no room in the process.
  sched::Worker* NewWorker();
  // A fresh or idle worker; nullptr if all are busy.
  sched::Worker* TakeWorker();
  // Gives `task` to a worker or queues it.
  void Accept(std::function<void()> task);
  void MakeReady(sched::Worker* worker);
  void Resume(sched::Worker* worker);
  // Inside the worker's coroutine.
  void Suspend(sched::Worker* worker, sched::Worker::State state);
  // The rest of Await and Call: suspends until nothing is pending.
  void WaitPending(sched::Worker* worker, int posted);
  void OnePendingDone(sched::Worker* worker);
  // Wakes the coroutine parked there, if it still is.
  void Deliver(Parking::State* parking);

  // Whether there was any.
  bool ReadMail();
  void FireTimers();
  // Event-driven endpoints: asks to be called again when there is something left to do.
  void RequestRunner();
  // Body of a pooled coroutine: task after task.
  static void RunWorker(void* worker) noexcept;

  Scheduler* const scheduler;
  Endpoint* const endpoint;
  Options options;
  sched::StackRoom& room;
  std::shared_ptr<sched::Inbox> inbox;
  std::vector<std::unique_ptr<sched::Worker>> workers;
  sched::Worker* idle_head = nullptr;  // last in, first out: its stack is warm
  sched::Worker* ready_head = nullptr;
  sched::Worker* ready_tail = nullptr;
  size_t ready_count = 0;
  std::deque<std::function<void()>> queued;  // no worker was free
  std::vector<sched::Letter> letters;        // scratch of ReadMail()
  sched::TimerHeap timers;
  size_t assigned = 0;  // workers that have a task
  size_t active = 0;    // and have started it
  int64_t runner_asked_ns = kNeverNs;
  bool in_run_ready = false;
  bool in_run_until = false;  // and not in Endpoint::Wait()
  bool stopping = false;
};

// Inline: after a switch the processor mispredicts the return of every frame between the suspension
// and the operation's caller (README.md).

inline void Scheduler::Impl::MakeReady(sched::Worker* worker) {
  worker->state = sched::Worker::State::kReady;
  worker->next = nullptr;
  (ready_tail == nullptr ? ready_head : ready_tail->next) = worker;
  ready_tail = worker;
  ++ready_count;
}

inline void Scheduler::Impl::Resume(sched::Worker* worker) {
  worker->state = sched::Worker::State::kRunning;
  worker->immediate = 0;
  sched::Worker* const before = sched::SetCurrentWorker(worker);
  worker->coroutine->Resume();
  sched::SetCurrentWorker(before);
}

inline void Scheduler::Impl::Suspend(sched::Worker* worker, sched::Worker::State state) {
  if (state == sched::Worker::State::kReady) {
    MakeReady(worker);
  } else {
    worker->state = state;
  }
  worker->coroutine->Suspend();
}

inline void Scheduler::Impl::WaitPending(sched::Worker* worker, int posted) {
  if (worker->pending != 0) {
    Suspend(worker, sched::Worker::State::kWaiting);
  } else if ((worker->immediate += posted) >= kImmediateMax) {
    Suspend(worker, sched::Worker::State::kReady);
  }
}

}  // namespace pando
