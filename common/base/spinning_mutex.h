// A mutex for steps of less than a microsecond: whoever finds it locked looks again for some
// microseconds before it sleeps. To be put to sleep, and to wake whoever sleeps, costs ten times
// such a step.
//
// Unlocking is a plain store. An exchange, as a std::mutex needs it, would wait until all that was
// written before has come to this core's cache, and mostly that is in the cache of the core that
// had the mutex before. The price: whoever goes to sleep just then may miss its wake-up, so nobody
// sleeps for long.
//
// Thread safety: what is written before unlock() is seen after the next lock(). Not recursive, and
// not fair.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace pando {

class SpinningMutex {
 public:
  SpinningMutex() = default;
  SpinningMutex(const SpinningMutex&) = delete;
  SpinningMutex& operator=(const SpinningMutex&) = delete;

  void lock() {
    if (!try_lock()) [[unlikely]]
      LockLater();
  }
  bool try_lock() {
    uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kLocked, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void unlock() {
    state_.store(kFree, std::memory_order_release);
    if (sleepers_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      WakeOne();
  }

 private:
  static constexpr uint32_t kFree = 0, kLocked = 1;

  void LockLater();
  void WakeOne();

  std::atomic<uint32_t> state_{kFree}, sleepers_{0};
};

}  // namespace pando
