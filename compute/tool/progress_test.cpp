#include "compute/tool/progress.h"

#include "gtest/gtest.h"

namespace pando::tool {
namespace {

TEST(ProgressTest, SaysHowFarHowFastAndHowLong) {
  EXPECT_EQ(ProgressText("loaded", 120'000, 24, 100, 2),
            "loaded 120000 keys (24 %), 60.0 k a second, 6 s left");
  EXPECT_EQ(ProgressText("dumped", 1000, 1000, 0, 1), "dumped 1000 keys, 1.00 k a second");
  EXPECT_EQ(ProgressText("loaded", 0, 0, 10, 0), "loaded 0 keys (0 %)");
  EXPECT_EQ(ProgressText("loaded", 10, 10, 10, 10), "loaded 10 keys (100 %), 1 a second");
  // More than was estimated.
  EXPECT_EQ(ProgressText("dumped", 12, 12, 10, 1), "dumped 12 keys (100 %), 12 a second");
  EXPECT_EQ(ProgressText("loaded", 600, 1, 7, 600),
            "loaded 600 keys (14 %), 1 a second, 60 min left");
  EXPECT_EQ(ProgressText("loaded", 3600, 1, 11, 3600),
            "loaded 3600 keys (9 %), 1 a second, 10 h left");
}

TEST(ProgressTest, CountsFromAnyThreadAndAnew) {
  Progress progress("loaded", 10, ShowProgress::kNever);
  std::thread other([&] { progress.Add(3, 3); });
  progress.Add(2, 2);
  other.join();
  EXPECT_EQ(progress.keys(), 5u);
  progress.Reset();
  EXPECT_EQ(progress.keys(), 0u);
}

TEST(ThrottleTest, TakesAtLeastTheTimeThatTheRateAsksFor) {
  const auto start = std::chrono::steady_clock::now();
  Throttle throttle(1'000'000);
  for (int i = 0; i < 10; ++i) throttle.Spend(5'000);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
  Throttle unlimited(0);
  unlimited.Spend(UINT64_MAX);
}

}  // namespace
}  // namespace pando::tool
