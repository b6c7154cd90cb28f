// A mutex that is waited for up to a deadline. (ThreadSanitizer does not see the waits of
// std::timed_mutex on the clock that deadlines are of.)
//
// Thread safety: what is written before unlock() is seen after the next lock. Not recursive.
// Invariant: those that wait get it in the order in which they came, and before who comes later;
// else a thread that makes one call after the other keeps others from theirs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando {

class DeadlineMutex {
 public:
  DeadlineMutex() = default;
  DeadlineMutex(const DeadlineMutex&) = delete;
  DeadlineMutex& operator=(const DeadlineMutex&) = delete;

  void lock() {
    std::unique_lock lock(mutex_);
    if (!std::exchange(held_, true)) return;
    Waiter self;
    waiters_.push_back(&self);
    self.turn.wait(lock, [&self] { return self.has_it; });
  }
  // CLOCK_MONOTONIC nanoseconds. DeadlineExceeded: somebody else has it until then. One that is
  // free is taken at any time.
  absl::StatusOr<std::unique_lock<DeadlineMutex>> LockBy(int64_t deadline_ns) {
    const std::chrono::steady_clock::time_point deadline{std::chrono::nanoseconds(deadline_ns)};
    std::unique_lock lock(mutex_);
    if (std::exchange(held_, true)) {
      Waiter self;
      waiters_.push_back(&self);
      if (!self.turn.wait_until(lock, deadline, [&self] { return self.has_it; })) {
        std::erase(waiters_, &self);
        return absl::DeadlineExceededError(
            "deadline passed while other calls of this client were under way: is a memory server "
            "stuck or stopped?");
      }
    }
    lock.unlock();
    return std::unique_lock(*this, std::adopt_lock);
  }
  void unlock() {
    std::lock_guard lock(mutex_);
    held_ = !waiters_.empty();
    if (!held_) return;
    Waiter& next = *waiters_.front();
    waiters_.pop_front();
    next.has_it = true;
    next.turn.notify_one();  // under the mutex: it is gone as soon as it may go on
  }

 private:
  struct Waiter {
    std::condition_variable turn;
    bool has_it = false;
  };
  std::mutex mutex_;
  bool held_ = false;
  std::deque<Waiter*> waiters_;  // none while it is free
};

}  // namespace pando
