// Nodes after the end of their holder: who gets them back, and what a sweep is told (rule C5).
#include <algorithm>
#include <array>

#include "memory/ledger_test_util.h"

namespace pando::memory {
namespace {

class NodeSweepTest : public LedgerTest {
 protected:
  // All parts of the list, asked for `max` at a time.
  std::vector<Orphan> Orphans(uint32_t max = 100, uint32_t tree = kTree) {
    std::vector<Orphan> all;
    OrphanList list;
    uint64_t after = 0;
    do {
      list = ledger_.ListOrphans({tree, after, max});
      EXPECT_LE(list.orphans.size(), max);
      all.insert(all.end(), list.orphans.begin(), list.orphans.end());
      EXPECT_TRUE(list.more == 0 || list.next > after);
      after = list.next;
    } while (list.more == 1);
    return all;
  }
  uint32_t Hint() {
    const auto grant = Allocate(kBert);
    EXPECT_TRUE(grant.ok()) << grant.status();
    return grant->orphans;
  }
};

TEST_F(NodeSweepTest, AHolderThatDiesBeforeItWritesLosesNothing) {
  const auto nodes = AllocateAll(kAnna);
  ledger_.EndHolder(kAnna, {kTree});
  FinishSteps();
  EXPECT_TRUE(Orphans().empty());
  EXPECT_EQ(AllocateAll(kBert).size(), nodes.size()) << "free at once";
  EXPECT_TRUE(absl::IsInvalidArgument(ledger_.Return(kAnna, {kTree, {{nodes[0], kNode, 0}}})));
}

TEST_F(NodeSweepTest, WhatADeadHolderHasWrittenWaitsForASweep) {
  const auto nodes = NodesOf(*Allocate(kAnna));
  const auto berts = NodesOf(*Allocate(kBert));
  const uint32_t life = Write(nodes[2]);
  Write(nodes[9]);
  Write(berts[0]);
  ledger_.EndHolder(kAnna, {kTree});
  FinishSteps();
  const std::vector<Orphan> expected = {{nodes[2], kAnna.compute_server, kAnna.incarnation, 1},
                                        {nodes[9], kAnna.compute_server, kAnna.incarnation, 1}};
  EXPECT_EQ(Orphans(), expected);
  EXPECT_EQ(Orphans(1), expected) << "one at a time";
  EXPECT_GE(Hint(), 2u);
  // Linked: the tree's. Not linked: free.
  EXPECT_EQ(Settle({{nodes[9], 1}, {nodes[9], 1}, {nodes[0], 1}, {nodes[9] + 64, 1}}), 1u);
  EXPECT_TRUE(Free(nodes[2], life));
  EXPECT_TRUE(Orphans().empty());
  EXPECT_EQ(Hint(), 0u) << "swept";
  EXPECT_EQ(ledger_.counts().nodes_settled, 1u);
  ExpectBalanced();
}

TEST_F(NodeSweepTest, AHolderThatSaysSoLeavesItsNodesToTheTree) {
  const auto nodes = NodesOf(*Allocate(kAnna));
  for (const uint64_t node : nodes) Write(node);
  ledger_.CloseHolder(kAnna, kTree, true);
  EXPECT_TRUE(ledger_.idle());
  EXPECT_EQ(ledger_.counts().nodes_settled, nodes.size());
  EXPECT_TRUE(Orphans().empty());
  EXPECT_EQ(Hint(), 0u);
  EXPECT_TRUE(Free(nodes[3], 1)) << "others free what they unlink";
}

TEST_F(NodeSweepTest, AfterADeathMarkedNodesOfAnybodyAreShown) {
  const auto annas = NodesOf(*Allocate(kAnna));
  const auto berts = NodesOf(*Allocate(kBert));
  for (int i = 0; i < 6; ++i) Write(berts[i]);
  ledger_.CloseHolder(kBert, kTree, true);
  const auto more = NodesOf(*Allocate(kBert));
  Write(more[0]);
  Mark(berts[1], NodeState::kDead);
  Mark(berts[2], NodeState::kMerging, {RemoteAddress(1, berts[1]), 1});
  Mark(berts[3], NodeState::kLive, {RemoteAddress(1, berts[2]), 1});
  Mark(more[0], NodeState::kDead);
  EXPECT_TRUE(Orphans().empty()) << "nobody has died: the living clear up behind themselves";
  ledger_.EndHolder(kAnna, {kTree});
  FinishSteps();
  EXPECT_EQ(Orphans(2),
            std::vector<Orphan>({{berts[1], 0, 0, 1},
                                 {berts[2], 0, 0, 1},
                                 {berts[3], 0, 0, 1},
                                 {more[0], kBert.compute_server, kBert.incarnation, 1}}));
  EXPECT_GE(Hint(), 1u);
  EXPECT_TRUE(Free(berts[1], 1));
  EXPECT_TRUE(Free(more[0], 1));
  Mark(berts[2], NodeState::kLive);
  Mark(berts[3], NodeState::kLive);
  EXPECT_TRUE(Orphans().empty());
  EXPECT_EQ(Hint(), 0u) << "a pass has found nothing";
}

// Its chunks are gone through some at a time: who asks before that is over hears whose they were.
TEST_F(NodeSweepTest, AMarkedNodeOfTheDeadIsShownAsTheirsAtOnce) {
  const auto nodes = AllocateAll(kAnna);
  Write(nodes.back());
  Mark(nodes.back(), NodeState::kMerging, {RemoteAddress(1, nodes[0]), 1});
  ledger_.EndHolder(kAnna, {kTree});
  const OrphanList list = ledger_.ListOrphans({kTree, nodes.back() - kNode, 1});
  EXPECT_FALSE(ledger_.idle()) << "all has been gone through";
  EXPECT_EQ(list.orphans,
            std::vector<Orphan>({{nodes.back(), kAnna.compute_server, kAnna.incarnation, 1}}));
}

TEST_F(NodeSweepTest, ARecycledSpareOfALivingClientIsNotTakenForDead) {
  const auto nodes = AllocateAll(kAnna);
  Write(nodes[0]);
  Mark(nodes[0], NodeState::kDead);
  ASSERT_TRUE(Free(nodes[0], 1));
  clock_.now_ns += kRested;
  ASSERT_EQ(NodesOf(*Allocate(kBert)), std::vector<uint64_t>({nodes[0]}));
  ledger_.EndHolder(kAnna, {kTree});
  FinishSteps();
  EXPECT_TRUE(Orphans().empty()) << "its old image says dead";
}

TEST_F(NodeSweepTest, OnlyAWholePassWithoutAFindEndsTheSuspicion) {
  const auto nodes = NodesOf(*Allocate(kAnna));
  for (int i = 0; i < 4; ++i) Write(nodes[i]);
  ledger_.CloseHolder(kAnna, kTree, true);
  ledger_.EndHolder(kBert, {kTree});
  Mark(nodes[0], NodeState::kDead);
  // The second half of somebody's pass says nothing about the first one.
  (void)ledger_.ListOrphans({kTree, nodes[1], 100});
  EXPECT_GE(Hint(), 1u);
  EXPECT_EQ(Orphans().size(), 1u);
  EXPECT_GE(Hint(), 1u);
  Mark(nodes[0], NodeState::kLive);
  EXPECT_TRUE(Orphans().empty());
  EXPECT_EQ(Hint(), 0u);
}

TEST_F(NodeSweepTest, WhatWasBusyInEachPassIsStillShownToWhoAsks) {
  const auto nodes = NodesOf(*Allocate(kAnna));
  Write(nodes[0]);
  ledger_.CloseHolder(kAnna, kTree, true);
  ledger_.EndHolder(kBert, {kTree});
  Mark(nodes[0], NodeState::kDead);
  for (int pass = 0; pass < 100 && Hint() > 0; ++pass) EXPECT_EQ(Orphans().size(), 1u);
  EXPECT_EQ(Hint(), 0u) << "clients are not kept busy for ever";
  EXPECT_EQ(Orphans().size(), 1u);
  EXPECT_TRUE(Free(nodes[0], 1));
  EXPECT_TRUE(Orphans().empty());
}

// Each from its own place, a part at a time, and none is slower than the other.
TEST_F(NodeSweepTest, SeveralWhoAskInTurnsEndAPass) {
  const auto nodes = NodesOf(*Allocate(kAnna));
  for (int i = 0; i < 4; ++i) Write(nodes[i]);
  ledger_.CloseHolder(kAnna, kTree, true);
  ledger_.EndHolder(kBert, {kTree});
  for (int i = 0; i < 4; ++i) Mark(nodes[i], NodeState::kDead);
  std::array<uint64_t, 2> places = {0, nodes[1]};
  for (int turn = 0; turn < 200; ++turn) {
    uint64_t& place = places[turn % 2];
    const OrphanList list = ledger_.ListOrphans({kTree, place, 1});
    place = list.more == 1 ? list.next : 0;
  }
  EXPECT_EQ(Hint(), 0u);
}

// Rule R6: it lives, and something of it may be in flight.
TEST_F(NodeSweepTest, WhoClosesAndIsNotSureKeepsEverythingUntilItEnds) {
  const auto left = NodesOf(*Allocate(kAnna));
  Write(left[0]);
  EXPECT_FALSE(ledger_.IsInDoubt(kTree));
  ledger_.CloseHolder(kAnna, kTree, false);
  FinishSteps();
  EXPECT_TRUE(ledger_.IsInDoubt(kTree));
  EXPECT_EQ(ledger_.counts().nodes_out, left.size());
  const auto others = AllocateAll(kBert);
  for (const uint64_t node : others) {
    EXPECT_EQ(std::find(left.begin(), left.end(), node), left.end()) << node;
  }
  for (const uint64_t node : others) ASSERT_TRUE(Free(node, Write(node)));
  clock_.now_ns += kRested;
  // It comes again, and is sure this time: of that, not of before.
  const auto now = NodesOf(*Allocate(kAnna));
  Write(now[1]);
  ledger_.CloseHolder(kAnna, kTree, true);
  FinishSteps();
  EXPECT_EQ(ledger_.counts().nodes_settled, 0u);
  EXPECT_TRUE(ledger_.IsInDoubt(kTree));
  ledger_.EndHolder(kAnna, {});
  FinishSteps();
  EXPECT_FALSE(ledger_.IsInDoubt(kTree));
  EXPECT_EQ(ledger_.counts().nodes_out, 0u);
  std::vector<Orphan> expected = {{left[0], kAnna.compute_server, kAnna.incarnation, 1},
                                  {now[1], kAnna.compute_server, kAnna.incarnation, 2}};
  std::sort(expected.begin(), expected.end(),
            [](const Orphan& a, const Orphan& b) { return a.offset < b.offset; });
  EXPECT_EQ(Orphans(), expected);
  ExpectBalanced();
}

TEST_F(NodeSweepTest, WhoHoldsNothingMayBeInDoubtToo) {
  ASSERT_TRUE(Allocate(kBert).ok());
  ledger_.CloseHolder(kAnna, kTree, false);
  EXPECT_TRUE(ledger_.IsInDoubt(kTree)) << "it may be about to write to what Bert holds";
  ledger_.EndHolder(kAnna, {});
  EXPECT_FALSE(ledger_.IsInDoubt(kTree));
}

TEST_F(NodeSweepTest, ATreeThatGoesTakesItsDeparturesWithIt) {
  const auto nodes = NodesOf(*Allocate(kAnna));
  Write(nodes[0]);
  ledger_.EndHolder(kAnna, {kTree});
  EXPECT_FALSE(ledger_.idle());
  ledger_.FreeTree(kTree);
  EXPECT_TRUE(ledger_.idle());
  EXPECT_EQ(ledger_.ListOrphans({kTree, 0, 10}).more, 0);
  ExpectBalanced();
}

TEST_F(NodeSweepTest, ListsEveryNodeAndWhoHasIt) {
  const auto nodes = NodesOf(*Allocate(kAnna));
  for (int i = 0; i < 3; ++i) Write(nodes[i]);
  ASSERT_TRUE(Free(nodes[1], 1));
  ASSERT_EQ(Settle({{nodes[2], 1}}), 1u);
  const NodeRun rest = {nodes[10], chunk_bytes_ - 10 * kNode, 0};
  ASSERT_TRUE(ledger_.Return(kAnna, {kTree, {rest}}).ok());
  const std::vector<NodeUseRun> expected = {
      {nodes[0], kNode, NodeUse::kOut, kAnna.incarnation},
      {nodes[1], kNode, NodeUse::kFree, 0},
      {nodes[2], kNode, NodeUse::kSettled, 0},
      {nodes[3], 7 * kNode, NodeUse::kOut, kAnna.incarnation},
      {nodes[10], chunk_bytes_ - 10 * kNode, NodeUse::kUntouched, 0}};
  const NodeList all = ledger_.ListNodes({kTree, 0, 100});
  EXPECT_EQ(all.runs, expected);
  EXPECT_EQ(all.more, 0);
  std::vector<NodeUseRun> parts;
  NodeList list;
  uint64_t after = 0;
  do {
    list = ledger_.ListNodes({kTree, after, 1});
    ASSERT_EQ(list.runs.size(), 1u);
    parts.push_back(list.runs[0]);
    after = list.next;
  } while (list.more == 1);
  EXPECT_EQ(parts, expected);
  EXPECT_TRUE(ledger_.ListNodes({kTree + 1, 0, 100}).runs.empty());
  EXPECT_TRUE(ledger_.ListNodes({kTree, UINT64_MAX, 100}).runs.empty());
  ledger_.EndHolder(kAnna, {kTree});
  FinishSteps();
  EXPECT_EQ(ledger_.ListNodes({kTree, 0, 1}).runs[0].use, NodeUse::kOrphan);
}

}  // namespace
}  // namespace pando::memory
