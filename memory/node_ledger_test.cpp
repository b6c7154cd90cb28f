#include "memory/node_ledger.h"

#include "common/base/random.h"
#include "memory/ledger_test_util.h"

namespace pando::memory {
namespace {

using NodeLedgerTest = LedgerTest;

TEST_F(NodeLedgerTest, HandsEveryNodeOutOnceUntilTheServerIsFull) {
  const auto nodes = AllocateAll(kAnna);
  const std::set<uint64_t> distinct(nodes.begin(), nodes.end());
  EXPECT_EQ(distinct.size(), nodes.size());
  EXPECT_EQ(nodes.size(), chunk_count_ * chunk_bytes_ / kNode);
  EXPECT_GE(*distinct.begin(), region_.superblock().chunk_offset);
  EXPECT_LE(*distinct.rbegin() + kNode, region_.superblock().region_bytes);
  EXPECT_EQ(Allocate(kBert).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ledger_.counts().nodes_out, nodes.size());
  ExpectBalanced();
}

TEST_F(NodeLedgerTest, RefusesNodeSizesThatAreNoneOrNotTheTrees) {
  for (uint32_t bytes : {0u, 64u, 1000u, 1025u, 128u * 1024, UINT32_MAX}) {
    EXPECT_EQ(ledger_.Allocate(kAnna, {kTree, bytes, 1}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bytes;
  }
  ASSERT_TRUE(Allocate(kAnna).ok());
  EXPECT_EQ(ledger_.Allocate(kAnna, {kTree, 2048, 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto odd = ledger_.Allocate(kAnna, {kTree + 1, 1216, 1});
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd->runs.at(0).bytes % 1216, 0u);
  EXPECT_LE(odd->runs.at(0).bytes, chunk_bytes_);
  EXPECT_GT(odd->runs.at(0).bytes + 1216, chunk_bytes_);
}

TEST_F(NodeLedgerTest, WhatComesBackUnwrittenIsHandedOutAgainAtOnceAndInOnePiece) {
  const auto used = Allocate(kAnna);
  ASSERT_TRUE(used.ok());
  Write(used->runs[0].offset);
  const NodeRun rest = {used->runs[0].offset + kNode, used->runs[0].bytes - kNode, 0};
  ASSERT_TRUE(ledger_.Return(kAnna, {kTree, {rest}}).ok());
  const auto again = Allocate(kBert);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->runs, std::vector<NodeRun>({rest}));
  // Single nodes, in any order, come as the runs that they form.
  const uint64_t at = rest.offset;
  ASSERT_TRUE(ledger_
                  .Return(kBert, {kTree,
                                  {{at + 5 * kNode, kNode, 0},
                                   {at + 2 * kNode, kNode, 0},
                                   {at + kNode, kNode, 0}}})
                  .ok());
  const auto single = Allocate(kAnna);
  EXPECT_EQ(single->runs,
            std::vector<NodeRun>({{at + kNode, 2 * kNode, 0}, {at + 5 * kNode, kNode, 0}}));
  ExpectBalanced();
}

TEST_F(NodeLedgerTest, RefusesReturnsOfAnythingElse) {
  const auto grant = Allocate(kAnna);
  ASSERT_TRUE(grant.ok());
  const uint64_t start = grant->runs[0].offset, bytes = grant->runs[0].bytes;
  Write(start + 3 * kNode);
  const auto refused = [&](const ClientId& who, std::vector<NodeRun> runs, uint32_t tree = kTree) {
    const auto before = ledger_.counts();
    const bool refused = absl::IsInvalidArgument(ledger_.Return(who, {tree, std::move(runs)}));
    EXPECT_EQ(ledger_.counts().nodes_out, before.nodes_out) << "nothing has changed";
    return refused;
  };
  EXPECT_TRUE(refused(kBert, {{start, kNode, 0}})) << "not the holder";
  EXPECT_TRUE(refused({1, 9}, {{start, kNode, 0}})) << "another life of the holder";
  EXPECT_TRUE(refused(kAnna, {{start, kNode, 0}}, kTree + 1)) << "not that tree's";
  EXPECT_TRUE(refused(kAnna, {{start + 64, kNode, 0}})) << "not a node's start";
  EXPECT_TRUE(refused(kAnna, {{start, kNode + 64, 0}})) << "not whole nodes";
  EXPECT_TRUE(refused(kAnna, {{start + 3 * kNode, kNode, 0}})) << "written";
  EXPECT_TRUE(refused(kAnna, {{start, bytes + kNode, 0}})) << "past the chunk";
  EXPECT_TRUE(refused(kAnna, {{start, kNode, 0}, {start, kNode, 0}})) << "twice in one";
  EXPECT_TRUE(refused(kAnna, {{start, 2 * kNode, 0}, {start + kNode, kNode, 0}}));
  EXPECT_TRUE(refused(kAnna, {{start, kNode, 0}, {4096, kNode, 0}})) << "all or nothing";
  EXPECT_TRUE(refused(kAnna, {{64, 4096, 0}})) << "superblock";
  EXPECT_TRUE(refused(kAnna, {{RemoteAddress::kOffsetMask - 63, 64, 0}}));
  ASSERT_TRUE(ledger_.Return(kAnna, {kTree, {{start, kNode, 0}}}).ok());
  EXPECT_TRUE(refused(kAnna, {{start, kNode, 0}})) << "twice";
  ExpectBalanced();
}

TEST_F(NodeLedgerTest, AFreedNodeRestsThenIsHandedOutWithItsImage) {
  const auto nodes = AllocateAll(kAnna);
  const uint32_t life = Write(nodes[7]);
  EXPECT_FALSE(ledger_.AllocateLater(kAnna, kTree).has_value());
  EXPECT_TRUE(Free(nodes[7], life));
  EXPECT_EQ(Allocate(kBert).status().code(), absl::StatusCode::kResourceExhausted) << "rests";
  const auto later = ledger_.AllocateLater(kAnna, kTree);
  ASSERT_TRUE(later.has_value());
  EXPECT_TRUE(later->runs.empty());
  EXPECT_EQ(later->free_bytes, kNode);
  EXPECT_GE(later->rested_in_ns, kSecondNs);
  EXPECT_LE(later->rested_in_ns, kRested);
  EXPECT_FALSE(ledger_.AllocateLater(kAnna, kTree + 1).has_value())
      << "the chunk stays this tree's";
  clock_.now_ns += kSecondNs - 1;
  EXPECT_FALSE(Allocate(kBert).ok());
  clock_.now_ns += kRested - kSecondNs;
  const auto again = Allocate(kBert);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->runs, std::vector<NodeRun>({{nodes[7], kNode, 1}}));
  EXPECT_EQ(GlanceAtNode(memory_.main() + nodes[7]).life, life);
  EXPECT_GT(Write(nodes[7]), life);
  EXPECT_FALSE(Allocate(kAnna).ok()) << "handed out once";
}

TEST_F(NodeLedgerTest, SaysWhenAnyTreeMayAskForAChunkThatRests) {
  const auto nodes = AllocateAll(kAnna);
  clock_.now_ns += kSecondNs;
  const uint64_t in_chunk = chunk_bytes_ / kNode;
  for (uint64_t node = 0; node < in_chunk; ++node) {
    ASSERT_TRUE(Free(nodes[node], Write(nodes[node])));
  }
  for (const uint32_t tree : {kTree, kTree + 1}) {
    EXPECT_FALSE(Allocate(kBert, tree).ok());
    const auto later = ledger_.AllocateLater(kAnna, tree);
    ASSERT_TRUE(later.has_value()) << tree;
    EXPECT_EQ(later->rested_in_ns, kSecondNs);
    EXPECT_EQ(later->free_bytes, tree == kTree ? chunk_bytes_ : 0);
  }
  clock_.now_ns += kSecondNs;
  ASSERT_TRUE(Allocate(kBert, kTree + 1).ok());
}

TEST_F(NodeLedgerTest, TheLastChunkIsHandedOutInPieces) {
  uint64_t pieces = 0, nodes = 0;
  for (auto grant = Allocate(kAnna, kTree, 3); grant.ok(); grant = Allocate(kBert, kTree, 3)) {
    ASSERT_EQ(grant->runs.size(), 1u);
    EXPECT_EQ(grant->runs[0].recycled, 0);
    nodes += grant->runs[0].bytes / kNode;
    pieces += grant->runs[0].bytes <= 3 * kNode ? 1 : 0;
  }
  EXPECT_EQ(nodes, chunk_count_ * chunk_bytes_ / kNode);
  EXPECT_EQ(pieces, (chunk_bytes_ / kNode + 2) / 3);
}

TEST_F(NodeLedgerTest, AFreeTakesEffectOnceWhoeverRepeatsItAndHoweverLate) {
  const auto nodes = AllocateAll(kAnna);
  const uint32_t life = Write(nodes[0]);
  EXPECT_FALSE(Free(nodes[0], life + 1)) << "not the life in memory";
  EXPECT_FALSE(Free(nodes[0], 0));
  EXPECT_FALSE(Free(nodes[1], 0)) << "was never written";
  EXPECT_FALSE(Free(nodes[1], 1));
  EXPECT_FALSE(Free(nodes[0], life, kTree + 1)) << "of another tree";
  EXPECT_FALSE(Free(nodes[0] + 64, life)) << "no node's start";
  EXPECT_FALSE(Free(4096, life)) << "no chunk";
  EXPECT_TRUE(Free(nodes[0], life));
  EXPECT_FALSE(Free(nodes[0], life)) << "a repeat, or another client's: both saw it die";
  clock_.now_ns += kRested;
  ASSERT_EQ(NodesOf(*Allocate(kBert)), std::vector<uint64_t>({nodes[0]}));
  EXPECT_FALSE(Free(nodes[0], life)) << "delayed: handed out again, not written yet";
  const uint32_t next_life = Write(nodes[0]);
  EXPECT_FALSE(Free(nodes[0], life)) << "delayed: lives again";
  EXPECT_TRUE(Free(nodes[0], next_life));
  EXPECT_EQ(ledger_.counts().nodes_freed, 2u);
  EXPECT_EQ(ledger_.Free({kTree, {{nodes[0], next_life}, {nodes[0], next_life}}}).count, 0u);
  ExpectBalanced();
}

TEST_F(NodeLedgerTest, ARecycledNodeThatComesBackUnwrittenKeepsItsImageAndNeedsNoRest) {
  const auto nodes = AllocateAll(kAnna);
  ASSERT_TRUE(Free(nodes[4], Write(nodes[4])));
  clock_.now_ns += kRested;
  const auto grant = Allocate(kBert);
  ASSERT_TRUE(grant.ok());
  ASSERT_TRUE(ledger_.Return(kBert, {kTree, grant->runs}).ok());
  EXPECT_EQ(Allocate(kAnna)->runs, grant->runs);
}

TEST_F(NodeLedgerTest, FillingFreeingAndFillingAgainLosesNothing) {
  size_t capacity = 0;
  for (int round = 0; round < 4; ++round) {
    std::vector<uint64_t> nodes = AllocateAll(round % 2 == 0 ? kAnna : kBert);
    const std::set<uint64_t> distinct(nodes.begin(), nodes.end());
    ASSERT_EQ(distinct.size(), nodes.size()) << round;
    if (round == 0) capacity = nodes.size();
    EXPECT_EQ(nodes.size(), capacity) << round;
    for (const uint64_t node : nodes) ASSERT_TRUE(Free(node, Write(node)));
    ExpectBalanced();
    clock_.now_ns += kRested;
  }
  EXPECT_EQ(ledger_.counts().nodes_freed, 4 * capacity);
}

TEST_F(NodeLedgerTest, AChunkWhoseNodesAreAllFreeServesOtherTreesAndItsLivesStillAscend) {
  const uint32_t trees[] = {kTree, kTree + 1};
  for (int round = 0; round < 6; ++round) {
    const uint32_t tree = trees[round % 2];
    const std::vector<uint64_t> nodes = AllocateAll(kAnna, tree);
    ASSERT_EQ(nodes.size(), chunk_count_ * chunk_bytes_ / kNode) << round;
    // Write() expects every life to be newer than the last one there, of any holder.
    for (const uint64_t node : nodes) (void)Write(node, tree);
    for (const uint64_t node : nodes) {
      ASSERT_TRUE(Free(node, GlanceAtNode(memory_.main() + node).life, tree));
    }
    EXPECT_EQ(ledger_.used_bytes(), 0u) << round;
    clock_.now_ns += kRested;
  }
}

TEST_F(NodeLedgerTest, AChunkThatComesBackUnwrittenIsThereAtOnce) {
  const auto grant = Allocate(kAnna);
  EXPECT_EQ(ledger_.used_bytes(), chunk_bytes_);
  ASSERT_TRUE(ledger_.Return(kAnna, {kTree, grant->runs}).ok());
  EXPECT_EQ(ledger_.used_bytes(), 0u);
  EXPECT_EQ(AllocateAll(kBert, kTree + 1).size(), chunk_count_ * chunk_bytes_ / kNode);
}

TEST_F(NodeLedgerTest, AFreedTreesChunksRestAndTheirLivesAscendToo) {
  for (int round = 0; round < 3; ++round) {
    const uint32_t tree = kTree + static_cast<uint32_t>(round);
    for (const uint64_t node : AllocateAll(kAnna, tree)) (void)Write(node, tree);
    ledger_.FreeTree(tree);
    EXPECT_EQ(ledger_.used_bytes(), 0u);
    EXPECT_FALSE(Allocate(kBert, kTree + 9).ok()) << "rests";
    clock_.now_ns += kRested;
  }
  ExpectBalanced();
}

TEST_F(NodeLedgerTest, TheServersOwnNodesAreSettled) {
  const auto node = ledger_.AllocateNode(kTree, kNode);
  ASSERT_TRUE(node.ok());
  EXPECT_EQ(ledger_.counts().nodes_settled, 1u);
  EXPECT_EQ(Allocate(kAnna)->runs[0].offset, node->offset + kNode) << "they share a chunk";
  granted_[node->offset] = node->life;
  EXPECT_TRUE(Free(node->offset, Write(node->offset)));
}

TEST_F(NodeLedgerTest, ARecycledChunkIsHandedOutInParts) {
  for (const uint64_t node : AllocateAll(kAnna)) ASSERT_TRUE(Free(node, Write(node)));
  clock_.now_ns += kRested;
  const auto grant = Allocate(kAnna, kTree + 1, 10);
  ASSERT_TRUE(grant.ok());
  ASSERT_EQ(grant->runs.size(), 1u);
  EXPECT_EQ(grant->runs[0].bytes, 10 * kNode);
  EXPECT_EQ(grant->runs[0].recycled, 1);
}

TEST_F(NodeLedgerTest, RecordsTakeLittleMemory) {
  // 9 bytes a node beside the vectors' own: under 1.5 % of the smallest node.
  EXPECT_LE(9.0 / kNodeBytesMin, 0.015);
  const ChunkNodes nodes(64, 0, true);
  EXPECT_EQ(nodes.count(), 64u);
  EXPECT_LE(sizeof(nodes), 256u);
}

// Rule R4: who frees a node has marked it dead, who settles one has found it live; what memory does
// not show has not happened, or not to this life of the node.
TEST_F(NodeLedgerTest, WhatMemoryDoesNotShowIsNeitherFreedNorSettled) {
  const auto nodes = NodesOf(*Allocate(kAnna));
  const auto free = [this](uint64_t node, uint32_t life) {
    return ledger_.Free({kTree, {{node, life}}}).count == 1;
  };
  for (int i = 0; i < 3; ++i) Write(nodes[i]);
  const uint32_t life = granted_[nodes[0]];
  EXPECT_FALSE(free(nodes[0], life)) << "live";
  Mark(nodes[1], NodeState::kMerging, {RemoteAddress(1, nodes[0]), life});
  EXPECT_FALSE(free(nodes[1], life)) << "merging: its merger may be at work";
  EXPECT_EQ(Settle({{nodes[1], life}}), 0u);
  Mark(nodes[2], NodeState::kDead);
  EXPECT_EQ(Settle({{nodes[2], life}}), 0u) << "dead";
  EXPECT_FALSE(free(nodes[2], life + 1));
  Write(nodes[3], kTree + 1);  // no client does
  EXPECT_EQ(Settle({{nodes[3], life}}), 0u) << "another tree's";
  EXPECT_EQ(Settle({{nodes[4], life}}), 0u) << "not written";
  EXPECT_EQ(Settle({{nodes[0], life + 1}}), 0u) << "another life";
  EXPECT_EQ(Settle({{nodes[0], life}, {nodes[0], life}}), 1u);
  EXPECT_TRUE(free(nodes[2], life));
  // Late packets of the one before bring back the life and state of then.
  clock_.now_ns += kRested;
  ASSERT_EQ(NodesOf(*Allocate(kBert)), std::vector<uint64_t>({nodes[2]}));
  EXPECT_FALSE(free(nodes[2], life));
  Mark(nodes[2], NodeState::kLive);
  EXPECT_EQ(Settle({{nodes[2], life}}), 0u);
}

// Rule R5, also through a chunk that came back whole and went to another tree.
TEST_F(NodeLedgerTest, EveryGrantOfANodeNamesANewerLife) {
  std::map<uint64_t, uint32_t> last;
  for (int round = 0; round < 5; ++round) {
    const uint32_t tree = kTree + static_cast<uint32_t>(round % 2);
    const auto grant = ledger_.Allocate(kAnna, {tree, kNode, 64});
    ASSERT_TRUE(grant.ok());
    for (const NodeRun& run : grant->runs) {
      EXPECT_EQ(run.recycled, 0) << "nobody has written there";
      for (uint64_t at = 0; at < run.bytes; at += kNode) {
        EXPECT_TRUE(LifeNewer(run.life, std::exchange(last[run.offset + at], run.life)));
      }
    }
    ASSERT_TRUE(ledger_.Return(kAnna, {tree, grant->runs}).ok());
  }
  EXPECT_EQ(last.size(), chunk_bytes_ / kNode) << "the same ones all the time";
}

// Whatever clients do, a node has one holder, and what the books say adds up.
TEST_F(NodeLedgerTest, RandomClientsKeepTheBooks) {
  Random random(5);
  const ClientId clients[] = {kAnna, kBert, {3, 12}};
  std::map<uint64_t, uint32_t> unwritten, written;  // node -> client, node -> life
  std::vector<NodeLife> old_frees;
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t who = static_cast<uint32_t>(random.Uniform(3));
    switch (random.Uniform(5)) {
      case 0: {
        const auto grant = Allocate(clients[who], kTree, 1 + random.Uniform(20));
        if (!grant.ok()) break;
        for (const uint64_t node : NodesOf(*grant)) {
          ASSERT_FALSE(unwritten.contains(node) || written.contains(node)) << "handed out twice";
          unwritten[node] = who;
        }
        break;
      }
      case 1:
      case 2: {
        const auto node = unwritten.lower_bound(random.Uniform(1 << 20));
        if (node == unwritten.end()) break;
        written[node->first] = Write(node->first);
        unwritten.erase(node);
        break;
      }
      case 3: {
        const auto node = unwritten.lower_bound(random.Uniform(1 << 20));
        if (node == unwritten.end()) break;
        const bool is_his = node->second == who;
        const uint64_t offset = node->first;
        ASSERT_EQ(ledger_.Return(clients[who], {kTree, {{offset, kNode, 0}}}).ok(), is_his);
        if (is_his) unwritten.erase(node);
        break;
      }
      case 4: {
        if (!old_frees.empty()) {
          const NodeLife& late = old_frees[random.Uniform(old_frees.size())];
          ASSERT_FALSE(Free(late.offset, late.life));
        }
        const auto node = written.lower_bound(random.Uniform(1 << 20));
        if (node == written.end()) break;
        ASSERT_TRUE(Free(node->first, node->second));
        old_frees.push_back({node->first, node->second});
        written.erase(node);
        break;
      }
    }
    if (random.Chance(0.01)) clock_.now_ns += static_cast<int64_t>(random.Uniform(kRested));
    if (i % 500 == 0) ExpectBalanced();
  }
  EXPECT_GT(old_frees.size(), 1000u);
  EXPECT_EQ(ledger_.counts().nodes_out, unwritten.size() + written.size());
}

TEST(ChunkNodesTest, TheNewestLifeIsThatOfItsNodesBeyondTheLargestNumber) {
  constexpr uint32_t kNodes = 8;
  for (const uint32_t life : {0u, 5u, UINT32_MAX - 3}) {
    ChunkNodes nodes(kNodes, life, /*zero=*/true);
    const auto expect_newest = [&] {
      uint32_t newest = 0;
      for (uint32_t node = 0; node < kNodes; ++node) {
        if (LifeNewer(nodes.life(node), newest)) newest = nodes.life(node);
      }
      EXPECT_EQ(nodes.newest_life(), newest);
    };
    expect_newest();
    nodes.TakeUntouched(kNodes / 2, 1);
    for (int i = 0; i < 20; ++i) {
      expect_newest();
      nodes.Free(i % 2, 0);
      expect_newest();
      ASSERT_TRUE(nodes.TakeRested(kSecondNs, 1).has_value());
    }
    nodes.PutBack(2, 2);
    expect_newest();
    nodes.TakeUntouched(1, 1);
    expect_newest();
  }
}

}  // namespace
}  // namespace pando::memory
