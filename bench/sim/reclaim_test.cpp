// Memory of nodes is given to others only when nobody who was there before can still write it
// (rules C5, R4 to R6), with stops and delays of any length.
//
// PANDO_RECLAIM_FULL=1 plays the whole ranges; else every third point of them.
#include <cstdlib>
#include <iostream>

#include "bench/sim/late_spare.h"
#include "bench/sim/paused_merger.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

bool Full() { return std::getenv("PANDO_RECLAIM_FULL") != nullptr; }

struct Tally {
  int trials = 0, stopped = 0, reused = 0, freed = 0;
};

Tally PlayOffsets(PausedMerger::Stopped stopped, int64_t stop_ns, int64_t last_us) {
  Tally tally;
  for (int64_t us = 0; us <= last_us; us += Full() ? 1 : 3) {
    const PausedMergerResult trial =
        PlayPausedMerger({.seed = 77'000'000 + static_cast<uint64_t>(us),
                          .stopped = stopped,
                          .offset_ns = us * kMicrosecondNs,
                          .stop_ns = stop_ns});
    ++tally.trials;
    tally.stopped += trial.stopped ? 1 : 0;
    tally.reused += trial.reused ? 1 : 0;
    tally.freed += trial.freed > 0 ? 1 : 0;
    EXPECT_THAT(trial.problems, testing::IsEmpty()) << "offset " << us << " us";
  }
  std::cout << tally.trials << " trials, stopped in " << tally.stopped << ", memory reused in "
            << tally.reused << ", freed by the sweep in " << tally.freed << "\n";
  return tally;
}

class Reclaim : public testing::TestWithParam<int64_t> {};

TEST_P(Reclaim, ASweepFreesNothingThatAStoppedMergerHasLocked) {
  const Tally tally = PlayOffsets(PausedMerger::Stopped::kMerger, GetParam(), 60);
  EXPECT_EQ(tally.stopped, tally.trials);
}

TEST_P(Reclaim, ASweepThatWasStoppedTouchesNothingThatIsUsedAgain) {
  const Tally tally = PlayOffsets(PausedMerger::Stopped::kSweeper, GetParam(), 250);
  EXPECT_GT(tally.stopped, tally.trials / 2);
  EXPECT_GT(tally.reused, tally.stopped / 2);
}

TEST_P(Reclaim, OfTwoSweepsThatMeetAtASpareOfTheDeadOneFreesIt) {
  const Tally tally = PlayOffsets(PausedMerger::Stopped::kSweeperOfSpare, GetParam(), 400);
  EXPECT_GT(tally.stopped, tally.trials / 2);
  EXPECT_GT(tally.reused, 0);
  EXPECT_GT(tally.freed, 0);
}

INSTANTIATE_TEST_SUITE_P(Stops, Reclaim, testing::Values(1'300 * kMillisecondNs, 30 * kSecondNs),
                         [](const auto& info) {
                           return std::to_string(info.param / kMillisecondNs) + "ms";
                         });

class LatePackets : public testing::TestWithParam<int64_t> {};

// In the split, and in the growth of the root behind it.
TEST_P(LatePackets, OfAFailedSplitHitNothingThatSomebodyElseWasGiven) {
  int refused = 0, acknowledged = 0, late = 0;
  uint64_t seed = 77'000'000;  // what a break does follows from it, so each has its own
  for (int round = 0; round < (Full() ? 20 : 2); ++round) {
    for (int64_t ns = 0; ns <= kLateSpareNs; ns += 250) {
      const LateSpareResult trial =
          PlayLateSpare({.seed = ++seed, .break_before_end_ns = ns, .late_ns = GetParam()});
      refused += trial.refused ? 1 : 0;
      acknowledged += trial.acknowledged ? 1 : 0;
      late += trial.late ? 1 : 0;
      EXPECT_THAT(trial.problems, testing::IsEmpty())
          << "seed " << seed << ", broken " << ns << " ns before its end";
    }
  }
  std::cout << refused << " refused, " << acknowledged << " acknowledged, packets late in " << late
            << "\n";
  EXPECT_GT(refused, 0);
  EXPECT_GT(acknowledged, 0);
  EXPECT_GT(late, 0);
}

INSTANTIATE_TEST_SUITE_P(Late, LatePackets,
                         testing::Values(200 * kMicrosecondNs, 400 * kMicrosecondNs, kMillisecondNs,
                                         5 * kMillisecondNs),
                         [](const auto& info) {
                           return std::to_string(info.param / kMicrosecondNs) + "us";
                         });

}  // namespace
}  // namespace pando
