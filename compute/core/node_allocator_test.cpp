#include "compute/core/node_allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/fabric/sim/sim_world.h"
#include "common/wire/control.h"
#include "common/wire/node_image.h"
#include "common/wire/node_messages.h"
#include "compute/cache/epoch.h"
#include "compute/core/session_context.h"

namespace pando {
namespace {

constexpr uint32_t kTree = 5, kNodeBytes = 1024, kChunkBytes = 4 * kNodeBytes;

// A memory server that only hands out nodes: `chunks` times a chunk of fresh ones.
class ChunkServer : public ControlHandler {
 public:
  ChunkServer(ServerId id, uint64_t chunks) : id_(id), chunks_left_(chunks) {}

  std::string Handle(PeerId, std::string_view bytes) override {
    const auto message = ParseMessage(bytes);
    EXPECT_TRUE(message.ok()) << message.status();
    const ControlHeader& header = message->header;
    if (refuses) return EncodeErrorReply(header, id_, absl::InternalError("refused"));
    switch (static_cast<ControlOpcode>(header.opcode)) {
      case ControlOpcode::kReturnNodes: {
        const NodeReturn request = *ParseNodeReturn(message->body);
        EXPECT_EQ(request.tree_id, kTree);
        returned.insert(returned.end(), request.runs.begin(), request.runs.end());
        return EncodeReply(header, id_, "");
      }
      case ControlOpcode::kFreeNodes: {
        const NodeFree request = *ParseNodeFree(message->body);
        EXPECT_EQ(request.tree_id, kTree);
        freed.insert(freed.end(), request.nodes.begin(), request.nodes.end());
        ++free_calls;
        return EncodeReply(header, id_, EncodeNodeCount(request.nodes.size()));
      }
      default:
        EXPECT_EQ(header.opcode, static_cast<uint16_t>(ControlOpcode::kAllocateNodes));
        return Allocate(header, *ParseNodeRequest(message->body));
    }
  }
  void OnPeerGone(PeerId) override {}

  int requests = 0, free_calls = 0;
  bool malformed = false, refuses = false;
  std::vector<NodeRun> recycled;  // the next grant, in place of a chunk
  uint32_t orphans = 0;
  std::vector<NodeRun> returned;
  std::vector<FreedNode> freed;

 private:
  std::string Allocate(const ControlHeader& header, const NodeRequest& request) {
    ++requests;
    EXPECT_EQ(request.tree_id, kTree);
    NodeGrant grant;
    grant.orphans = orphans;
    if (malformed) {
      grant.runs = {{.offset = 4096, .bytes = kNodeBytes + 64}};
    } else if (!recycled.empty()) {
      grant.runs.swap(recycled);
    } else if (chunks_left_ == 0) {
      return EncodeErrorReply(header, id_, absl::ResourceExhaustedError("full"));
    } else {
      --chunks_left_;
      grant.runs = {{.offset = next_offset_, .bytes = kChunkBytes}};
      next_offset_ += kChunkBytes;
    }
    grant.free_bytes = chunks_left_ * kChunkBytes;
    return EncodeReply(header, id_, EncodeNodeGrant(grant));
  }

  const ServerId id_;
  uint64_t chunks_left_;
  uint64_t next_offset_ = 4096;
};

class NodeAllocatorTest : public testing::Test {
 protected:
  void Start(const std::vector<uint64_t>& chunks) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto id = static_cast<ServerId>(i + 1);
      world_.AddServer(id, 1 << 20, 4096);
      servers_.push_back(std::make_unique<ChunkServer>(id, chunks[i]));
      world_.SetHandler(id, servers_.back().get());
      allocator_.AddServer(id, chunks[i] * kChunkBytes);
    }
    fabric_ = world_.NewFabric();
    session_ = std::make_unique<SessionContext>(*fabric_->Connect(1, 1), &epochs_, 64, 1);
    control_.SetIdentity(1, 1);
  }
  void TearDown() override {
    session_.reset();
    fabric_.reset();
  }

  void Spawn(std::function<void(OperationContext&)> job) {
    session_->scheduler().Spawn([this, job = std::move(job)] {
      OperationContext context(session_.get(), session_->NowNs() + 10 * kSecondNs);
      job(context);
    });
  }
  absl::Status Refill(ServerId preferred = 1) {
    absl::Status status;
    Spawn([&](OperationContext& context) {
      status = allocator_.Refill(context, kTree, kNodeBytes, preferred);
    });
    session_->scheduler().Drain();
    return status;
  }
  bool ReturnAll() {
    bool settled = false;
    Spawn([&](OperationContext& context) { settled = allocator_.ReturnAll(context, kTree); });
    session_->scheduler().Drain();
    return settled;
  }
  void FlushIfMany() {
    Spawn([this](OperationContext& context) { allocator_.FlushIfMany(context, kTree); });
    session_->scheduler().Drain();
  }

  sim::SimWorld world_{{.mode = sim::DeliveryMode::kWhole}};
  std::vector<std::unique_ptr<ChunkServer>> servers_;
  ControlChannel control_;
  NodeAllocator allocator_{&control_};
  EpochDomain epochs_;
  std::shared_ptr<Fabric> fabric_;
  std::unique_ptr<SessionContext> session_;
};

TEST_F(NodeAllocatorTest, HandsEachNodeOutOnce) {
  Start({3});
  EXPECT_FALSE(allocator_.TryTake(kTree, 1).has_value());
  std::set<uint64_t> seen;
  for (int chunk = 0; chunk < 3; ++chunk) {
    ASSERT_TRUE(Refill().ok());
    while (const auto node = allocator_.TryTake(kTree, 1)) {
      EXPECT_EQ(node->address.offset() % kNodeBytes, 0u);
      EXPECT_TRUE(seen.insert(node->address.raw()).second);
    }
  }
  EXPECT_EQ(seen.size(), 12u);
  EXPECT_FALSE(allocator_.TryTake(kTree + 1, 1).has_value()) << "chunks are of one tree";
}

TEST_F(NodeAllocatorTest, WhatIsPutBackIsHandedOutAgain) {
  Start({1});
  ASSERT_TRUE(Refill().ok());
  std::vector<RemoteAddress> nodes;
  while (const auto node = allocator_.TryTake(kTree, 1)) nodes.push_back(node->address);
  ASSERT_EQ(nodes.size(), 4u);
  for (const size_t i : {1, 3, 0, 2}) allocator_.PutBack(kTree, {.address = nodes[i]});
  std::set<uint64_t> again;
  while (const auto node = allocator_.TryTake(kTree, 1)) again.insert(node->address.raw());
  EXPECT_EQ(again.size(), 4u);
  for (const RemoteAddress node : nodes) EXPECT_TRUE(again.contains(node.raw()));
}

TEST_F(NodeAllocatorTest, PrefersTheServerThatIsAskedFor) {
  Start({1, 1});
  ASSERT_TRUE(Refill(2).ok());
  EXPECT_EQ(servers_[1]->requests, 1) << "equally free: the preferred one";
  ASSERT_TRUE(Refill(2).ok());
  EXPECT_EQ(servers_[0]->requests, 1) << "the other has more left now";
  for (int i = 0; i < 4; ++i) EXPECT_EQ(allocator_.TryTake(kTree, 2)->address.server(), 2);
  EXPECT_EQ(allocator_.TryTake(kTree, 2)->address.server(), 1) << "anywhere is better than nowhere";
}

TEST_F(NodeAllocatorTest, SpreadsChunksByFreeSpace) {
  Start({2, 8});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Refill(1).ok());
  EXPECT_EQ(servers_[0]->requests, 2);
  EXPECT_EQ(servers_[1]->requests, 8);
}

TEST_F(NodeAllocatorTest, AllFullIsAStatusAndOneFullServerIsNot) {
  Start({1, 3});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Refill(1).ok());
  const absl::Status full = Refill(1);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  std::set<uint64_t> nodes;
  while (const auto node = allocator_.TryTake(kTree, 1)) nodes.insert(node->address.raw());
  EXPECT_EQ(nodes.size(), 16u) << "what was handed out is still there";
  EXPECT_TRUE(absl::IsResourceExhausted(Refill(2)));
}

TEST_F(NodeAllocatorTest, AMalformedGrantIsRefused) {
  Start({4});
  servers_[0]->malformed = true;
  EXPECT_TRUE(absl::IsDataLoss(Refill()));
  EXPECT_FALSE(allocator_.TryTake(kTree, 1).has_value());
  servers_[0]->malformed = false;
  EXPECT_TRUE(Refill().ok());
}

TEST_F(NodeAllocatorTest, ConcurrentCallersShareOneRequest) {
  Start({10});
  int served = 0;
  for (int i = 0; i < 4; ++i) {
    Spawn([&](OperationContext& context) {
      while (!allocator_.TryTake(kTree, 1).has_value()) {
        ASSERT_TRUE(allocator_.Refill(context, kTree, kNodeBytes, 1).ok());
      }
      ++served;
    });
  }
  session_->scheduler().Drain();
  EXPECT_EQ(served, 4);
  EXPECT_EQ(servers_[0]->requests, 1);
}

TEST_F(NodeAllocatorTest, ClosingATreeReturnsWhatWasNotUsed) {
  Start({1, 1});
  ASSERT_TRUE(Refill(1).ok());
  ASSERT_TRUE(Refill(2).ok());
  const RemoteAddress used = allocator_.TryTake(kTree, 1)->address;
  EXPECT_TRUE(ReturnAll()) << "the one that was used is linked";
  ASSERT_EQ(servers_[0]->returned.size(), 1u);
  EXPECT_EQ(servers_[0]->returned[0].offset, used.offset() + kNodeBytes);
  EXPECT_EQ(servers_[0]->returned[0].bytes, 3 * kNodeBytes);
  ASSERT_EQ(servers_[1]->returned.size(), 1u);
  EXPECT_EQ(servers_[1]->returned[0].bytes, kChunkBytes);
  EXPECT_FALSE(allocator_.TryTake(kTree, 1).has_value());
  EXPECT_TRUE(ReturnAll());
  EXPECT_EQ(servers_[0]->returned.size(), 1u) << "once";
}

TEST_F(NodeAllocatorTest, ARecycledNodeComesWithItsOldImageAndGetsTheNextLife) {
  Start({1});
  const NodeLayout layout = *NodeLayout::Create(8, 8);
  alignas(64) std::byte image[kNodeBytes] = {};
  NodeHeader header;
  header.tree_id = kTree;
  header.life = 41;
  WriteHeader(image, layout, header);
  for (int i = 0; i < 5; ++i) SealNodeLevel(image, image, layout, false);
  std::byte* const memory = world_.Memory(1).main.data();
  for (int node = 0; node < 3; ++node) {
    std::memcpy(memory + 65536 + node * kNodeBytes, image, kNodeBytes);
  }
  servers_[0]->recycled = {{65536, 2 * kNodeBytes, 1}, {65536 + 2 * kNodeBytes, kNodeBytes, 1}};
  ASSERT_TRUE(Refill().ok());
  std::set<uint64_t> seen;
  for (int i = 0; i < 3; ++i) {
    auto spare = allocator_.TryTake(kTree, 1);
    ASSERT_TRUE(spare.has_value());
    EXPECT_TRUE(seen.insert(spare->address.offset()).second);
    EXPECT_EQ(spare->life(), 42u);
    EXPECT_EQ(spare->reference(), (Reference{spare->address, 42}));
    EXPECT_EQ(std::memcmp(spare->OldImage(nullptr), image, kNodeBytes), 0);
    if (i == 0) {  // with its image
      seen.clear();
      allocator_.PutBack(kTree, *std::move(spare));
      spare = allocator_.TryTake(kTree, 1);
      EXPECT_EQ(spare->life(), 42u);
      seen.insert(spare->address.offset());
    }
  }
  EXPECT_FALSE(allocator_.TryTake(kTree, 1).has_value());
  const std::byte zero[1] = {};
  EXPECT_EQ(SpareNode{}.life(), 1u);
  EXPECT_EQ(SpareNode{}.OldImage(zero), zero);
}

TEST_F(NodeAllocatorTest, FreedNodesGoBackInBatches) {
  Start({10, 10});
  for (uint32_t i = 0; i < kNodesPerRequestMax - 1; ++i) {
    allocator_.Free(kTree, {RemoteAddress(1 + i % 2, 65536 + i * kNodeBytes), i + 1});
  }
  FlushIfMany();
  EXPECT_EQ(servers_[0]->free_calls, 0) << "not many yet";
  allocator_.Free(kTree, {RemoteAddress(2, 4096), 9});
  FlushIfMany();
  EXPECT_EQ(servers_[0]->free_calls, 1);
  EXPECT_EQ(servers_[1]->free_calls, 1);
  EXPECT_EQ(servers_[0]->freed.size() + servers_[1]->freed.size(), kNodesPerRequestMax);
  EXPECT_EQ(servers_[0]->freed[0], (FreedNode{65536, 1}));
  // One alone goes with the next request for nodes, or when the tree is closed.
  allocator_.Free(kTree, {RemoteAddress(1, 4096), 1});
  ASSERT_TRUE(Refill().ok());
  EXPECT_EQ(servers_[0]->free_calls, 2);
  allocator_.Free(kTree, {RemoteAddress(1, 8192), 1});
  EXPECT_TRUE(ReturnAll());
  EXPECT_EQ(servers_[0]->free_calls, 3);
}

TEST_F(NodeAllocatorTest, WhatCannotBeSaidLeavesTheTreeUnsettled) {
  Start({10});
  allocator_.Free(kTree, {RemoteAddress(1, 4096), 1});
  servers_[0]->refuses = true;
  EXPECT_FALSE(ReturnAll()) << "a free that nobody took";
  servers_[0]->refuses = false;
  EXPECT_TRUE(ReturnAll());
  ASSERT_TRUE(Refill().ok());
  servers_[0]->refuses = true;
  EXPECT_FALSE(ReturnAll()) << "spare nodes that nobody took back";
  servers_[0]->refuses = false;
  allocator_.NoteUncertain(kTree);
  EXPECT_FALSE(ReturnAll()) << "a node that may be linked";
  EXPECT_TRUE(ReturnAll());
}

TEST_F(NodeAllocatorTest, AFreeThatFailsIsSaidAgain) {
  Start({10});
  allocator_.Free(kTree, {RemoteAddress(1, 4096), 1});
  servers_[0]->refuses = true;
  EXPECT_FALSE(Refill().ok());
  servers_[0]->refuses = false;
  EXPECT_TRUE(ReturnAll());
  EXPECT_EQ(servers_[0]->freed, std::vector<FreedNode>({{4096, 1}}));
}

TEST_F(NodeAllocatorTest, TellsOnceThatOrphansWait) {
  Start({10});
  EXPECT_FALSE(allocator_.TakeOrphanHint(kTree));
  servers_[0]->orphans = 3;
  ASSERT_TRUE(Refill().ok());
  EXPECT_TRUE(allocator_.TakeOrphanHint(kTree));
  EXPECT_FALSE(allocator_.TakeOrphanHint(kTree));
}

}  // namespace
}  // namespace pando
