// Members whose log's memory server dies (rule W6): nothing acknowledged is lost as long as the
// owner or its log's server lives.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "bench/history/checker.h"
#include "bench/owned/log_moves.h"
#include "bench/owned/owned_stage.h"
#include "pando/losses.h"

namespace pando {
namespace {

// The owner goes on, and dies with a log elsewhere.
TEST(OwnedLogMove, TheOwnerGoesOnAndItsNextLogHasEverything) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogMoves stage(LogMoves::Options(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    if (log == 0 || !stage.Open(next, 0)) continue;
    ++played;
    stage.world().KillServer(log);
    for (uint64_t key = 1; key <= LogMoves::kKeys; key += 3) ASSERT_TRUE(stage.Put(owner, key));
    EXPECT_NE(stage.LogServer(owner), log) << "seed " << seed;
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.Kill(owner);
    stage.Leave(owner);
    for (uint64_t key = 1; key <= LogMoves::kKeys; ++key) ASSERT_TRUE(stage.Get(next, key));
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.LookAgain({log});
    EXPECT_EQ(stage.what(), "") << "seed " << seed;
  }
  EXPECT_GE(played, 3);
}

// The one that it has moved to dies as well.
TEST(OwnedLogMove, ItMovesTwice) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogMoves stage(LogMoves::Options(seed, /*memory_servers=*/4));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId first = stage.Begin(owner);
    if (first == 0 || !stage.Open(next, 0)) continue;
    stage.world().KillServer(first);
    for (uint64_t key = 1; key <= LogMoves::kKeys; key += 3) ASSERT_TRUE(stage.Put(owner, key));
    const ServerId second = stage.LogServer(owner);
    if (second == 1 || second == stage.RootServer(owner)) continue;
    ++played;
    stage.world().KillServer(second);
    for (uint64_t key = 2; key <= LogMoves::kKeys; key += 3) ASSERT_TRUE(stage.Put(owner, key));
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.Kill(owner);
    stage.Leave(owner);
    for (uint64_t key = 1; key <= LogMoves::kKeys; ++key) ASSERT_TRUE(stage.Get(next, key));
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.LookAgain({first, second});
    EXPECT_EQ(stage.what(), "") << "seed " << seed;
  }
  EXPECT_GE(played, 2);
}

// The cluster tree is gone as well: no attempt at another place can be told to anybody.
TEST(OwnedLogMove, WhereItsEntryIsOutOfReachItTakesNoMemory) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogMoves stage(LogMoves::Options(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    if (log == 0) continue;
    ++played;
    const uint64_t extents = stage.cluster().Counter("extents");
    for (const ServerId server : {ServerId{1}, log}) stage.world().KillServer(server);
    stage.Quiet(3 * kSecondNs);
    EXPECT_LE(stage.cluster().Counter("extents"), extents + 1) << "seed " << seed;
  }
  EXPECT_GE(played, 3);
}

TEST(OwnedLogMove, WhatIsGivenMeanwhileIsInItsLeaves) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    EXPECT_EQ(LogMoves(LogMoves::Options(seed)).GiveWhileTheLogMoves(), "") << "seed " << seed;
  }
}

// Between any two of its packets from the death of the log's server on: its keys are as they were
// acknowledged, or they are Unavailable.
TEST(OwnedLogMove, TheOwnerDiesOnTheWay) {
  int whole = 0, lost = 0;
  for (uint64_t packets = 0; packets < 60; ++packets) {
    LogMoves stage(LogMoves::Options(/*seed=*/3));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    ASSERT_TRUE(log != 0 && stage.Open(next, 0));
    stage.world().KillServer(log);
    stage.KillAfter(owner, packets);
    for (uint64_t key = 1; key <= LogMoves::kKeys && !owner->dead; ++key) stage.Put(owner, key);
    stage.Quiet(20 * kMillisecondNs);
    stage.Kill(owner);
    stage.Leave(owner);
    const uint64_t refused = stage.refused();
    for (uint64_t key = 1; key <= LogMoves::kKeys; ++key) ASSERT_TRUE(stage.Get(next, key));
    ++(stage.refused() == refused ? whole : lost);
    const history::CheckResult checked = history::CheckHistory(stage.history(0), nullptr, nullptr);
    EXPECT_TRUE(checked.violations.empty()) << checked.violations[0] << ", " << packets;
    EXPECT_EQ(stage.what(), "") << packets;
  }
  EXPECT_GE(whole, 5);
  EXPECT_GE(lost, 2);
}

// Rule D6: owner and log are lost, until somebody says that this is so.
TEST(OwnedLogMove, AnOperatorAcceptsTheLoss) {
  LogMoves stage(LogMoves::Options(/*seed=*/3));
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  const ServerId log = stage.Begin(owner);
  ASSERT_NE(log, 0);
  stage.Kill(owner);
  stage.Leave(owner);
  stage.cluster().StartAgain(log);
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(next, 0));
  const auto before = next->sessions[0]->Get(*next->trees[0], KeyOf(1));
  EXPECT_TRUE(absl::IsUnavailable(before.status())) << before.status();
  std::vector<LossInfo> losses;
  const absl::Status alive = AcceptLoss(*next->client, {.servers_dead = {log}}, &losses);
  EXPECT_TRUE(absl::IsFailedPrecondition(alive)) << alive;
  ASSERT_TRUE(AcceptLoss(*next->client, {}, &losses).ok());
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].tree, OwnedStage::TreeName(0));
  EXPECT_EQ(losses[0].low + losses[0].high, "");
  EXPECT_EQ(losses[0].since, 1u);
  EXPECT_NE(losses[0].why.find("the log of"), std::string::npos) << losses[0].why;
  const auto after = next->sessions[0]->Get(*next->trees[0], KeyOf(1));
  EXPECT_TRUE(after.ok() || absl::IsNotFound(after.status())) << after.status();
  ASSERT_TRUE(AcceptLoss(*next->client, {}, &losses).ok());
  EXPECT_TRUE(losses.empty()) << "twice";
}

}  // namespace
}  // namespace pando
