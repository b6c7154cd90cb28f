#include "common/base/clock.h"

#include <time.h>

namespace pando {
namespace {

int64_t TimeOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

class MonotonicClock final : public Clock {
 public:
  int64_t NowNs() const override { return TimeOf(CLOCK_MONOTONIC); }
};

}  // namespace

const Clock& RealClock() {
  static const MonotonicClock clock;
  return clock;
}

int64_t ThreadCpuNs() { return TimeOf(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace pando
