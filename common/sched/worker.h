// A pooled coroutine of a scheduler and what it waits for. Internal to common/sched. Owned and used
// by one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/sched/coroutine.h"
#include "common/sched/inbox.h"
#include "common/sched/scheduler.h"
#include "common/sched/timer_heap.h"

namespace pando {
namespace sched {

struct Worker {
  enum class State : uint8_t { kIdle, kReady, kRunning, kWaiting };

  explicit Worker(Scheduler* owner) : scheduler(owner) {}

  Scheduler* const scheduler;
  std::unique_ptr<Coroutine> coroutine;
  std::function<void()> task;
  size_t stack_offset = 0;  // see RunWorker()
  State state = State::kIdle;
  int pending = 0;    // chains and calls it waits for
  int immediate = 0;  // chains done at once since it last suspended
  Timer timer;
  // Links of the ready queue and of the idle pool; a worker is in one of them at most.
  Worker* next = nullptr;

  static Worker* FromTimer(Timer* timer);
};

// The worker whose coroutine runs on this thread. Out of line: the address of a thread-local must
// not be kept across a switch.
Worker* CurrentWorker();
// Returns the one before.
Worker* SetCurrentWorker(Worker* worker);

}  // namespace sched

struct Parking::State {
  enum Phase : int { kEmpty, kWaiting, kUnparked };

  Scheduler* scheduler = nullptr;
  std::shared_ptr<sched::Inbox> inbox;
  std::atomic<int> phase{kEmpty};
  sched::Worker* waiter = nullptr;  // owner's thread only
};

}  // namespace pando
