// What the tests of NodeAllocator share: memory servers that only hand out nodes, on the simulated
// fabric.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/epoch.h"
#include "common/fabric/sim/sim_world.h"
#include "common/wire/control.h"
#include "common/wire/node_messages.h"
#include "compute/core/node_allocator.h"
#include "compute/core/session_context.h"

namespace pando {

// A memory server that only hands out nodes: `chunks` times a chunk of fresh ones.
class ChunkServer : public ControlHandler {
 public:
  static constexpr uint32_t kTree = 5, kNodeBytes = 1024, kChunkBytes = 4 * kNodeBytes;

  ChunkServer(sim::SimWorld* world, ServerId id, uint64_t chunks)
      : world_(world), id_(id), chunks_left_(chunks) {}

  std::string Handle(PeerId, std::string_view bytes) override {
    const auto message = ParseMessage(bytes);
    EXPECT_TRUE(message.ok()) << message.status();
    // A repeat gets the reply that was given (rule R4).
    const ControlHeader& header = message->header;
    behind = header.sequence - header.first_incomplete;
    if (const auto kept = replies_.find(header.sequence); kept != replies_.end()) {
      return kept->second;
    }
    EXPECT_TRUE(executed_.insert(header.sequence).second) << "a second time";
    std::string reply = Execute(*message);
    replies_[header.sequence] = reply;
    if (replies_.size() > kRepliesKept) replies_.erase(replies_.begin());
    return reply;
  }
  void OnPeerGone(PeerId) override {}

  int requests = 0, free_calls = 0;
  uint32_t behind = 0;  // replies that are kept for the caller of the last call
  bool malformed = false, refuses = false, refuses_frees = false;
  std::function<void()> on_request, on_free;  // while one is answered
  std::vector<NodeRun> recycled;              // the next grant, in place of a chunk
  uint32_t orphans = 0;
  uint64_t free_elsewhere = 0;   // bytes that it says it has, and never hands out
  int64_t rested_ns = 0;         // when the next chunk has rested, if none is left
  int64_t rest_of_freed_ns = 0;  // if not 0: what is freed becomes such a chunk
  std::vector<NodeRun> returned;
  std::vector<NodeLife> freed;

  uint64_t FreeBytes() const { return free_elsewhere + chunks_left_ * kChunkBytes; }

 private:
  std::string Execute(const ControlMessage& message) {
    const ControlHeader& header = message.header;
    if (refuses) return EncodeErrorReply(header, id_, absl::InternalError("refused"));
    switch (static_cast<ControlOpcode>(header.opcode)) {
      case ControlOpcode::kReturnNodes: {
        const NodeReturn request = *ParseNodeReturn(message.body);
        EXPECT_EQ(request.tree_id, kTree);
        returned.insert(returned.end(), request.runs.begin(), request.runs.end());
        return EncodeReply(header, id_, "");
      }
      case ControlOpcode::kFreeNodes: {
        if (refuses_frees) return EncodeErrorReply(header, id_, absl::InternalError("refused"));
        const NodeFree request = *ParseNodeFree(message.body);
        EXPECT_EQ(request.tree_id, kTree);
        freed.insert(freed.end(), request.nodes.begin(), request.nodes.end());
        ++free_calls;
        if (on_free) on_free();
        if (rest_of_freed_ns != 0) rested_ns = world_->clock().NowNs() + rest_of_freed_ns;
        const NodesFreed reply = {static_cast<uint32_t>(request.nodes.size()), FreeBytes()};
        return EncodeReply(header, id_, EncodeNodesFreed(reply));
      }
      default:
        EXPECT_EQ(header.opcode, static_cast<uint16_t>(ControlOpcode::kAllocateNodes));
        return Allocate(header, *ParseNodeRequest(message.body));
    }
  }
  std::string Allocate(const ControlHeader& header, const NodeRequest& request) {
    ++requests;
    if (on_request) on_request();
    EXPECT_EQ(request.tree_id, kTree);
    NodeGrant grant;
    grant.orphans = orphans;
    if (malformed) {
      grant.runs = {{.offset = 4096, .bytes = kNodeBytes + 64, .life = 1}};
    } else if (!recycled.empty()) {
      grant.runs.swap(recycled);
    } else if (chunks_left_ == 0 && rested_ns != 0 && world_->clock().NowNs() < rested_ns) {
      grant.rested_in_ns = rested_ns - world_->clock().NowNs();
    } else if (chunks_left_ == 0 && std::exchange(rested_ns, 0) == 0) {
      return EncodeErrorReply(header, id_, absl::ResourceExhaustedError("full"));
    } else {
      if (chunks_left_ > 0) --chunks_left_;
      grant.runs = {{.offset = next_offset_, .bytes = kChunkBytes, .life = 1}};
      next_offset_ += kChunkBytes;
    }
    grant.free_bytes = FreeBytes();
    return EncodeReply(header, id_, EncodeNodeGrant(grant));
  }

  sim::SimWorld* const world_;
  const ServerId id_;
  uint64_t chunks_left_;
  uint64_t next_offset_ = 4096;
  std::map<uint32_t, std::string> replies_;  // by sequence, the last ones
  std::set<uint32_t> executed_;              // sequences
};

class NodeAllocatorTest : public testing::Test {
 protected:
  static constexpr uint32_t kTree = ChunkServer::kTree, kNodeBytes = ChunkServer::kNodeBytes,
                            kChunkBytes = ChunkServer::kChunkBytes;

  void Start(const std::vector<uint64_t>& chunks, uint64_t free_elsewhere = 0) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto id = static_cast<ServerId>(i + 1);
      world_.AddServer(id, 1 << 20, 4096);
      servers_.push_back(std::make_unique<ChunkServer>(&world_, id, chunks[i]));
      world_.SetHandler(id, servers_.back().get());
      servers_.back()->free_elsewhere = free_elsewhere;
      allocator_.AddServer(id, servers_.back()->FreeBytes());
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
  absl::Status Refill(ServerId preferred = 1, int64_t timeout_ns = 10 * kSecondNs) {
    absl::Status status;
    session_->scheduler().Spawn([&] {
      OperationContext context(session_.get(), session_->NowNs() + timeout_ns);
      status = allocator_.Refill(context, kTree, kNodeBytes, preferred);
    });
    session_->scheduler().Drain();
    return status;
  }
  ServerDoubts DoubtsAtClose() {
    ServerDoubts doubts;
    Spawn([&](OperationContext& context) { doubts = allocator_.ReturnAll(context, kTree); });
    session_->scheduler().Drain();
    return doubts;
  }
  bool ReturnAll() { return DoubtsAtClose().empty(); }
  void SleepFor(int64_t ns) {
    Spawn([ns](OperationContext& context) {
      context.session.scheduler().SleepUntil(context.session.NowNs() + ns);
    });
    session_->scheduler().Drain();
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

}  // namespace pando
