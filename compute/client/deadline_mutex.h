// A mutex that is waited for up to a deadline. (ThreadSanitizer does not see the waits of
// std::timed_mutex on the clock that deadlines are of.)
//
// Thread safety: what is written before unlock() is seen after the next lock. Not recursive, and
// not fair.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

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
    freed_.wait(lock, [this] { return !held_; });
    held_ = true;
  }
  // CLOCK_MONOTONIC nanoseconds. DeadlineExceeded: somebody else has it until then. One that is
  // free is taken at any time.
  absl::StatusOr<std::unique_lock<DeadlineMutex>> LockBy(int64_t deadline_ns) {
    const std::chrono::steady_clock::time_point deadline{std::chrono::nanoseconds(deadline_ns)};
    std::unique_lock lock(mutex_);
    if (!freed_.wait_until(lock, deadline, [this] { return !held_; })) {
      return absl::DeadlineExceededError(
          "deadline passed while other calls of this client were under way: is a memory server "
          "stuck or stopped?");
    }
    held_ = true;
    lock.unlock();
    return std::unique_lock(*this, std::adopt_lock);
  }
  void unlock() {
    std::lock_guard lock(mutex_);
    held_ = false;
    freed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  bool held_ = false;
};

}  // namespace pando
