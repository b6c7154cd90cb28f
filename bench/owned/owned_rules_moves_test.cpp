// What goes wrong where ranges are claimed, divided and given, and a rule of that does not hold
// (common/base/rule.h).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/owned/owned_rules.h"
#include "bench/owned/owned_stage.h"
#include "common/base/rule.h"
#include "compute/owner/spread_plan.h"

namespace pando {
namespace {

using history::OperationKind;

// An owner closes its tree, and leaves.
TEST_F(OwnedRulesTest, O7) {
  ExpectShown(Rule::kO7, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0)) return stage.what();
    for (uint64_t key = 1; key <= 10; ++key) Put(&stage, owner, key);
    stage.Leave(owner);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// A tree is dropped by who has its lower part. The entry of the upper one is nobody's then, covers
// all keys, and is there for another handle that is still open.
TEST_F(OwnedRulesTest, O8) {
  ExpectShown(Rule::kO8, [](uint64_t seed) -> std::string {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.owner = true;
    client.spread_ranges = false;
    OwnedActor* const dropper = stage.Join(client);
    OwnedActor* const upper = stage.Join(client);
    OwnedActor* const late = stage.Join(client);
    for (OwnedActor* const actor : {dropper, upper, late}) {
      if (!stage.Open(actor, 0)) return stage.what();
    }
    for (uint64_t k = 1; k <= 20; ++k) Put(&stage, dropper, k);
    if (!stage.Split(dropper, 0, 0, KeyOf(10)).ok() ||
        !stage.Give(dropper, 0, 0, KeyOf(15), upper).ok()) {
      return "the set-up has failed";
    }
    stage.NoteDropped(0);
    if (!dropper->client->DropTree(OwnedStage::TreeName(0)).ok()) return "it is not dropped";
    upper->trees[0].reset();
    const auto got = late->sessions[0]->Get(*late->trees[0], KeyOf(1));
    if (!absl::IsFailedPrecondition(got.status())) {
      return "a key that was written: " + (got.ok() ? *got : got.status().ToString());
    }
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// What one has written is divided, and read before it is flushed.
TEST_F(OwnedRulesTest, O10) {
  ExpectShown(Rule::kO10, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0)) return stage.what();
    for (uint64_t k = 1; k <= 9; ++k) Put(&stage, owner, k);
    (void)stage.Split(owner, 0, 0, KeyOf(5));
    for (uint64_t k = 1; k <= 9; ++k) Get(&stage, owner, k);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// A key is erased, and its leaf hears of that, while what is clean follows a division: its record
// of before is still behind then.
TEST_F(OwnedRulesTest, O10Behind) {
  ExpectShown(Rule::kO10Behind, [](uint64_t seed) -> std::string {
    constexpr uint64_t kKeys = 300;
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.hot_bytes = 1 << 20;
    client.spread_ranges = false;
    OwnedActor* const owner = stage.Join(client, 2);
    if (!stage.Open(owner, 0)) return stage.what();
    for (uint64_t k = 1; k <= kKeys; ++k) Put(&stage, owner, k);
    if (!stage.Flush(owner, 0)) return "the set-up has failed";
    bool follows = true;
    stage.Spawn(owner, 1, [&] {
      if (!stage.Split(owner, 1, 0, KeyOf(kKeys)).ok()) stage.Problem("it is not divided");
      follows = false;
    });
    while (follows && owner->client->Stats().owned.splits == 0) stage.Quiet(500);
    stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kDelete, KeyOf(kKeys - 1)));
    stage.Flush(owner, 0);
    if (!follows) return "all has followed before";
    owner->sessions[1]->Run();
    Get(&stage, owner, kKeys - 1);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// Puts go on while the range is given.
TEST_F(OwnedRulesTest, O11) {
  ExpectShown(Rule::kO11, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.owner = true;
    OwnedActor* const giver = stage.Join(client, 2);
    OwnedActor* const taker = stage.Join(client);
    if (!stage.Open(giver, 0) || !stage.Open(taker, 0) || !Put(&stage, giver, 1)) {
      return stage.what();
    }
    stage.Spawn(giver, 1, [&] {
      for (uint64_t k = 1; k <= 60; ++k) {
        stage.Do(giver, 1, 0, OwnedStage::Make(OperationKind::kPut, KeyOf(k), stage.NewValue()));
      }
    });
    (void)stage.Give(giver, 0, 0, KeyOf(1), taker);
    giver->sessions[1]->Run();
    for (uint64_t k = 1; k <= 60; ++k) Get(&stage, taker, k);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// A range goes to another one, is written there, and comes back to who has its old messages in his
// log, and dies.
TEST_F(OwnedRulesTest, O12) {
  ExpectShown(Rule::kO12, [](uint64_t seed) {
    OwnedStageOptions options = {.trees = 2};
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.owner = true;
    OwnedActor* const one = stage.Join(client);
    OwnedActor* const other = stage.Join(client);
    for (OwnedActor* const actor : {one, other}) {
      for (const size_t tree : {0, 1}) {
        if (!stage.Open(actor, tree)) return stage.what();
      }
    }
    // It holds the log's base.
    stage.Do(one, 0, 1, OwnedStage::Make(OperationKind::kPut, KeyOf(1), stage.NewValue()));
    Put(&stage, one, 2);
    (void)stage.Give(one, 0, 0, KeyOf(2), other);
    Put(&stage, other, 2);
    (void)stage.Give(other, 0, 0, KeyOf(2), one);
    Get(&stage, one, 2);
    stage.Kill(one);
    stage.Leave(one);
    Get(&stage, other, 2);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// Two members, one of which has everything, and most of that in one range.
TEST_F(OwnedRulesTest, O13) {
  ExpectShown(Rule::kO13, [](uint64_t) -> std::string {
    std::vector<SpreadRange> ranges = {{900, true, false}, {100, true, false}};
    size_t owner[] = {0, 0};
    int moves = 0;
    for (int round = 0; round < 40; ++round) {
      for (const size_t member : {0, 1}) {
        std::vector<SpreadRange> own;
        std::vector<size_t> which;
        double loads[2] = {0, 0};
        for (size_t i = 0; i < ranges.size(); ++i) {
          loads[owner[i]] += ranges[i].operations_per_s;
          if (owner[i] != member) continue;
          own.push_back(ranges[i]);
          which.push_back(i);
        }
        const SpreadStep step = SpreadPlan::Next(loads[member], own, {loads[1 - member]}, 0.5);
        if (step.kind != SpreadStep::Kind::kGive) continue;
        owner[which[step.range]] = 1 - member;
        ++moves;
      }
    }
    return moves > 2 ? "ranges go back and forth" : "";
  });
}

// It cannot reach anybody while it claims a range, closes the tree before it knows what has come of
// that, and leaves.
std::string LeaveAfterAClaim(uint64_t seed, uint64_t packets) {
  OwnedStageOptions options = {.circumstances = {.breaks = true, .owners_end = true}};
  options.cluster.sim.seed = seed;
  OwnedStage stage(options);
  ClientOptions client = OwnedStage::SmallOwner();
  client.owner = true;
  client.operation_timeout_ms = 1;
  OwnedActor* const owner = stage.Join(client);
  if (!stage.Open(owner, 0)) return stage.what();
  bool is_over = false;
  stage.world().LimitPackets(*owner->fabric, packets);
  stage.Spawn(owner, 0, [&] {
    Put(&stage, owner, 1);
    is_over = true;
  });
  while (!stage.world().PacketsSpent(*owner->fabric) && !is_over) stage.Quiet(kMicrosecondNs);
  for (const ServerId server : {1, 2}) stage.world().CutLink(*owner->fabric, server, true);
  stage.world().LimitPackets(*owner->fabric, kNoPacketLimit);
  stage.Quiet(3 * kSecondNs);
  owner->sessions[0]->Run();
  owner->trees[0].reset();
  for (const ServerId server : {1, 2}) stage.world().CutLink(*owner->fabric, server, false);
  (void)stage.Retire(owner, 10'000);
  stage.LookAtTheEnd();
  return stage.what();
}

TEST_F(OwnedRulesTest, O14) {
  ExpectShown(Rule::kO14, [](uint64_t seed) {
    std::string shown;
    for (uint64_t packets = 0; packets < 12 && shown.empty(); ++packets) {
      shown = LeaveAfterAClaim(seed, packets);
    }
    return shown;
  });
}

// Links break while others' keys are written.
TEST_F(OwnedRulesTest, P3) {
  ExpectShown(Rule::kP3, [](uint64_t seed) {
    OwnedStageOptions options = {.circumstances = {.breaks = true}};
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.spread_ranges = false;
    OwnedActor* const owner = stage.Join(client);
    OwnedActor* const other = stage.Join(client);
    if (!stage.Open(owner, 0) || !stage.Open(other, 0) || !Put(&stage, owner, 1)) {
      return stage.what();
    }
    stage.world().SetPeerBreakProbability(*owner->fabric, 0.2);
    for (uint64_t key = 2; key <= 20; ++key) {
      stage.Do(other, 0, 0, OwnedStage::Make(OperationKind::kInsert, KeyOf(key), stage.NewValue()));
    }
    stage.world().SetPeerBreakProbability(*owner->fabric, 0);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

}  // namespace
}  // namespace pando
