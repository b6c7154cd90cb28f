// Coroutine scheduler of one session: many operations in flight on one thread.
//
// A task runs in a pooled coroutine (Boost.Coroutine2) and suspends in Await, Call, SleepUntil,
// Yield and Parking::Park. The scheduler is driven from outside coroutines by RunUntil (a thread)
// or by the endpoint's runner (the simulator).
//
// Thread safety: one thread, except Post() and Parking::Unpark().
// Invariants:
//   1. A coroutine is never destroyed unfinished: the destructor CHECKs that none is active.
//   2. A task is resumed only from RunReady(), never from inside Post() or another task.
//   3. Ready tasks run in FIFO order; with the same inputs the order is the same (the simulator
//      relies on it).
//   4. The number of coroutines is bounded by Options::coroutines_max, and by what there is room
//      for in the process; further tasks wait in a queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/fabric.h"

namespace pando {

class Scheduler;
namespace sched {
class StackRoom;
struct Worker;
}  // namespace sched

// A place where one coroutine waits until another thread, coroutine or timer wakes it.
// Park() is for the owning scheduler's coroutines; Unpark() for any thread, any number of times.
// An Unpark() before Park() makes that Park() return at once. Must outlive every Unpark() in
// progress: share it (shared_ptr) with callers that may be late.
class Parking {
 public:
  explicit Parking(Scheduler* scheduler);
  ~Parking();
  Parking(const Parking&) = delete;
  Parking& operator=(const Parking&) = delete;

  // Suspends until Unpark() or the time. True: unparked. False: time passed.
  bool ParkUntil(int64_t deadline_ns);
  void Unpark();

  struct State;  // internal

 private:
  std::shared_ptr<State> state_;
};

class Scheduler {
 public:
  struct Options {
    int coroutines_max = 64;
    size_t stack_bytes = 128 * 1024;
    // So many are needed, as its tasks may wait for one another. Of the others there are fewer once
    // all sessions of the process have many together.
    int coroutines_needed = std::numeric_limits<int>::max();
    sched::StackRoom* stack_room = nullptr;  // nullptr: the process's; outlives the scheduler
  };

  Scheduler(Endpoint* endpoint, Options options);
  explicit Scheduler(Endpoint* endpoint) : Scheduler(endpoint, Options{}) {}
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Makes the first `count` coroutines now, which are needed. False: there is no memory for their
  // stacks, or no room for them in this process. Where there is none for the first one the process
  // ends when a task comes; for want of another one tasks wait for one another.
  bool Prepare(int count = 1);
  // Queues a task. Own thread (inside or outside coroutines). Tasks must not throw.
  void Spawn(std::function<void()> task);
  // Queues a task from any thread and wakes the session. On a scheduler that is shutting down:
  // dropped, false.
  bool Post(std::function<void()> task);

  // --- Inside a coroutine of this scheduler only (CHECKed).
  // Posts and waits. The round trips it counts for the operation: the most of any one chain.
  void Await(Chain* chain);
  void AwaitAll(std::span<Chain* const> chains);
  // Two-sided call. Status of the transport; the reply still has to be decoded.
  absl::StatusOr<std::string> Call(ServerId server, std::string request, int64_t deadline_ns);
  void Yield();
  void SleepUntil(int64_t ns);

  // The scheduler whose coroutine is running on this thread; nullptr outside coroutines.
  static Scheduler* Current();

  // --- Outside coroutines.
  // Runs what is ready (including due timers and the mailbox) once through; true if anything ran or
  // was in the mailbox.
  bool RunReady();
  // Drives this session until `done()`; sleeps when there is nothing to do.
  void RunUntil(const std::function<bool()>& done);
  // Drives until no task is active or queued.
  void Drain() {
    RunUntil([this] { return idle(); });
  }

  bool idle() const;            // nothing active, queued or posted
  size_t active_tasks() const;  // started and unfinished
  Endpoint& endpoint() { return *endpoint_; }
  int64_t NowNs() const { return endpoint_->clock().NowNs(); }

 private:
  friend class Parking;
  struct Impl;
  void Post(Chain* chain, sched::Worker* worker);

  Endpoint* const endpoint_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
