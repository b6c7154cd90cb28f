#include "bench/chaos/schedule.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "gtest/gtest.h"

namespace pando::chaos {
namespace {

TEST(Schedule, HasWhatWasAskedForOneAfterTheOther) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Plan plan = {.seed = seed, .duration_s = 30, .kills = 5, .stops = 3};
    const std::vector<Event> events = MakeSchedule(plan);
    ASSERT_EQ(events.size(), 8u);
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [](const Event& e) { return e.kind == Event::Kind::kKill; }),
              5);
    int64_t before_ns = 0;
    for (const Event& event : events) {
      EXPECT_GE(event.at_ns, before_ns);
      EXPECT_GT(event.end_ns, event.at_ns);
      EXPECT_GE(event.server, 0);
      EXPECT_LT(event.server, plan.compute_servers);
      if (event.kind == Event::Kind::kStop) {
        EXPECT_LE(event.end_ns - event.at_ns, 3 * kSecondNs);
      }
      before_ns = event.end_ns;
    }
    EXPECT_LE(before_ns, 30 * kSecondNs);
  }
}

TEST(Schedule, StopsAreAsLongAsWasAskedFor) {
  for (const Event& event :
       MakeSchedule({.duration_s = 40, .kills = 0, .stops = 2, .stop_s = 10})) {
    EXPECT_EQ(event.end_ns - event.at_ns, 10 * kSecondNs);
  }
}

TEST(Schedule, IsAFunctionOfTheSeed) {
  const Plan plan = {.seed = 7};
  EXPECT_EQ(MakeSchedule(plan), MakeSchedule(plan));
  Plan other = plan;
  other.seed = 8;
  EXPECT_NE(MakeSchedule(plan), MakeSchedule(other));
}

TEST(Schedule, HasAsManyLeavesAsWereAskedFor) {
  const Plan plan = {.mode = "owned", .seed = 3, .duration_s = 40, .leaves = 8};
  const std::vector<Leaving> leavings = MakeLeavings(plan);
  ASSERT_EQ(leavings.size(), 8u);
  for (size_t i = 0; i < leavings.size(); ++i) {
    EXPECT_LT(leavings[i].server, plan.compute_servers);
    EXPECT_GE(leavings[i].at_ns, static_cast<int64_t>(i) * 5 * kSecondNs);
    EXPECT_LE(leavings[i].at_ns, (static_cast<int64_t>(i) + 1) * 5 * kSecondNs);
  }
  EXPECT_EQ(MakeLeavings(plan), leavings);
  EXPECT_EQ(MakeSchedule(plan), MakeSchedule({.mode = "owned", .seed = 3, .duration_s = 40}));
}

TEST(Schedule, MayBeEmpty) { EXPECT_TRUE(MakeSchedule({.kills = 0, .stops = 0}).empty()); }

TEST(ChaosPlan, SurvivesTheWayToAComputeServer) {
  Plan plan = {.seed = 9,
               .duration_s = 12.5,
               .kills = 2,
               .stops = 1,
               .stop_s = 1.5,
               .threads = 1,
               .rate = 500};
  plan.folder = "/somewhere";
  const auto copy = PlanFromJson(PlanToJson(plan));
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(PlanToJson(*copy), PlanToJson(plan));
}

TEST(ChaosPlan, SaysWhatIsWrong) {
  EXPECT_TRUE(CheckPlan({}).ok());
  for (const Plan& plan :
       {Plan{.fabric = "pigeon"}, Plan{.duration_s = 0}, Plan{.kills = -1}, Plan{.stop_s = -1},
        Plan{.duration_s = 16, .kills = 0, .stops = 1, .stop_s = 10}, Plan{.compute_servers = 1},
        Plan{.leaves = 1}, Plan{.mode = "owned", .duration_s = 3, .kills = 0, .leaves = 2},
        Plan{.duration_s = 3, .kills = 3, .stops = 1}, Plan{.rate = 0}, Plan{.records = 0}}) {
    const absl::Status status = CheckPlan(plan);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_NE(status.message().find("--"), std::string::npos);
  }
}

}  // namespace
}  // namespace pando::chaos
