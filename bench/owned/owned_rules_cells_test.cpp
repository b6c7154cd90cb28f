// What goes wrong with large values of owned trees where one of their rules does not hold
// (common/base/rule.h); with all of them nothing does.
#include <gtest/gtest.h>

#include <string>

#include "bench/owned/owned_rules.h"
#include "bench/owned/owned_stage.h"
#include "common/base/rule.h"

namespace pando {
namespace {

using history::OperationKind;

OwnedStageOptions WithCells(uint64_t seed) {
  OwnedStageOptions options;
  options.cluster.sim.seed = seed;
  options.tree.inline_value_bytes_max = 4;
  return options;
}

bool PutLong(OwnedStage* stage, OwnedActor* actor, uint64_t key) {
  std::string value = stage->NewValue();
  value.resize(40, '.');
  return stage->Do(actor, 0, 0,
                   OwnedStage::Make(OperationKind::kPut, KeyOf(key), std::move(value)));
}

// A key is written by who does not own it, and its cell is freed when the call has ended.
TEST_F(OwnedRulesTest, K6) {
  ExpectShown(Rule::kK6, [](uint64_t seed) {
    OwnedStage stage(WithCells(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0) || !PutLong(&stage, owner, 1)) return stage.what();
    OwnedActor* const asker = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(asker, 0) || !PutLong(&stage, asker, 2)) return stage.what();
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// The owner dies when it has freed what a write replaces, and before its message is in the log.
TEST_F(OwnedRulesTest, K7) {
  ExpectShown(Rule::kK7, [](uint64_t seed) {
    OwnedStage stage(WithCells(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0)) return stage.what();
    for (int writes = 0; writes < 3; ++writes) PutLong(&stage, owner, 2);
    // Long enough that the next free is sent at once.
    stage.Quiet(2 * kSecondNs);
    stage.KillAfter(owner, seed % 8);
    PutLong(&stage, owner, 2);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// The cells of a dead owner are swept before anybody has asked for its keys.
TEST_F(OwnedRulesTest, K8) {
  ExpectShown(Rule::kK8, [](uint64_t seed) {
    OwnedStage stage(WithCells(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0)) return stage.what();
    for (uint64_t key = 1; key <= 20; ++key) PutLong(&stage, owner, key);
    stage.Kill(owner);
    stage.Leave(owner);
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(next, 0)) return stage.what();
    stage.Quiet(20 * kMillisecondNs);
    SweepResult swept;
    (void)next->sessions[0]->Sweep(*next->trees[0], &swept);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

}  // namespace
}  // namespace pando
