#include "common/base/busy_periods.h"

#include <utility>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(BusyPeriodsTest, WhoComesWhileItIsHeldWaits) {
  BusyPeriods busy;
  EXPECT_EQ(busy.Take(100, 50, 0), 100);
  EXPECT_EQ(busy.Take(120, 50, 0), 150);
  EXPECT_EQ(busy.Take(120, 50, 0), 200);
  EXPECT_EQ(busy.Take(250, 50, 0), 250);
  EXPECT_EQ(busy.taken_ns(), 200);
}

TEST(BusyPeriodsTest, WhoAsksLateForAnEarlierTimeGetsAGap) {
  BusyPeriods busy;
  EXPECT_EQ(busy.Take(1'000, 50, 0), 1'000);
  EXPECT_EQ(busy.Take(500, 50, 0), 500);
  // Too long for what is left between the two.
  EXPECT_EQ(busy.Take(510, 460, 0), 1'050);
  EXPECT_EQ(busy.Take(510, 450, 0), 550);
}

TEST(BusyPeriodsTest, WhatIsPastIsForgotten) {
  BusyPeriods busy;
  for (int64_t at = 0; at < 100; ++at) EXPECT_EQ(busy.Take(at * 10, 5, at * 10), at * 10);
  EXPECT_LE(busy.periods(), 2u);
}

TEST(BusyPeriodsTest, NothingOverlaps) {
  Random random(1);
  BusyPeriods busy;
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (int i = 0; i < 500; ++i) {
    const auto from = static_cast<int64_t>(random.Uniform(10'000));
    const auto length = static_cast<int64_t>(1 + random.Uniform(30));
    const int64_t begin = busy.Take(from, length, 0);
    EXPECT_GE(begin, from);
    for (const auto& [other, end] : taken) EXPECT_TRUE(begin + length <= other || end <= begin);
    taken.emplace_back(begin, begin + length);
  }
}

}  // namespace
}  // namespace pando
