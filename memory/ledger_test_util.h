// What the tests of NodeLedger share: a ledger on plain memory, clients that write nodes.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"
#include "gtest/gtest.h"
#include "memory/node_ledger.h"
#include "memory/test_support.h"

namespace pando::memory {

class LedgerTest : public testing::Test {
 protected:
  static constexpr ClientId kAnna = {1, 10};
  static constexpr ClientId kBert = {2, 11};
  static constexpr uint32_t kTree = 5;
  static constexpr uint32_t kNode = 1024;
  static constexpr int64_t kRested = kSecondNs + 100 * kMillisecondNs;

  // The runs come without their lives, which Write() takes from here.
  absl::StatusOr<NodeGrant> Allocate(const ClientId& who, uint32_t tree = kTree,
                                     uint32_t nodes_max = 64) {
    absl::StatusOr<NodeGrant> grant = ledger_.Allocate(who, {tree, kNode, nodes_max});
    if (!grant.ok()) return grant;
    for (NodeRun& run : grant->runs) {
      for (uint64_t at = 0; at < run.bytes; at += kNode) {
        uint32_t& life = granted_[run.offset + at];
        EXPECT_TRUE(LifeNewer(run.life, life)) << run.offset + at;  // rule R5
        life = run.life;
      }
      run.life = 0;
    }
    return grant;
  }
  static std::vector<uint64_t> NodesOf(const NodeGrant& grant) {
    std::vector<uint64_t> nodes;
    for (const NodeRun& run : grant.runs) {
      for (uint64_t at = 0; at < run.bytes; at += kNode) nodes.push_back(run.offset + at);
    }
    return nodes;
  }
  // Everything that is available, node by node.
  std::vector<uint64_t> AllocateAll(const ClientId& who, uint32_t tree = kTree) {
    std::vector<uint64_t> nodes;
    for (auto grant = Allocate(who, tree); grant.ok(); grant = Allocate(who, tree)) {
      for (const uint64_t node : NodesOf(*grant)) nodes.push_back(node);
    }
    return nodes;
  }
  // Formats a node as a client does, over what is there. The reference's life.
  uint32_t Write(uint64_t offset, uint32_t tree = kTree, NodeState state = NodeState::kLive,
                 Reference peer = {}) {
    alignas(64) std::byte old_image[kNode], image[kNode] = {};
    region_.Read(offset, old_image, kNode);
    NodeHeader header;
    header.tree_id = tree;
    header.state = state;
    header.peer = peer;
    header.life = granted_[offset];
    WriteHeader(image, layout_, header);
    SealNodeLevel(image, old_image, layout_, false);
    region_.Write(offset, image, kNode);
    // Lives and versions only ever ascend, whichever tree had the memory before.
    EXPECT_TRUE(LifeNewer(header.life, last_life_[offset])) << offset;
    last_life_[offset] = header.life;
    return header.life;
  }
  // Changes the state of a written node in place.
  void Mark(uint64_t offset, NodeState state, Reference peer = {}) {
    alignas(64) std::byte image[kNode];
    region_.Read(offset, image, kNode);
    NodeHeader header = ReadHeader(image, layout_);
    header.state = state;
    header.peer = peer;
    WriteHeader(image, layout_, header);
    region_.Write(offset, image, kNode);
  }
  // Marks the node dead first, if it is of that life.
  bool Free(uint64_t offset, uint32_t life, uint32_t tree = kTree) {
    if (life != 0 && offset % kNode == 0 && GlanceAtNode(memory_.main() + offset).life == life) {
      Mark(offset, NodeState::kDead);
    }
    return ledger_.Free({tree, {{offset, life}}}).count == 1;
  }
  uint32_t Settle(std::vector<NodeLife> nodes) { return ledger_.Settle({kTree, std::move(nodes)}); }
  void FinishSteps() {
    while (ledger_.Step()) {
    }
  }
  void ExpectBalanced() {
    const auto counts = ledger_.counts();
    EXPECT_EQ(counts.chunks_free + counts.chunks_used, chunk_count_);
    EXPECT_EQ(ledger_.free_bytes() + ledger_.used_bytes(), chunk_count_ * chunk_bytes_);
    EXPECT_EQ(counts.nodes_untouched + counts.nodes_free + counts.nodes_out + counts.nodes_settled +
                  counts.orphans,
              counts.chunks_used * (chunk_bytes_ / kNode));
  }

  const NodeLayout layout_ = *NodeLayout::Create(8, 8);
  PlainMemory memory_;
  ManualClock clock_;
  Region region_ = *Region::Format(memory_.memory(), {});
  NodeLedger ledger_{&region_, &clock_, {}};
  const uint64_t chunk_count_ = region_.superblock().chunk_count;
  const uint64_t chunk_bytes_ = region_.superblock().chunk_bytes;
  std::map<uint64_t, uint32_t> last_life_, granted_;
};

}  // namespace pando::memory
