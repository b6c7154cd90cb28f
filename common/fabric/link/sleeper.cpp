#include "common/fabric/link/sleeper.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <cerrno>

#include "common/base/clock.h"

namespace pando {
namespace {

// Sleeping costs some 50 us of the kernel's timer slack and wake-up; a shorter wait yields the
// processor instead.
constexpr int64_t kYieldBelowNs = 50'000;

}  // namespace

absl::Status Sleeper::Init() {
  event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return event_ ? absl::OkStatus() : absl::ErrnoToStatus(errno, "eventfd");
}

void Sleeper::Wake() {
  if (state_.exchange(kWoken, std::memory_order_acq_rel) != kAsleep) return;
  const uint64_t one = 1;
  // Can only fail where the counter is full, and then the sleeper wakes anyway.
  [[maybe_unused]] const ssize_t ignored = write(event_.get(), &one, sizeof(one));
}

void Sleeper::Sleep(int64_t deadline_ns, int events_fd) {
  while (state_.load(std::memory_order_acquire) != kWoken) {
    const int64_t left_ns = deadline_ns - RealClock().NowNs();
    if (left_ns <= 0) break;
    if (left_ns < kYieldBelowNs) {
      sched_yield();
      if (events_fd >= 0) break;  // the caller that has events looks for them itself
      continue;
    }
    int awake = kAwake;
    if (!state_.compare_exchange_strong(awake, kAsleep, std::memory_order_acq_rel)) break;
    const timespec timeout = {left_ns / kSecondNs, left_ns % kSecondNs};
    pollfd entries[] = {{event_.get(), POLLIN, 0}, {events_fd, POLLIN, 0}};
    ppoll(entries, 2, &timeout, nullptr);  // poll skips a negative descriptor
    uint64_t count;
    // Nothing to read where nobody woke; a wake-up that comes late makes the next sleep return
    // early.
    [[maybe_unused]] const ssize_t ignored = read(event_.get(), &count, sizeof(count));
    break;
  }
  TakeWake();
}

}  // namespace pando
