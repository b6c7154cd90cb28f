#include "common/base/clock.h"

#include <time.h>

namespace pando {
namespace {

class MonotonicClock final : public Clock {
 public:
  int64_t NowNs() const override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * kSecondNs + now.tv_nsec;
  }
};

}  // namespace

const Clock& RealClock() {
  static const MonotonicClock clock;
  return clock;
}

}  // namespace pando
