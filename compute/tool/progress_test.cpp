#include "compute/tool/progress.h"

#include "gtest/gtest.h"

namespace pando::tool {
namespace {

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
