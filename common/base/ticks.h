// Cheap time for intervals: reading it costs a third of what a look at the clock does. Where the
// processor has a counter that runs at one rate for ever (x86-64 with an invariant TSC) it counts
// that one's cycles from the last look at the clock on, elsewhere each reading is a look.
//
// For the length of things on one machine. Not for points in time that processes compare
// (histories): the rate is measured and is off by some millionths.
//
// Not thread-safe: one TickClock a thread. TickWindow: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/clock.h"

namespace pando {

struct TickRate {
  double ns_per_tick = 0;  // 0: there is no such counter
  int64_t look_ticks = 0;  // that a look at the clock takes, at best
};

// The counter's reading; 0 for ever where there is none.
inline int64_t ReadTicks() {
#ifdef __x86_64__
  return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
  return 0;
#endif
}

class TickClock {
 public:
  // The first one in a process measures the rate for some milliseconds.
  TickClock();

  // Looks at the clock; what the rate is off by adds up from here on.
  int64_t Anchor() {
    anchor_ns_ = RealClock().NowNs();
    anchor_ticks_ = Ticks();
    return anchor_ns_;
  }
  // The same, for readings that are compared across anchors or with the clock: a thread that is
  // interrupted between the clock and the counter would be off by as long, this is off by some
  // microseconds, and ahead of the clock rather than behind it.
  int64_t AnchorClosely();
  // Needs an Anchor() before.
  int64_t NowNs() const {
    if (rate_.ns_per_tick == 0) [[unlikely]]
      return RealClock().NowNs();
    return anchor_ns_ +
           static_cast<int64_t>(static_cast<double>(Ticks() - anchor_ticks_) * rate_.ns_per_tick);
  }
  // How often the last AnchorClosely() looked at the clock.
  int looks() const { return looks_; }

 private:
  static int64_t Ticks() { return ReadTicks(); }

  const TickRate rate_;
  int64_t anchor_ns_ = 0, anchor_ticks_ = 0;
  int looks_ = 0;
};

// RealClock() by the counter, for callers that look often: each thread's readings are a TickClock's
// that is anchored closely every 2 ms, and never go back. Threads' readings are some microseconds
// apart.
const Clock& CountedClock();

// A span of time until a moment of some clock, for callers that ask often whether it is over. A
// counter that was set back meanwhile (a machine that was suspended) is outside of every span.
class TickWindow {
 public:
  // From now until `until_ns` of `clock`, or a hundredth of that earlier. Where there is no such
  // counter the window stays shut.
  void Open(const Clock& clock, int64_t until_ns);
  void Shut() { until_.store(INT64_MIN, std::memory_order_release); }
  // False: it is over, or nearly, or there is no counter: ask the clock.
  bool IsOpen() const {
    const int64_t ticks = ReadTicks();
    return ticks < until_.load(std::memory_order_acquire) &&
           ticks >= from_.load(std::memory_order_relaxed);
  }

 private:
  // Of two windows that are opened one after the other any two ends make one that is true.
  std::atomic<int64_t> from_{0}, until_{INT64_MIN};
};

}  // namespace pando
