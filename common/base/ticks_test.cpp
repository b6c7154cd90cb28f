#include "common/base/ticks.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace pando {
namespace {

// A thread that is interrupted between the clock and the counter would be behind by a time slice.
TEST(TickClockTest, ACloseAnchorIsNotBehindTheClockOnABusyMachine) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i <= std::thread::hardware_concurrency(); ++i) {
    others.emplace_back([&] {
      while (!stop) {
      }
    });
  }
  TickClock clock;
  constexpr int64_t kRateIsOffByNs = kMicrosecondNs;
  const int64_t end_ns = RealClock().NowNs() + 300 * kMillisecondNs;
  while (RealClock().NowNs() < end_ns) {
    const int64_t before_ns = RealClock().NowNs();
    clock.AnchorClosely();
    EXPECT_GE(clock.NowNs(), before_ns - kRateIsOffByNs);
    const int64_t now_ns = clock.NowNs();
    EXPECT_LE(now_ns, RealClock().NowNs() + kMillisecondNs);
  }
  stop = true;
  for (std::thread& other : others) other.join();
}

// However slow the clock is here: it is looked at again for an interruption alone.
TEST(TickClockTest, MostCloseAnchorsTakeOneLookOrTwo) {
  TickClock clock;
  int few = 0;
  for (int i = 0; i < 1000; ++i) {
    clock.AnchorClosely();
    few += clock.looks() <= 2 ? 1 : 0;
  }
  EXPECT_GE(few, 800);
}

TEST(TickClockTest, MeasuresWhatTheClockMeasures) {
  TickClock clock;
  const int64_t start_ns = clock.Anchor();
  EXPECT_GE(clock.NowNs(), start_ns);
  while (RealClock().NowNs() - start_ns < 20 * kMillisecondNs) {
  }
  const int64_t ns = clock.NowNs() - start_ns;
  const int64_t expected_ns = RealClock().NowNs() - start_ns;
  // Other users of the machine may have run between the two looks.
  EXPECT_NEAR(static_cast<double>(ns), static_cast<double>(expected_ns), 5e6);
}

TEST(CountedClockTest, StaysWithTheClockAndNeverGoesBack) {
  constexpr int64_t kApartNs = 100 * kMicrosecondNs;
  const Clock& counted = CountedClock();
  const int64_t end_ns = RealClock().NowNs() + 50 * kMillisecondNs;
  int64_t last_ns = 0;
  int apart = 0, looks = 0;
  for (int64_t before_ns = 0; before_ns < end_ns; ++looks) {
    before_ns = RealClock().NowNs();
    const int64_t now_ns = counted.NowNs();
    const int64_t after_ns = RealClock().NowNs();
    ASSERT_GE(now_ns, last_ns);
    last_ns = now_ns;
    apart += now_ns < before_ns - kApartNs || now_ns > after_ns + kApartNs ? 1 : 0;
  }
  // Where the machine stops between the clock and the counter all 16 times.
  EXPECT_LT(apart, looks / 10 + 1);
  int64_t elsewhere_ns = 0;
  std::thread([&] { elsewhere_ns = counted.NowNs(); }).join();
  EXPECT_GE(elsewhere_ns, last_ns - kMillisecondNs);
  EXPECT_LE(elsewhere_ns, RealClock().NowNs() + kMillisecondNs);
}

// At a time that a test sets.
class SetClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  int64_t now_ns = 1'000'000 * kSecondNs;
};

TEST(TickWindowTest, IsShutAtLatestWhenItsMomentHasCome) {
  TickWindow window;
  EXPECT_FALSE(window.IsOpen());
  constexpr int64_t kSpanNs = 50 * kMillisecondNs;
  const int64_t until_ns = RealClock().NowNs() + kSpanNs;
  window.Open(RealClock(), until_ns);
  const bool has_counter = window.IsOpen();
  int64_t last_open_ns = 0;
  while (true) {
    const int64_t now_ns = RealClock().NowNs();
    if (!window.IsOpen()) break;
    last_open_ns = now_ns;
    ASSERT_LT(now_ns, until_ns);
  }
  if (!has_counter) GTEST_SKIP() << "no counter that runs at one rate";
  EXPECT_GT(last_open_ns, 0);
}

TEST(TickWindowTest, OfAMomentThatIsOverIsNeverOpen) {
  SetClock clock;
  TickWindow window;
  window.Open(clock, clock.now_ns);
  EXPECT_FALSE(window.IsOpen());
  window.Open(clock, clock.now_ns - kSecondNs);
  EXPECT_FALSE(window.IsOpen());
  window.Open(clock, clock.now_ns + 3600 * kSecondNs);
  const bool has_counter = window.IsOpen();
  window.Shut();
  EXPECT_FALSE(window.IsOpen());
  if (!has_counter) GTEST_SKIP() << "no counter that runs at one rate";
}

}  // namespace
}  // namespace pando
