// The calls about single nodes, as clients make them (node_messages.h, rules R3, R4).
#include <string>
#include <vector>

#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"
#include "memory/reply_cache.h"
#include "memory/server_test_util.h"

namespace pando::memory {
namespace {

constexpr uint32_t kNode = 1024;

static_assert(kNodesPerRequestMax * 12 + 8 <= ReplyCache::kBodyBytesMax);
static_assert(kRunsPerRequestMax * 16 + 8 <= ReplyCache::kBodyBytesMax);

class NodeCallsTest : public TwoClientsTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Start({}));
    tree_ = anna_->CreateTree("t")->tree_id;
    ASSERT_TRUE(anna_->AttachTree(tree_).ok());
    ASSERT_TRUE(bert_->AttachTree(tree_).ok());
  }
  uint64_t Counter(const std::string& name) { return CounterOf(*server_, name); }
  void RunTimers() {
    while (server_->OnTimer(clock_.now_ns) != kNeverNs) {
    }
  }
  // As if the client had formatted it.
  void Write(uint64_t offset, uint32_t life, NodeState state = NodeState::kLive) {
    NodeHeader header;
    header.tree_id = tree_;
    header.state = state;
    header.life = life;
    WriteHeader(memory_.main() + offset, *NodeLayout::Create(8, 8), header);
  }
  // As if it had unlinked it, too.
  int64_t Free(TestClient& client, uint64_t offset, uint32_t life) {
    Write(offset, life, NodeState::kDead);
    return client.FreeNodes(tree_, {{offset, life}});
  }
  OrphanList Orphans(TestClient& client) {
    const auto body = client.Call(ControlOpcode::kListOrphans, EncodeNodeQuery({tree_, 0, 100}));
    return body.ok() ? *ParseOrphanList(*body) : OrphanList{};
  }

  uint32_t tree_ = 0;
};

TEST_F(NodeCallsTest, OnlyWhoUsesTheTreeMayAskForItsNodes) {
  ASSERT_TRUE(bert_->DetachTree(tree_).ok());
  constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  const auto code = [&](ControlOpcode opcode, const std::string& body) {
    return bert_->Call(opcode, body).status().code();
  };
  EXPECT_EQ(code(ControlOpcode::kAllocateNodes, EncodeNodeRequest({tree_, kNode, 1})), kRefused);
  EXPECT_EQ(code(ControlOpcode::kReturnNodes, EncodeNodeReturn({tree_, {}})), kRefused);
  EXPECT_EQ(code(ControlOpcode::kFreeNodes, EncodeNodeFree({tree_, {}})), kRefused);
  EXPECT_EQ(code(ControlOpcode::kSettleNodes, EncodeNodeSettle({tree_, {}})), kRefused);
  EXPECT_EQ(code(ControlOpcode::kListOrphans, EncodeNodeQuery({tree_, 0, 1})), kRefused);
  EXPECT_TRUE(bert_->Call(ControlOpcode::kListNodes, EncodeNodeQuery({tree_, 0, 1})).ok())
      << "anybody may look";
  EXPECT_TRUE(bert_->DetachTree(tree_).ok()) << "nothing to detach";
}

TEST_F(NodeCallsTest, ARepeatedRequestGetsItsReplyAndNoMoreNodes) {
  const std::string allocate =
      anna_->Message(ControlOpcode::kAllocateNodes, EncodeNodeRequest({tree_, kNode, 8}));
  const std::string grant = server_->Handle(1, allocate);
  EXPECT_EQ(server_->Handle(1, allocate), grant);
  const uint64_t out = Counter("nodes_out");
  const NodeRun run =
      ParseNodeGrant(*ParseReply(grant, ControlOpcode::kAllocateNodes, anna_->sequence))
          ->runs.at(0);
  // A return that is repeated after the same client was handed the nodes again.
  const std::string back =
      anna_->Message(ControlOpcode::kReturnNodes, EncodeNodeReturn({tree_, {run}}));
  const std::string returned = server_->Handle(1, back);
  EXPECT_EQ(Counter("nodes_out"), 0u);
  const NodeRun again = anna_->AllocateNodes(tree_, kNode)->runs.at(0);
  EXPECT_EQ(again, (NodeRun{run.offset, run.bytes, run.recycled, run.life + 1}));
  EXPECT_EQ(server_->Handle(1, back), returned);
  EXPECT_EQ(Counter("nodes_out"), out);
  // A free counts once, and says so twice.
  const NodeLife node = {run.offset, again.life};
  Write(node.offset, node.life, NodeState::kDead);
  const std::string free =
      anna_->Message(ControlOpcode::kFreeNodes, EncodeNodeFree({tree_, {node}}));
  const std::string freed = server_->Handle(1, free);
  EXPECT_EQ(ParseNodesFreed(*ParseReply(freed, ControlOpcode::kFreeNodes, anna_->sequence))->count,
            1u);
  EXPECT_EQ(server_->Handle(1, free), freed);
  EXPECT_EQ(anna_->FreeNodes(tree_, {node}), 0) << "a new request, the same free";
  EXPECT_EQ(bert_->FreeNodes(tree_, {node}), 0) << "another client saw it die, too";
  EXPECT_EQ(Counter("nodes_freed"), 1u);
}

TEST_F(NodeCallsTest, ADeathFreesWhatWasNotWrittenAndTheRestWaitsForASweep) {
  const NodeRun run = anna_->AllocateNodes(tree_, kNode)->runs.at(0);
  Write(run.offset, 1);
  Write(run.offset + 5 * kNode, 1);
  const uint64_t out = Counter("nodes_out");
  server_->OnPeerGone(1);
  RunTimers();
  EXPECT_EQ(Counter("nodes_out"), 0u);
  EXPECT_EQ(Counter("nodes_orphan"), 2u);
  EXPECT_EQ(Counter("nodes_free") + Counter("nodes_untouched"), out - 2);
  const OrphanList orphans = Orphans(*bert_);
  ASSERT_EQ(orphans.orphans.size(), 2u);
  EXPECT_EQ(orphans.orphans[0],
            (Orphan{run.offset, anna_->id.compute_server, anna_->id.incarnation, 1}));
  EXPECT_EQ(bert_->AllocateNodes(tree_, kNode)->orphans, 2u + 1u) << "and marks of the dead";
  const auto settled =
      bert_->Call(ControlOpcode::kSettleNodes, EncodeNodeSettle({tree_, {{run.offset, 1}}}));
  EXPECT_EQ(*ParseNodeCount(*settled), 1u);
  EXPECT_EQ(Free(*bert_, run.offset + 5 * kNode, 1), 1);
  EXPECT_TRUE(Orphans(*bert_).orphans.empty());
}

TEST_F(NodeCallsTest, WhoLeavesWithoutAWordLeavesOrphansAndWhoDetachesInOrderDoesNot) {
  const NodeRun annas = anna_->AllocateNodes(tree_, kNode)->runs.at(0);
  const NodeRun berts = bert_->AllocateNodes(tree_, kNode)->runs.at(0);
  Write(annas.offset, 1);
  Write(berts.offset, 1);
  const uint64_t settled = Counter("nodes_settled");
  ASSERT_TRUE(anna_->ReturnNodes(tree_, {{annas.offset + kNode, annas.bytes - kNode, 0}}).ok());
  ASSERT_TRUE(anna_->DetachTree(tree_, 1).ok());
  RunTimers();
  EXPECT_EQ(Counter("nodes_settled"), settled + 1);
  EXPECT_EQ(Counter("nodes_orphan"), 0u);
  ASSERT_TRUE(bert_->Call(ControlOpcode::kLeave).ok());
  RunTimers();
  EXPECT_EQ(Counter("nodes_orphan"), 1u);
}

// Rule R6.
TEST_F(NodeCallsTest, WhoIsNotSureKeepsItsNodesUntilItLeaves) {
  const NodeRun run = anna_->AllocateNodes(tree_, kNode)->runs.at(0);
  Write(run.offset, 1);
  const uint64_t out = Counter("nodes_out");
  ASSERT_TRUE(anna_->DetachTree(tree_, 0).ok());
  RunTimers();
  EXPECT_EQ(Counter("nodes_out"), out);
  EXPECT_NE(bert_->AllocateNodes(tree_, kNode)->runs.at(0).offset, run.offset + kNode);
  ASSERT_TRUE(anna_->AttachTree(tree_).ok());
  ASSERT_TRUE(anna_->DetachTree(tree_, 1).ok());
  RunTimers();
  EXPECT_EQ(Counter("nodes_orphan"), 0u) << "not settled, nor anybody else's";
  ASSERT_TRUE(anna_->Call(ControlOpcode::kLeave).ok());
  RunTimers();
  EXPECT_EQ(Counter("nodes_orphan"), 1u);
  EXPECT_EQ(Orphans(*bert_).orphans.at(0).offset, run.offset);
}

TEST_F(NodeCallsTest, ADroppedTreeKeepsItsMemoryWhileAnybodyIsNotSure) {
  ASSERT_TRUE(anna_->AllocateNodes(tree_, kNode).ok());
  ASSERT_TRUE(anna_->DetachTree(tree_, 0).ok());
  ASSERT_TRUE(bert_->DropTree(tree_).ok());
  ASSERT_TRUE(bert_->DetachTree(tree_, 1).ok());
  EXPECT_EQ(Counter("trees_freed"), 0u);
  EXPECT_GT(Counter("chunks_used"), 0u);
  ASSERT_TRUE(anna_->Call(ControlOpcode::kLeave).ok());
  EXPECT_EQ(Counter("trees_freed"), 1u);
  EXPECT_EQ(Counter("chunks_used"), 0u);
}

TEST_F(NodeCallsTest, AFullServerSaysWhenToAskAgain) {
  std::vector<uint64_t> nodes;
  absl::StatusOr<NodeGrant> grant = anna_->AllocateNodes(tree_, kNode);
  for (; grant.ok(); grant = anna_->AllocateNodes(tree_, kNode)) {
    ASSERT_FALSE(grant->runs.empty());
    nodes.push_back(grant->runs[0].offset);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(grant.status())) << "nothing rests: " << grant.status();
  ASSERT_EQ(Free(*anna_, nodes[0], 1), 1);
  grant = bert_->AllocateNodes(tree_, kNode);
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_TRUE(grant->runs.empty());
  EXPECT_GT(grant->rested_in_ns, 900 * kMillisecondNs);
  EXPECT_EQ(grant->free_bytes, kNode);
  clock_.now_ns += grant->rested_in_ns;
  grant = bert_->AllocateNodes(tree_, kNode);
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_EQ(grant->runs, std::vector<NodeRun>({{nodes[0], kNode, 1, 2}}));
  EXPECT_EQ(grant->rested_in_ns, 0);
}

TEST_F(NodeCallsTest, AFullServerServesAgainWhateverWasFreed) {
  std::vector<uint64_t> counts;
  for (uint32_t round = 1; round <= 3; ++round) {
    std::vector<NodeLife> nodes;
    absl::StatusOr<NodeGrant> grant = anna_->AllocateNodes(tree_, kNode);
    for (; grant.ok(); grant = anna_->AllocateNodes(tree_, kNode)) {
      for (const NodeRun& run : grant->runs) {
        for (uint64_t at = 0; at < run.bytes; at += kNode) {
          nodes.push_back({run.offset + at, run.life});
        }
      }
    }
    EXPECT_EQ(grant.status().code(), absl::StatusCode::kResourceExhausted);
    counts.push_back(nodes.size());
    for (const NodeLife& node : nodes) ASSERT_EQ(Free(*bert_, node.offset, node.life), 1);
    clock_.now_ns += 2 * kSecondNs;
  }
  EXPECT_GT(counts[0], 500u);
  EXPECT_EQ(counts[1], counts[0]);
  EXPECT_EQ(counts[2], counts[0]);
}

}  // namespace
}  // namespace pando::memory
