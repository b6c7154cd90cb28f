// Cheap time for intervals: reading it costs a third of what a look at the clock does. Where the
// processor has a counter that runs at one rate for ever (x86-64 with an invariant TSC) ticks are
// its cycles, elsewhere nanoseconds.
//
// For the length of things on one machine. Not for points in time that processes compare
// (histories): the rate is measured and is off by some millionths. Thread-safe.
#pragma once

#include <cstdint>

#include "common/base/clock.h"

namespace pando {

class Ticks {
 public:
  static int64_t Now() {
#ifdef __x86_64__
    if (rate().invariant) [[likely]]
      return static_cast<int64_t>(__builtin_ia32_rdtsc());
#endif
    return RealClock().NowNs();
  }
  static int64_t ToNs(int64_t ticks) {
    return static_cast<int64_t>(static_cast<double>(ticks) * rate().ns_per_tick);
  }

 private:
  struct Rate {
    bool invariant = false;
    double ns_per_tick = 1;
  };
  // The first use measures for some milliseconds.
  static const Rate& rate() {
    static const Rate measured = Measure();
    return measured;
  }
  static Rate Measure();
};

}  // namespace pando
