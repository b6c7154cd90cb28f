#include "common/base/system_random.h"

#include <sys/random.h>

#include "common/base/clock.h"
#include "common/base/random.h"

namespace pando {

uint64_t SystemRandom() {
  uint64_t value = 0;
  if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(value))) {
    value = static_cast<uint64_t>(RealClock().NowNs());
    value = SplitMix64(&value);
  }
  return value;
}

}  // namespace pando
