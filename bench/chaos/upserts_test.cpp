#include "bench/chaos/upserts.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::chaos {
namespace {

// Two compute servers of four threads each were killed, and each was followed.
class UpsertsReportTest : public testing::Test {
 protected:
  UpsertsReportTest() {
    plan_.upserts = 1'000'000;
    plan_.kills = 2;
    plan_.threads = 4;
  }

  Plan plan_;
  UpsertsReport report_ = {.acknowledged = 999'000,
                           .unknown = 990,
                           .no_effect = 10,
                           .kills = 2,
                           .adoptions = 2,
                           .seconds = 1};
};

TEST_F(UpsertsReportTest, EverythingHolds) {
  EXPECT_TRUE(report_.ok(plan_));
  EXPECT_EQ(report_.Json(plan_)["ok"], true);
  EXPECT_THAT(report_.Text(plan_), testing::HasSubstr("everything holds"));
}

// A thread that is killed may have taken an upsert from the plan without having begun it.
TEST_F(UpsertsReportTest, AKilledThreadMayHaveLeftOneUnbegun) {
  report_.acknowledged -= 8;
  EXPECT_TRUE(report_.ok(plan_));
  EXPECT_EQ(report_.Json(plan_)["upserts"]["not_begun"], 8);
  --report_.acknowledged;
  EXPECT_FALSE(report_.ok(plan_)) << "more than threads were killed";
}

TEST_F(UpsertsReportTest, WithoutKillsAllAreBegun) {
  plan_.kills = 0;
  report_.kills = 0;
  EXPECT_TRUE(report_.ok(plan_));
  --report_.acknowledged;
  EXPECT_FALSE(report_.ok(plan_));
}

TEST_F(UpsertsReportTest, NoMoreThanThePlanned) {
  ++report_.unknown;
  EXPECT_FALSE(report_.ok(plan_));
}

TEST_F(UpsertsReportTest, WhatElseBreaks) {
  UpsertsReport wrong = report_;
  wrong.wrong_sums = 1;
  EXPECT_FALSE(wrong.ok(plan_));
  wrong = report_;
  wrong.kills = 1;
  EXPECT_FALSE(wrong.ok(plan_));
  wrong = report_;
  wrong.adoptions = 1;
  EXPECT_FALSE(wrong.ok(plan_));
  wrong = report_;
  wrong.leaf_reads = plan_.upserts;
  EXPECT_FALSE(wrong.ok(plan_));
}

}  // namespace
}  // namespace pando::chaos
