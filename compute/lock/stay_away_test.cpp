#include "compute/lock/stay_away.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

constexpr int64_t kPeriodNs = 100;

TEST(StayAwayTest, LongerForMoreRivalsUpToABound) {
  EXPECT_EQ(StayAwayChains(0), 0);
  EXPECT_EQ(StayAwayChains(1), 5);
  EXPECT_EQ(StayAwayChains(3), 15);
  EXPECT_EQ(StayAwayChains(4), 16);
  EXPECT_EQ(StayAwayChains(64), 16);
}

TEST(StayAwayTest, EachRivalCountsOnce) {
  Rivals rivals;
  EXPECT_EQ(rivals.Count(0, kPeriodNs), 0);
  EXPECT_FALSE(rivals.any());
  rivals.Note(7, 10, kPeriodNs);
  rivals.Note(8, 20, kPeriodNs);
  rivals.Note(7, 30, kPeriodNs);
  EXPECT_EQ(rivals.Count(40, kPeriodNs), 2);
}

TEST(StayAwayTest, WhoIsNotSeenAnyMoreIsForgottenAfterOnePeriodOrTwo) {
  Rivals rivals;
  rivals.Note(1, 1'000, kPeriodNs);  // begins a period
  rivals.Note(2, 1'099, kPeriodNs);
  EXPECT_EQ(rivals.Count(1'100, kPeriodNs), 2) << "of the period before";
  rivals.Note(3, 1'150, kPeriodNs);
  EXPECT_EQ(rivals.Count(1'199, kPeriodNs), 3);
  EXPECT_EQ(rivals.Count(1'200, kPeriodNs), 1) << "the third alone";
  EXPECT_EQ(rivals.Count(1'300, kPeriodNs), 0);
}

TEST(StayAwayTest, NobodyIsRememberedOverALongQuiet) {
  Rivals rivals;
  rivals.Note(1, 1'000, kPeriodNs);
  EXPECT_TRUE(rivals.any());
  EXPECT_EQ(rivals.Count(1'000'000, kPeriodNs), 0);
  EXPECT_FALSE(rivals.any());
  rivals.Note(2, 1'000'001, kPeriodNs);
  EXPECT_EQ(rivals.Count(1'000'001, kPeriodNs), 1);
}

}  // namespace
}  // namespace pando
