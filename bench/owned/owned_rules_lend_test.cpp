// What goes wrong where ranges are lent to who reads them, and a part of rule O15 does not hold
// (common/base/rule.h).
#include <gtest/gtest.h>

#include <string>

#include "bench/owned/owned_rules.h"
#include "bench/owned/owned_stage.h"
#include "common/base/rule.h"

namespace pando {
namespace {

// As often as it takes to be worth a question, and some more.
constexpr int kReads = 20;

// One has written, another one reads from leaves.
class LendingStage : public OwnedStage {
 public:
  explicit LendingStage(uint64_t seed) : OwnedStage(Options(seed)) {
    ClientOptions client = SmallOwner();
    client.owner = true;
    client.spread_ranges = false;
    client.lend_after_ms = 0;
    owner = Join(client, 2);
    other = Join(client, 2);
    reader = Join(client, 2);
    for (OwnedActor* const actor : {owner, other, reader}) {
      if (!Open(actor, 0)) Problem("the set-up has failed");
    }
    for (uint64_t k = 1; k <= 5; ++k) Put(this, owner, k);
    if (!Flush(owner, 0)) Problem("the set-up has failed");
  }
  void Read(int times = kReads) {
    for (int i = 0; i < times; ++i) Get(this, reader, 1);
  }
  // The reader has just been lent the keys.
  void Lend() {
    Quiet(10 * kMillisecondNs);
    Read();
    if (reader->client->Stats().owned.lent == 0) Problem("nothing is lent");
  }
  std::string End() {
    Read();
    LookAtTheEnd();
    return what();
  }

  OwnedActor* owner;
  OwnedActor* other;
  OwnedActor* reader;

 private:
  static OwnedStageOptions Options(uint64_t seed) {
    OwnedStageOptions options = {.circumstances = {.owners_end = true}};
    options.cluster.sim.seed = seed;
    return options;
  }
};

// What is in the owner's memory alone is read elsewhere.
TEST_F(OwnedRulesTest, O15Clean) {
  ExpectShown(Rule::kO15Clean, [](uint64_t seed) {
    LendingStage stage(seed);
    Put(&stage, stage.owner, 1);
    return stage.End();
  });
}

TEST_F(OwnedRulesTest, O15Write) {
  ExpectShown(Rule::kO15Write, [](uint64_t seed) {
    LendingStage stage(seed);
    stage.Lend();
    Put(&stage, stage.owner, 1);
    return stage.End();
  });
}

// Who gets the range writes to it at once.
TEST_F(OwnedRulesTest, O15Give) {
  ExpectShown(Rule::kO15Give, [](uint64_t seed) {
    LendingStage stage(seed);
    stage.Lend();
    (void)stage.Give(stage.owner, 0, 0, KeyOf(1), stage.other);
    Put(&stage, stage.other, 1);
    return stage.End();
  });
}

// The owner has died, and who takes its place writes at once.
TEST_F(OwnedRulesTest, O15Dead) {
  ExpectShown(Rule::kO15Dead, [](uint64_t seed) {
    LendingStage stage(seed);
    stage.Lend();
    stage.Kill(stage.owner);
    Put(&stage, stage.other, 1);
    return stage.End();
  });
}

}  // namespace
}  // namespace pando
