#include "common/base/spinning_mutex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace pando {
namespace {

// Some ten microseconds of looks before a sleep; the first ones follow each other closely.
constexpr int kLooks = 80, kPausesMax = 4;
// A wake-up that is missed costs no more than that.
constexpr timespec kNap = {.tv_sec = 0, .tv_nsec = 100'000};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

long Futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

}  // namespace

void SpinningMutex::LockLater() {
  for (int look = 1; look <= kLooks; ++look) {
    for (int pause = std::min(look / 2 + 1, kPausesMax); pause > 0; --pause) Pause();
    // A look takes the line away from nobody who writes to it, an attempt does.
    if (state_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (!try_lock()) Futex(&state_, FUTEX_WAIT_PRIVATE, kLocked, &kNap);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void SpinningMutex::WakeOne() { Futex(&state_, FUTEX_WAKE_PRIVATE, 1, nullptr); }

}  // namespace pando
