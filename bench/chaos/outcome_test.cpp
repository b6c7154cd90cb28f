#include "bench/chaos/outcome.h"

#include "common/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::chaos {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr int64_t kMs = kMillisecondNs;

// Two compute servers for ten seconds; server 1 is killed at 4 s. Server 0 answers every 100 ms.
class OutcomeTest : public testing::Test {
 protected:
  OutcomeTest() {
    outcome_.lives = {{0, 0, 10'000 * kMs}, {1, 0, 4'000 * kMs}};
    outcome_.kills = {{.server = 1, .life = 1, .at_ns = 4'000 * kMs}};
    for (int64_t at = 100; at < 10'000; at += 100) Add(at - 1, at);
  }
  void Add(int64_t call_ms, int64_t return_ms, absl::StatusCode status = absl::StatusCode::kOk) {
    outcome_.operations.push_back({0, call_ms * kMs, return_ms * kMs, status});
  }
  void RemoveBetween(int64_t from_ms, int64_t to_ms) {
    std::erase_if(outcome_.operations, [&](const Finished& o) {
      return o.return_ns > from_ms * kMs && o.return_ns < to_ms * kMs;
    });
  }
  const Kill& Evaluated() {
    Evaluate({}, &outcome_);
    return outcome_.kills[0];
  }

  Outcome outcome_;
};

TEST_F(OutcomeTest, OthersWentOn) {
  const Kill& kill = Evaluated();
  EXPECT_EQ(kill.longest_gap_ns, 100 * kMs);
  EXPECT_EQ(kill.longest_operation_ns, kMs);
  EXPECT_THAT(outcome_.failures, IsEmpty());
}

TEST_F(OutcomeTest, AnotherServerWasHeldUp) {
  RemoveBetween(4'200, 5'700);
  EXPECT_EQ(Evaluated().longest_gap_ns, 1'500 * kMs);
  EXPECT_THAT(outcome_.failures, ElementsAre(HasSubstr("finished nothing for 1500 ms")));
}

TEST_F(OutcomeTest, AnErrorIsNoProgress) {
  RemoveBetween(4'200, 5'700);
  Add(4'500, 4'600, absl::StatusCode::kUnavailable);
  EXPECT_EQ(Evaluated().longest_gap_ns, 1'500 * kMs);
}

TEST_F(OutcomeTest, OneOperationWasHeldUp) {
  Add(3'900, 6'000);
  EXPECT_EQ(Evaluated().longest_operation_ns, 2'100 * kMs);
  EXPECT_THAT(outcome_.failures, ElementsAre(HasSubstr("took 2100 ms")));
}

TEST_F(OutcomeTest, WhatAStopHoldsUpIsNotTheKillsDoing) {
  outcome_.stops = {{.server = 0, .at_ns = 5'000 * kMs, .end_ns = 7'000 * kMs}};
  RemoveBetween(5'000, 7'000);
  Add(4'500, 7'000);
  EXPECT_EQ(Evaluated().longest_gap_ns, 100 * kMs);
  EXPECT_THAT(outcome_.failures, IsEmpty());
}

TEST_F(OutcomeTest, WhatAServerCallsAfterItsStopIsNotSlow) {
  outcome_.stops = {{.server = 0, .at_ns = 5'000 * kMs, .end_ns = 7'000 * kMs}};
  Add(6'000, 9'000);  // called before
  Add(7'000, 7'499);
  Evaluated();
  EXPECT_EQ(outcome_.stops[0].longest_after_ns, 499 * kMs);
  EXPECT_THAT(outcome_.failures, IsEmpty());
  Add(7'001, 7'600);
  Evaluated();
  EXPECT_THAT(outcome_.failures,
              ElementsAre("stop 1: an operation called after it had ended took 599 ms, over 500"));
}

TEST_F(OutcomeTest, WhatComesAfterAStopIsOfThatServerAndUntilTheNextEvent) {
  outcome_.kills.clear();
  outcome_.stops = {{.server = 1, .at_ns = 1'000 * kMs, .end_ns = 2'000 * kMs},
                    {.server = 1, .memory = true, .at_ns = 3'000 * kMs, .end_ns = 4'000 * kMs},
                    {.server = 0, .at_ns = 5'000 * kMs, .end_ns = 6'000 * kMs}};
  Add(2'100, 2'300);  // of server 0
  Add(4'200, 5'900);  // the last 900 ms are the next stop's doing
  Evaluate({}, &outcome_);
  EXPECT_EQ(outcome_.stops[0].longest_after_ns, 0);
  EXPECT_EQ(outcome_.stops[1].longest_after_ns, 800 * kMs);
  EXPECT_EQ(outcome_.stops[2].longest_after_ns, kMs);
  EXPECT_EQ(outcome_.failures.size(), 1u);
}

TEST_F(OutcomeTest, ErrorsBesideAStopAreExplained) {
  outcome_.stops = {{.server = 1, .at_ns = 1'000 * kMs, .end_ns = 2'000 * kMs}};
  Add(1'500, 4'500, absl::StatusCode::kDeadlineExceeded);
  Add(500, 1'200, absl::StatusCode::kUnknown);
  Evaluated();
  EXPECT_THAT(outcome_.explained, ElementsAre(Pair("DEADLINE_EXCEEDED", 1u), Pair("UNKNOWN", 1u)));
  EXPECT_THAT(outcome_.failures, IsEmpty());
}

TEST_F(OutcomeTest, OperationsEndByTheirDeadlineWhateverIsStopped) {
  outcome_.kills.clear();
  outcome_.stops = {{.server = 1, .at_ns = 1'000 * kMs, .end_ns = 2'000 * kMs},
                    {.server = 0, .memory = true, .at_ns = 2'000 * kMs, .end_ns = 3'000 * kMs}};
  Add(1'500, 6'500, absl::StatusCode::kDeadlineExceeded);  // 3,000 and two seconds late
  Evaluate({}, &outcome_);
  EXPECT_THAT(outcome_.failures, IsEmpty());
  Add(1'500, 6'501, absl::StatusCode::kDeadlineExceeded);
  Add(1'600, 7'000);  // answered, but late
  Evaluate({}, &outcome_);
  EXPECT_THAT(outcome_.failures,
              ElementsAre(HasSubstr("2 operations did not end by their deadline: the longest took "
                                    "5400 ms, with --timeout_ms=3000")));
  outcome_.failures.clear();
  Evaluate({.fabric = "verbs"}, &outcome_);
  EXPECT_THAT(outcome_.failures, IsEmpty()) << "a broken queue pair takes longer";
}

TEST_F(OutcomeTest, WhoWasStoppedItselfIsLate) {
  outcome_.kills.clear();
  outcome_.stops = {{.server = 0, .at_ns = 1'000 * kMs, .end_ns = 6'000 * kMs}};
  Add(900, 6'001, absl::StatusCode::kDeadlineExceeded);
  Evaluate({}, &outcome_);
  EXPECT_THAT(outcome_.failures, IsEmpty());
  outcome_.stops[0].server = 1;
  Evaluate({}, &outcome_);
  EXPECT_THAT(outcome_.failures, ElementsAre(HasSubstr("1 operations did not end")));
}

TEST_F(OutcomeTest, WhoIsToldToLeaveLeavesOrIsKilled) {
  outcome_.kills.clear();
  outcome_.leaves = {{.server = 0, .life = 0, .at_ns = 1'000 * kMs, .left_ns = 1'500 * kMs}};
  Evaluate({}, &outcome_);
  EXPECT_THAT(outcome_.failures, IsEmpty());
  outcome_.leaves[0].left_ns = 0;
  Evaluate({}, &outcome_);
  EXPECT_THAT(outcome_.failures,
              ElementsAre(HasSubstr("leave 1: compute server 0 had not given away all")));
  outcome_.failures.clear();
  outcome_.kills = {{.server = 0, .life = 0, .at_ns = 9'900 * kMs, .dead_ns = 9'950 * kMs}};
  Evaluate({}, &outcome_);
  EXPECT_THAT(outcome_.failures, IsEmpty());
}

// Two attempts of two seconds, and one for each event.
TEST_F(OutcomeTest, ALeaveThatHadNoTimeIsNoFailure) {
  outcome_.kills.clear();
  outcome_.leaves = {{.server = 0, .life = 0, .at_ns = 6'001 * kMs}};
  Evaluate({}, &outcome_);
  EXPECT_THAT(outcome_.failures, IsEmpty());
  outcome_.leaves[0].at_ns = 2'500 * kMs;
  outcome_.stops = {{.server = 1, .at_ns = 3'000 * kMs, .end_ns = 5'000 * kMs}};
  Evaluate({}, &outcome_);
  EXPECT_THAT(outcome_.failures, IsEmpty()) << "7.5 s, of which it was stopped for two";
  outcome_.stops[0].end_ns = 4'500 * kMs;
  Evaluate({}, &outcome_);
  EXPECT_EQ(outcome_.failures.size(), 1u);
}

TEST_F(OutcomeTest, OtherErrorsAreNot) {
  outcome_.stops = {{.server = 1, .at_ns = 1'000 * kMs, .end_ns = 2'000 * kMs}};
  Add(2'500, 2'600, absl::StatusCode::kDeadlineExceeded);
  Add(1'500, 1'600, absl::StatusCode::kDataLoss);
  Add(1'500, 1'600, absl::StatusCode::kDataLoss);
  Evaluated();
  EXPECT_THAT(outcome_.unexplained,
              ElementsAre(Pair("DATA_LOSS", 2u), Pair("DEADLINE_EXCEEDED", 1u)));
  EXPECT_EQ(outcome_.failures.size(), 2u);
}

}  // namespace
}  // namespace pando::chaos
