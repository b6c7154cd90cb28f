#include "common/fabric/shm/doorbell.h"

#include <sched.h>
#include <sys/eventfd.h>

#include <cerrno>

#include "common/base/clock.h"
#include "common/fabric/shm/unix_socket.h"

namespace pando {

absl::Status Doorbell::Init() {
  event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return event_ ? absl::OkStatus() : absl::ErrnoToStatus(errno, "eventfd");
}

void Doorbell::Ring() {
  if (state_.exchange(kRung, std::memory_order_acq_rel) != kAsleep) return;
  const uint64_t one = 1;
  // Can only fail where the counter is full, and then the sleeper wakes anyway.
  [[maybe_unused]] const ssize_t ignored = write(event_.get(), &one, sizeof(one));
}

void Doorbell::WaitUntil(int64_t deadline_ns) {
  while (state_.load(std::memory_order_acquire) != kRung) {
    const int64_t left_ns = deadline_ns - RealClock().NowNs();
    if (left_ns <= 0) return;
    if (left_ns < kYieldBelowNs) {
      sched_yield();
      continue;
    }
    int awake = kAwake;
    if (!state_.compare_exchange_strong(awake, kAsleep, std::memory_order_acq_rel)) break;
    WaitReadable(event_.get(), deadline_ns);
    uint64_t count;
    // Nothing to read where the time passed; a ring that comes late makes the next wait return
    // early.
    [[maybe_unused]] const ssize_t ignored = read(event_.get(), &count, sizeof(count));
    break;
  }
  state_.exchange(kAwake, std::memory_order_acq_rel);
}

}  // namespace pando
