#include "compute/check/node_accounting.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr uint32_t kNodeBytes = 1024;

RemoteAddress At(uint64_t node) { return {1, 4096 + node * kNodeBytes}; }
NodeUseRun Nodes(uint64_t first, uint64_t count, NodeUse use) {
  return {At(first).offset(), count * kNodeBytes, use, 0};
}

// Nodes 0..2 are the tree's. One run a part.
absl::StatusOr<AccountingResult> Account(const std::vector<NodeUseRun>& runs) {
  return AccountForNodes({1}, kNodeBytes, {{At(0), 1}, {At(1), 2}, {At(2), 3}},
                         [&](ServerId, uint64_t after_offset) -> absl::StatusOr<NodeList> {
                           for (const NodeUseRun& run : runs) {
                             if (run.offset < after_offset) continue;
                             const uint8_t more = run == runs.back() ? 0 : 1;
                             return NodeList{more, run.offset + run.bytes, {run}};
                           }
                           return NodeList{};
                         });
}

TEST(NodeAccountingTest, EverythingHasItsPlace) {
  const auto result = Account({Nodes(0, 2, NodeUse::kSettled), Nodes(2, 5, NodeUse::kOut),
                               Nodes(7, 2, NodeUse::kOrphan), Nodes(9, 3, NodeUse::kFree),
                               Nodes(12, 4, NodeUse::kUntouched)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->suspects, IsEmpty());
  EXPECT_EQ(result->counts.reachable, 3u);
  EXPECT_EQ(result->counts.held, 4u);
  EXPECT_EQ(result->counts.orphans, 2u);
  EXPECT_EQ(result->counts.free, 7u);
}

TEST(NodeAccountingTest, ALostNode) {
  const auto result = Account({Nodes(0, 4, NodeUse::kSettled)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->suspects, ElementsAre(Pair(At(3).raw(), HasSubstr("node 1:7168 is lost"))));
}

TEST(NodeAccountingTest, ANodeOfTheTreeThatIsFree) {
  for (const NodeUse use : {NodeUse::kFree, NodeUse::kUntouched}) {
    const auto result = Account({Nodes(0, 2, NodeUse::kSettled), Nodes(2, 1, use)});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(
        result->suspects,
        ElementsAre(Pair(At(2).raw(), HasSubstr("node 1:6144 life 3 is part of the tree"))));
  }
}

TEST(NodeAccountingTest, ANodeThatNobodyGave) {
  const auto result = Account({Nodes(0, 2, NodeUse::kSettled)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->suspects, ElementsAre(Pair(At(2).raw(), HasSubstr("not among the nodes"))));
}

TEST(NodeAccountingTest, AListThatDoesNotEnd) {
  const auto result =
      AccountForNodes({1}, kNodeBytes, {}, [](ServerId, uint64_t) { return NodeList{.more = 1}; });
  EXPECT_TRUE(absl::IsDataLoss(result.status()));
}

}  // namespace
}  // namespace pando
