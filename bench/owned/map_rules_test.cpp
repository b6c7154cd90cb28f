// What goes wrong without rules of the map. Each program starts with all of them.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "bench/owned/map_play.h"
#include "bench/owned/model_play.h"
#include "bench/owned/model_store.h"
#include "common/base/epoch.h"
#include "common/base/rule.h"
#include "compute/owner/claim.h"

namespace pando {
namespace {

uint64_t SeedsWithProblems(uint64_t seeds) {
  uint64_t count = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    count += PlayModel(seed).play.problems.empty() ? 0 : 1;
  }
  return count;
}

class MapRulesTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(SeedsWithProblems(20), 0u); }
  ~MapRulesTest() override { BreakRule(Rule::kNone); }
};

// A change of unknown outcome is settled by a READ: the owner that wanted to give a range up serves
// it again, its write lands, and another one claims the range.
TEST_F(MapRulesTest, O3) {
  constexpr uint64_t kSeeds = 60;
  BreakRule(Rule::kO3);
  EXPECT_GT(SeedsWithProblems(kSeeds), kSeeds / 4);
}

// Keys are asked for that are borders.
TEST_F(MapRulesTest, O2) {
  constexpr uint64_t kSeeds = 60;
  BreakRule(Rule::kO2);
  EXPECT_GT(SeedsWithProblems(kSeeds), kSeeds / 4);
}

// The low of a range that was listed while its owner divided it and gave it up: below it the list
// is older than at its own entry.
std::string LowOfClaimWithOldLow() {
  sim::SimWorld world({});
  ModelTable table(&world, 1);
  ModelStore store(&table);
  const MappedRange listed = {.tree_id = kPlayTree, .entry = {.stamp = {1, 3}}};
  table.entries[RangeKey(kPlayTree, "m")] = Encode(RangeEntry{{1, 2}, {1, 1}, 1, {}});
  table.entries[RangeKey(kPlayTree, "")] = Encode(listed.entry);
  EpochDomain epochs;
  const std::shared_ptr<Fabric> fabric = world.NewFabric();
  SessionContext session(*fabric->Connect(0, 0), &epochs, 4, 1);
  RangeChange claim = RangeChange::Claim(listed, {2, 2}, 1, {2, 1});
  session.scheduler().Spawn([&] {
    OperationContext context(&session, session.NowNs() + kSecondNs);
    EXPECT_TRUE(claim.Settle(context, store).ok());
  });
  session.scheduler().Drain();
  EXPECT_TRUE(claim.won());
  return claim.range().low;
}

TEST_F(MapRulesTest, O4) {
  EXPECT_EQ(LowOfClaimWithOldLow(), "m");
  BreakRule(Rule::kO4);
  EXPECT_EQ(LowOfClaimWithOldLow(), "");
}

}  // namespace
}  // namespace pando
