#include "common/base/ticks.h"

#include <algorithm>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace pando {
namespace {

#ifdef __x86_64__
constexpr int64_t kMeasureNs = 5 * kMillisecondNs;

bool HasInvariantTsc() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1u << 8)) != 0;
}

struct Moment {
  int64_t ns;
  int64_t ticks;
  int64_t look_ticks;  // how long the look at the clock took
};

// Counter and clock of one moment: the closest of several pairs, because a thread may be
// interrupted between the two.
Moment TakeMoment() {
  Moment best = {};
  int64_t best_gap = INT64_MAX;
  for (int i = 0; i < 16; ++i) {
    const auto before = static_cast<int64_t>(__builtin_ia32_rdtsc());
    const int64_t ns = RealClock().NowNs();
    const auto after = static_cast<int64_t>(__builtin_ia32_rdtsc());
    if (after - before >= best_gap) continue;
    best_gap = after - before;
    best = {ns, before + best_gap / 2, best_gap};
  }
  return best;
}

TickRate MeasureRate() {
  if (!HasInvariantTsc()) return {};
  const Moment start = TakeMoment();
  while (RealClock().NowNs() - start.ns < kMeasureNs) {
  }
  const Moment end = TakeMoment();
  if (end.ticks <= start.ticks) return {};
  const double ns_per_tick =
      static_cast<double>(end.ns - start.ns) / static_cast<double>(end.ticks - start.ticks);
  return {ns_per_tick, std::min(start.look_ticks, end.look_ticks)};
}
#else
TickRate MeasureRate() { return {}; }
#endif

const TickRate& MeasuredRate() {
  static const TickRate measured = MeasureRate();
  return measured;
}

// What the rate is off by stays below a microsecond in that time.
constexpr int64_t kAnchorNs = 2 * kMillisecondNs;

class Counted final : public Clock {
 public:
  int64_t NowNs() const override {
    thread_local Reading reading;
    int64_t now_ns = reading.ticks.NowNs();
    // Less than it said before: just after an anchor, or the counter was set back.
    if (now_ns >= reading.anchor_again_ns || now_ns < reading.last_ns) [[unlikely]] {
      now_ns = reading.ticks.AnchorClosely();
      reading.anchor_again_ns = now_ns + kAnchorNs;
    }
    return reading.last_ns = std::max(reading.last_ns, now_ns);
  }

 private:
  struct Reading {
    TickClock ticks;
    int64_t anchor_again_ns = INT64_MIN;
    int64_t last_ns = 0;
  };
};

}  // namespace

const Clock& CountedClock() {
  static const Counted clock;
  return clock;
}

TickClock::TickClock() : rate_(MeasuredRate()) {}

void TickWindow::Open(const Clock& clock, int64_t until_ns) {
  const double ns_per_tick = MeasuredRate().ns_per_tick;
  if (ns_per_tick == 0) return;
  // Counter first: if this thread is interrupted in between the window is too short.
  const int64_t from = ReadTicks();
  const auto left_ns = static_cast<double>(until_ns - clock.NowNs());
  constexpr double kSure = 0.99;  // of a rate that was measured in milliseconds
  const int64_t until = from + static_cast<int64_t>(left_ns * kSure / ns_per_tick);
  from_.store(from, std::memory_order_relaxed);
  until_.store(until, std::memory_order_release);
}

int64_t TickClock::AnchorClosely() {
  constexpr int kTries = 16;
  constexpr double kCloseNs = 5'000;
  if (rate_.ns_per_tick == 0) return Anchor();
  // Where each look is a call of the kernel, and calls are slow (virtual machines, User-Mode
  // Linux), none takes less than that.
  const auto close = std::max(static_cast<int64_t>(kCloseNs / rate_.ns_per_tick),
                              rate_.look_ticks + rate_.look_ticks / 2);
  int64_t best_gap = INT64_MAX;
  for (looks_ = 0; looks_ < kTries && best_gap > close; ++looks_) {
    const int64_t before = Ticks();
    const int64_t ns = RealClock().NowNs();
    const int64_t gap = Ticks() - before;
    if (gap >= best_gap) continue;
    best_gap = gap;
    anchor_ns_ = ns;
    anchor_ticks_ = before;
  }
  return NowNs();
}

}  // namespace pando
