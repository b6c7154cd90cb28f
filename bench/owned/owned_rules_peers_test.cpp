// What goes wrong where keys are others', and a rule of the way there does not hold
// (common/base/rule.h).
#include <gtest/gtest.h>

#include <string>

#include "bench/owned/owned_rules.h"
#include "bench/owned/owned_stage.h"
#include "common/base/rule.h"

namespace pando {
namespace {

OwnedStageOptions OfSeed(uint64_t seed) {
  OwnedStageOptions options;
  options.cluster.sim.seed = seed;
  return options;
}

// Their ranges go where a test says.
ClientOptions QuietOwner() {
  ClientOptions client = OwnedStage::SmallOwner();
  client.owner = true;
  client.spread_ranges = false;
  return client;
}

// One of them opens the tree as if its entry said nothing.
TEST_F(OwnedRulesTest, O1) {
  ExpectShown(Rule::kO1, [](uint64_t seed) {
    const Rule broken = BrokenRule();
    BreakRule(Rule::kNone);
    OwnedStage stage(OfSeed(seed));
    OwnedActor* const owner = stage.Join(QuietOwner());
    if (!stage.Open(owner, 0) || !Put(&stage, owner, 1)) return stage.what();
    BreakRule(broken);
    OwnedActor* const other = stage.Join(QuietOwner());
    if (!stage.Open(other, 0)) return stage.what();
    Get(&stage, other, 1);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// Three members, of which the last one knows the key's owner.
class RoutingStage : public OwnedStage {
 public:
  explicit RoutingStage(uint64_t seed) : OwnedStage(OfSeed(seed)) {
    for (OwnedActor** const actor : {&owner, &next, &asker}) {
      ClientOptions client = QuietOwner();
      client.operation_timeout_ms = 100;
      *actor = Join(client);
      if (!Open(*actor, 0)) Problem("the set-up has failed");
    }
    if (!Put(this, owner, 1) || !Get(this, asker, 1)) Problem("the set-up has failed");
  }
  std::string GiveAndAsk() {
    if (!Give(owner, 0, 0, KeyOf(1), next).ok()) return "the set-up has failed";
    const uint64_t before = refused();
    Get(this, asker, 1);
    if (refused() > before) return "the key of a member that lives cannot be read";
    return what();
  }

  OwnedActor *owner, *next, *asker;
};

TEST_F(OwnedRulesTest, O6) {
  ExpectShown(Rule::kO6, [](uint64_t seed) {
    RoutingStage stage(seed);
    const std::string shown = stage.GiveAndAsk();
    if (!shown.empty()) return shown;
    stage.LookAtTheEnd();
    return stage.what();
  });
}

}  // namespace
}  // namespace pando
