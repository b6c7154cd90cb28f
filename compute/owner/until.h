// Whether a moment of a clock is still ahead, for callers that ask often. Between two settings the
// processor's counter stands for the clock, as a look at that is a call of the kernel in some
// virtual machines (two a get were 14 of the 15 us of a hit in one); see TickWindow.
//
// Thread safety: IsAhead() is any thread's; Set() and Clear() are one thread's at a time.
// Invariant: what was over once is over until it is set anew, even if clock or counter are set
// back.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/clock.h"
#include "common/base/ticks.h"

namespace pando {

class Until {
 public:
  void Set(const Clock& clock, int64_t until_ns) {
    until_ns_.store(until_ns, std::memory_order_release);
    // A counter goes with the machine's clock, not with the simulator's.
    if (&clock == &BoottimeClock()) ticks_.Open(clock, until_ns);
  }
  void Clear() {
    until_ns_.store(kNever, std::memory_order_release);
    ticks_.Shut();
  }
  // Once it is over the clock is not asked again.
  bool IsAhead(const Clock& clock) {
    int64_t until_ns = until_ns_.load(std::memory_order_acquire);
    if (until_ns == kNever) return false;
    if (ticks_.IsOpen()) return true;
    if (clock.NowNs() < until_ns) return true;
    // If it is set anew at this moment, the clock is asked for it.
    if (until_ns_.compare_exchange_strong(until_ns, kNever)) ticks_.Shut();
    return false;
  }

 private:
  static constexpr int64_t kNever = INT64_MIN;
  std::atomic<int64_t> until_ns_{kNever};
  TickWindow ticks_;
};

}  // namespace pando
