#include "compute/core/node_allocator.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/fabric/sim/sim_world.h"
#include "common/wire/control.h"
#include "compute/cache/epoch.h"
#include "compute/core/session_context.h"

namespace pando {
namespace {

constexpr uint32_t kTree = 5, kNodeBytes = 1024, kChunkBytes = 4 * kNodeBytes;

// A memory server that only hands out chunks.
class ChunkServer : public ControlHandler {
 public:
  ChunkServer(ServerId id, uint64_t chunks) : id_(id), chunks_left_(chunks) {}

  std::string Handle(PeerId, std::string_view bytes) override {
    const auto message = ParseMessage(bytes);
    EXPECT_TRUE(message.ok()) << message.status();
    const ControlHeader& header = message->header;
    if (header.opcode == static_cast<uint16_t>(ControlOpcode::kReturnChunk)) {
      returned.push_back(*ParseChunkGrant(message->body));
      return EncodeReply(header, id_, "");
    }
    EXPECT_EQ(header.opcode, static_cast<uint16_t>(ControlOpcode::kAllocateChunk));
    ++requests;
    const ChunkRequest request = *ParseChunkRequest(message->body);
    EXPECT_EQ(request.tree_id, kTree);
    if (malformed) {
      return EncodeReply(header, id_, EncodeChunkGrant({.offset = 4096, .bytes = kNodeBytes + 64}));
    }
    if (chunks_left_ == 0) {
      return EncodeErrorReply(header, id_, absl::ResourceExhaustedError("full"));
    }
    --chunks_left_;
    const ChunkGrant grant{
        .offset = next_offset_, .bytes = kChunkBytes, .free_bytes = chunks_left_ * kChunkBytes};
    next_offset_ += kChunkBytes;
    return EncodeReply(header, id_, EncodeChunkGrant(grant));
  }
  void OnPeerGone(PeerId) override {}

  int requests = 0;
  bool malformed = false;
  std::vector<ChunkGrant> returned;

 private:
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
  void ReturnAll() {
    Spawn([this](OperationContext& context) { allocator_.ReturnAll(context, kTree); });
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
      EXPECT_EQ(node->offset() % kNodeBytes, 0u);
      EXPECT_TRUE(seen.insert(node->raw()).second);
    }
  }
  EXPECT_EQ(seen.size(), 12u);
  EXPECT_FALSE(allocator_.TryTake(kTree + 1, 1).has_value()) << "chunks are of one tree";
}

TEST_F(NodeAllocatorTest, WhatIsPutBackIsHandedOutAgain) {
  Start({1});
  ASSERT_TRUE(Refill().ok());
  std::vector<RemoteAddress> nodes;
  while (const auto node = allocator_.TryTake(kTree, 1)) nodes.push_back(*node);
  ASSERT_EQ(nodes.size(), 4u);
  for (const size_t i : {1, 3, 0, 2}) allocator_.PutBack(kTree, nodes[i]);
  std::set<uint64_t> again;
  while (const auto node = allocator_.TryTake(kTree, 1)) again.insert(node->raw());
  EXPECT_EQ(again.size(), 4u);
  for (const RemoteAddress node : nodes) EXPECT_TRUE(again.contains(node.raw()));
}

TEST_F(NodeAllocatorTest, PrefersTheServerThatIsAskedFor) {
  Start({1, 1});
  ASSERT_TRUE(Refill(2).ok());
  EXPECT_EQ(servers_[1]->requests, 1) << "equally free: the preferred one";
  ASSERT_TRUE(Refill(2).ok());
  EXPECT_EQ(servers_[0]->requests, 1) << "the other has more left now";
  for (int i = 0; i < 4; ++i) EXPECT_EQ(allocator_.TryTake(kTree, 2)->server(), 2);
  EXPECT_EQ(allocator_.TryTake(kTree, 2)->server(), 1) << "anywhere is better than nowhere";
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
  while (const auto node = allocator_.TryTake(kTree, 1)) nodes.insert(node->raw());
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
  const RemoteAddress used = *allocator_.TryTake(kTree, 1);
  ReturnAll();
  ASSERT_EQ(servers_[0]->returned.size(), 1u);
  EXPECT_EQ(servers_[0]->returned[0].offset, used.offset() + kNodeBytes);
  EXPECT_EQ(servers_[0]->returned[0].bytes, 3 * kNodeBytes);
  ASSERT_EQ(servers_[1]->returned.size(), 1u);
  EXPECT_EQ(servers_[1]->returned[0].bytes, kChunkBytes);
  EXPECT_FALSE(allocator_.TryTake(kTree, 1).has_value());
  ReturnAll();
  EXPECT_EQ(servers_[0]->returned.size(), 1u) << "once";
}

}  // namespace
}  // namespace pando
