#include "memory/tree_table.h"

#include "gtest/gtest.h"
#include "memory/id_source.h"

namespace pando::memory {
namespace {

constexpr ClientId kAnna = {1, 1};
constexpr ClientId kBert = {2, 2};
constexpr uint64_t kLife = 77;

TEST(TreeTableTest, ADroppedTreeGoesWithItsLastClient) {
  TreeTable trees(kLife);
  ASSERT_TRUE(trees.Attach(kAnna, 7, kLife).ok());
  ASSERT_TRUE(trees.Attach(kBert, 7, kLife).ok());
  ASSERT_TRUE(trees.Attach(kBert, 7, kLife).ok()) << "again";
  EXPECT_TRUE(trees.CheckMayGrow(kAnna, 7).ok());
  const auto unused = trees.Drop(7);
  ASSERT_TRUE(unused.ok());
  EXPECT_FALSE(*unused);
  EXPECT_EQ(trees.CheckMayGrow(kAnna, 7).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(trees.Attach(ClientId{3, 3}, 7, kLife).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(trees.Detach(kAnna, 7));
  EXPECT_FALSE(trees.Detach(kAnna, 7)) << "not attached any more";
  EXPECT_TRUE(trees.Detach(kBert, 7));
  EXPECT_FALSE(trees.Detach(kBert, 7));
  EXPECT_EQ(trees.Attach(kAnna, 7, kLife).code(), absl::StatusCode::kNotFound) << "never again";
}

TEST(TreeTableTest, ATreeNobodyUsesIsDroppedAtOnceAndLivesOnWithoutClientsOtherwise) {
  TreeTable trees(kLife);
  ASSERT_TRUE(trees.Attach(kAnna, 7, kLife).ok());
  EXPECT_FALSE(trees.Detach(kAnna, 7));
  ASSERT_TRUE(trees.Attach(kBert, 7, kLife).ok());
  EXPECT_FALSE(trees.Detach(kBert, 7));
  const auto unused = trees.Drop(7);
  ASSERT_TRUE(unused.ok());
  EXPECT_TRUE(*unused);
  EXPECT_FALSE(trees.Drop(0).ok());
}

TEST(TreeTableTest, RefusesTreesOfAnEarlierLifeAndNoOthers) {
  TreeTable trees(kLife);
  trees.NoteIncarnation(50);
  EXPECT_EQ(trees.highest_id(), 50u);
  EXPECT_TRUE(trees.Attach(kAnna, 45, 0).ok()) << "older, but it has nothing here";
  EXPECT_EQ(trees.Attach(kAnna, 51, kLife + 1).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(trees.highest_id(), 50u);
  EXPECT_TRUE(trees.Attach(kAnna, 51, kLife).ok());
  EXPECT_EQ(trees.highest_id(), 51u);
  EXPECT_EQ(trees.Attach(kBert, 45, kLife + 1).code(), absl::StatusCode::kDataLoss)
      << "also where somebody was let in before";
}

TEST(TreeTableTest, IncarnationsCloseTheGapsBetweenDroppedTrees) {
  TreeTable trees(kLife);
  for (uint32_t id = 1; id < 100'000; id += 2) {
    trees.NoteIncarnation(id);
    ASSERT_TRUE(trees.Attach(kAnna, id + 1, kLife).ok());
    ASSERT_FALSE(*trees.Drop(id + 1));
    ASSERT_TRUE(trees.Detach(kAnna, id + 1));
  }
  EXPECT_EQ(trees.in_use(), 0u);
}

TEST(TreeTableTest, IsBounded) {
  TreeTable trees(kLife);
  for (uint32_t id = 1; id <= TreeTable::kTreesInUseMax; ++id)
    ASSERT_TRUE(trees.Attach(kAnna, id, kLife).ok());
  EXPECT_EQ(trees.Attach(kAnna, 100'000, kLife).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(trees.TreesOf(kAnna).size(), TreeTable::kTreesInUseMax);
  EXPECT_TRUE(trees.TreesOf(kBert).empty());
  for (uint32_t id = 1; id <= TreeTable::kTreesInUseMax; ++id)
    EXPECT_FALSE(trees.Detach(kAnna, id));
  EXPECT_TRUE(trees.Attach(kBert, 100'000, kLife).ok()) << "made-up trees go with who made them up";
}

TEST(TreeTableTest, IdsThatNobodyHasGivenOutAreNotMet) {
  TreeTable trees(kLife);
  trees.NoteIncarnation(50);
  EXPECT_EQ(trees.Attach(kAnna, UINT32_MAX, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(trees.Attach(kAnna, 50 + IdSource::kMadeUpFrom, 0).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(trees.highest_id(), 50u) << "joiners tell the catalog";
}

}  // namespace
}  // namespace pando::memory
