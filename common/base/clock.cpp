#include "common/base/clock.h"

#include <time.h>

namespace pando {
namespace {

int64_t TimeOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

template <clockid_t kClock>
class SystemClock final : public Clock {
 public:
  int64_t NowNs() const override { return TimeOf(kClock); }
};

}  // namespace

const Clock& RealClock() {
  static const SystemClock<CLOCK_MONOTONIC> clock;
  return clock;
}

const Clock& BoottimeClock() {
  static const SystemClock<CLOCK_BOOTTIME> clock;
  return clock;
}

int64_t ThreadCpuNs() { return TimeOf(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace pando
