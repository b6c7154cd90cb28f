// A range is divided, and divided again before its records have followed, while its owner gives up
// what it has and keys of it are erased: no record of before comes back (rule O10).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/owned/owned_stage.h"
#include "bench/owned/two_servers.h"

namespace pando {
namespace {

using history::OperationKind;

constexpr uint64_t kKeys = 2'000, kFirstBorder = 1'000, kSecondBorder = 700;
constexpr uint64_t kDirty = 500;
constexpr int kEraseRounds = 100;

std::string Play(uint64_t seed, uint64_t* divided_twice) {
  OwnedStageOptions options;
  options.cluster.sim.seed = seed;
  options.cluster.main_bytes = 16 << 20;
  options.circumstances.owners_end = true;
  OwnedStage stage(options);
  ClientOptions client = OwnedStage::SmallOwner();
  client.hot_bytes = 4 << 20;
  client.log_bytes = 2 << 20;
  client.spread_ranges = false;
  client.owner = true;
  OwnedActor* const owner = stage.Join(client, 5);
  OwnedActor* const other = stage.Join(client);
  if (!stage.Open(owner, 0) || !stage.Open(other, 0)) return stage.what();
  // Clean, and many: following takes a while.
  for (uint64_t k = 1; k <= kKeys; ++k) {
    stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kPut, KeyOf(k), stage.NewValue()));
  }
  if (!stage.Flush(owner, 0)) return stage.what();
  Random* const random = &stage.random();
  const auto any_key = [random] {
    return KeyOf(kSecondBorder + random->Uniform(kFirstBorder - kSecondBorder));
  };
  // What is dirty: the first of the flushes before the range is given takes a while.
  // So does that of the range above, which goes before the parts of this one do.
  for (uint64_t i = 0; i < kDirty; ++i) {
    const std::string above = KeyOf(kFirstBorder + i * (kKeys - kFirstBorder) / kDirty);
    stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kPut, above, stage.NewValue()));
    if (i % 8 != 0) continue;
    stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kPut, any_key(), stage.NewValue()));
  }
  stage.Spawn(owner, 1, [&] { (void)stage.Split(owner, 1, 0, KeyOf(kFirstBorder)); });
  while (owner->client->Stats().owned.splits == 0) stage.Quiet(200);
  std::vector<std::string> erased;
  stage.Spawn(owner, 2, [&] { (void)stage.Split(owner, 2, 0, KeyOf(kSecondBorder)); });
  for (int task = 0; task < 4; ++task) {
    stage.Spawn(owner, 3, [&] {
      for (int round = 0; round < kEraseRounds; ++round) {
        const std::string key = any_key();
        if (random->Chance(0.3)) {
          stage.Do(owner, 3, 0, OwnedStage::Make(OperationKind::kPut, key, stage.NewValue()));
        }
        if (!stage.Do(owner, 3, 0, OwnedStage::Make(OperationKind::kDelete, key))) return;
        erased.push_back(key);
      }
    });
    stage.Spawn(owner, 4, [&] {
      for (int round = 0; round < 3 * kEraseRounds; ++round) {
        const std::string key = erased.empty() ? any_key() : erased[random->Uniform(erased.size())];
        if (!stage.Do(owner, 4, 0, OwnedStage::Make(OperationKind::kGet, key))) return;
      }
    });
  }
  stage.Quiet(static_cast<int64_t>(random->Uniform(30'000)));
  (void)stage.Retire(owner, 10'000);
  *divided_twice += owner->client->Stats().owned.splits == 2 ? 1 : 0;
  for (const int i : {2, 3, 4}) owner->sessions[static_cast<size_t>(i)]->Run();
  stage.LookAtTheEnd();
  return stage.what();
}

TEST(OwnedDivide, WhatIsErasedWhileItsRangeIsDividedAndGivenStaysErased) {
  uint64_t divided_twice = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    EXPECT_EQ(Play(seed, &divided_twice), "") << "seed " << seed;
  }
  EXPECT_GT(divided_twice, 10u);
}

// A flush lets a division pass between two rounds, of a range that it has not come to yet (rule
// B4).
TEST(OwnedDivide, AFlushBringsAllOfARangeThatIsDividedMeanwhile) {
  OwnedStage stage({});
  ClientOptions client = OwnedStage::SmallOwner();
  client.spread_ranges = false;
  OwnedActor* const owner = stage.Join(client, 2);
  ASSERT_TRUE(stage.Open(owner, 0));
  constexpr uint64_t kFew = 40, kBorder = 20, kNext = 30;
  const auto put_all = [&] {
    for (uint64_t k = 1; k <= kFew; ++k) {
      stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kPut, KeyOf(k), stage.NewValue()));
    }
  };
  put_all();
  ASSERT_TRUE(stage.Split(owner, 0, 0, KeyOf(kBorder)).ok());
  put_all();
  ASSERT_GT(owner->client->Stats().owned.dirty_bytes, 0u);
  absl::Status flushed = absl::UnknownError("not yet"), divided = flushed;
  stage.Spawn(owner, 0, [&] { flushed = owner->sessions[0]->Flush(*owner->trees[0]); });
  stage.Quiet(100);
  stage.Spawn(owner, 1, [&] { divided = stage.Split(owner, 1, 0, KeyOf(kNext)); });
  owner->sessions[0]->Run();
  const uint64_t dirty = owner->client->Stats().owned.dirty_bytes;
  owner->sessions[1]->Run();
  EXPECT_TRUE(flushed.ok()) << flushed;
  EXPECT_TRUE(divided.ok()) << divided;
  EXPECT_EQ(owner->client->Stats().owned.ranges, 3u);
  EXPECT_EQ(dirty, 0u);
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// While a division waits for the cluster tree flushes go on: erases have deadlines (rule B5).
TEST(OwnedDivide, AFlushDoesNotWaitForTheClusterTree) {
  constexpr uint64_t kLows = 20;
  TwoServers two(kLows);
  OwnedActor* const owner = two.owner;
  const uint64_t dirty = owner->client->Stats().owned.dirty_bytes;
  two.stage.world().CutLink(*owner->fabric, 1, true);
  absl::Status divided = absl::UnknownError("not yet");
  two.stage.Spawn(owner, 1,
                  [&] { divided = two.stage.Split(owner, 1, 0, KeyOf(two.low + kLows / 2)); });
  two.stage.Quiet(kMillisecondNs);
  ASSERT_TRUE(absl::IsUnknown(divided)) << divided;
  // The leaf of the upper range may be where the cluster tree is.
  (void)owner->sessions[0]->Flush(*owner->trees[0], {.timeout_ms = 10});
  EXPECT_LT(owner->client->Stats().owned.dirty_bytes, dirty / 2);
  two.stage.world().CutLink(*owner->fabric, 1, false);
  owner->sessions[1]->Run();
  two.stage.LookAtTheEnd();
  EXPECT_EQ(two.stage.what(), "");
}

}  // namespace
}  // namespace pando
