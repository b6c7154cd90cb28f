// What the memory room's tests share: plain memory, a clock that is set by hand, a client that
// speaks the control protocol.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/fabric/server.h"
#include "common/wire/control.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_messages.h"
#include "common/wire/owner_messages.h"
#include "memory/memory_server.h"

namespace pando::memory {

// What is in the lock words that a client holds.
inline uint64_t WordOf(const ClientId& client, uint8_t mode = LockWord::kExclusive) {
  return LockWord{client.compute_server, client.incarnation, mode}.Encode();
}

class PlainMemory {
 public:
  explicit PlainMemory(uint64_t main_bytes = 1 << 20, uint64_t lock_bytes = 8192)
      : main_(Allocate(main_bytes)),
        locks_(Allocate(lock_bytes)),
        main_bytes_(main_bytes),
        lock_bytes_(lock_bytes) {}
  ServerMemory memory() const { return {{main_.get(), main_bytes_}, {locks_.get(), lock_bytes_}}; }
  std::byte* main() const { return main_.get(); }
  uint64_t* lock_words() const { return reinterpret_cast<uint64_t*>(locks_.get()); }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{4096}); }
  };
  using Bytes = std::unique_ptr<std::byte[], Free>;
  static Bytes Allocate(uint64_t bytes) {
    auto* const p = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{4096}));
    std::memset(p, 0, bytes);
    return Bytes(p);
  }
  Bytes main_, locks_;
  uint64_t main_bytes_, lock_bytes_;
};

class ManualClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  int64_t now_ns = kSecondNs;
};

inline TreeShape Shape(uint32_t key_bytes, uint32_t value_bytes, uint32_t node_bytes = 0) {
  return {.key_bytes_max = key_bytes, .value_bytes_max = value_bytes, .node_bytes = node_bytes};
}

// One compute server on one connection.
class TestClient {
 public:
  TestClient(MemoryServer* server, PeerId peer) : server_(server), peer_(peer) {}

  std::string Message(ControlOpcode opcode, std::string_view body) {
    ControlHeader header;
    header.opcode = static_cast<uint16_t>(opcode);
    header.sender = id.compute_server;
    header.incarnation = id.incarnation;
    header.sequence = ++sequence;
    return EncodeMessage(header, body);
  }
  absl::StatusOr<std::string> Call(ControlOpcode opcode, std::string_view body = "") {
    const std::string reply = server_->Handle(peer_, Message(opcode, body));
    absl::StatusOr<std::string_view> parsed = ParseReply(reply, opcode, sequence);
    if (!parsed.ok()) return parsed.status();
    return std::string(*parsed);
  }
  absl::Status Join() {
    const auto body = Call(ControlOpcode::kJoin, EncodeJoinRequest({.process_id = 1}));
    if (!body.ok()) return body.status();
    const auto reply = ParseJoinReply(*body);
    if (!reply.ok()) return reply.status();
    id = {reply->compute_server, reply->incarnation};
    proof = reply->proof;
    return absl::OkStatus();
  }
  // `shown`: what the catalog gave it as a proof.
  absl::Status AttachAs(const ClientId& identity, const Mac& shown = {}) {
    const absl::Status status =
        Call(ControlOpcode::kAttach,
             EncodeJoinReply({identity.compute_server, identity.incarnation, shown}))
            .status();
    if (status.ok()) id = identity;
    return status;
  }
  ClientLiveness StateOf(const ClientId& client) {
    const auto body = Call(ControlOpcode::kClientState,
                           EncodeJoinReply({client.compute_server, client.incarnation}));
    return body.ok() ? *ParseClientState(*body) : ClientLiveness::kUnknown;
  }
  absl::StatusOr<CatalogEntry> CreateTree(const std::string& name,
                                          const TreeShape& shape = Shape(8, 8)) {
    const auto body = Call(ControlOpcode::kCreateTree, EncodeCreateTree({name, shape}));
    if (!body.ok()) return body.status();
    return ParseCatalogEntry(*body);
  }
  absl::StatusOr<CatalogEntry> OpenTree(const std::string& name) {
    const auto body = Call(ControlOpcode::kOpenTree, EncodeTreeName(name));
    if (!body.ok()) return body.status();
    return ParseCatalogEntry(*body);
  }
  absl::Status AttachTree(uint32_t tree_id, uint64_t life = 0) {
    return Call(ControlOpcode::kAttachTree, EncodeTreeAttach({tree_id, life})).status();
  }
  absl::Status DetachTree(uint32_t tree_id, uint8_t settled = 1) {
    return Call(ControlOpcode::kDetachTree, EncodeTreeDetach({tree_id, settled})).status();
  }
  absl::Status DropTree(uint32_t tree_id) {
    return Call(ControlOpcode::kDropTree, EncodeTreeId(tree_id)).status();
  }
  absl::StatusOr<NodeGrant> AllocateNodes(uint32_t tree_id, uint32_t node_bytes,
                                          uint32_t nodes_max = 64) {
    const auto body =
        Call(ControlOpcode::kAllocateNodes, EncodeNodeRequest({tree_id, node_bytes, nodes_max}));
    if (!body.ok()) return body.status();
    return ParseNodeGrant(*body);
  }
  absl::Status ReturnNodes(uint32_t tree_id, const std::vector<NodeRun>& runs) {
    return Call(ControlOpcode::kReturnNodes, EncodeNodeReturn({tree_id, runs})).status();
  }
  absl::StatusOr<FenceReply> Fence(const ClientId& client) {
    const auto body =
        Call(ControlOpcode::kFence, EncodeJoinReply({client.compute_server, client.incarnation}));
    if (!body.ok()) return body.status();
    return ParseFenceReply(*body);
  }
  absl::Status Serve() { return Call(ControlOpcode::kServe).status(); }
  absl::StatusOr<ExtentGrant> AllocateExtent(uint64_t bytes) {
    const auto body = Call(ControlOpcode::kAllocateExtent, EncodeExtentRequest({bytes}));
    if (!body.ok()) return body.status();
    return ParseExtentGrant(*body);
  }
  absl::StatusOr<bool> FreeExtent(const ExtentGrant& extent, uint32_t incarnation) {
    const auto body =
        Call(ControlOpcode::kFreeExtent, EncodeExtentFree({extent.life, extent.id, incarnation}));
    if (!body.ok()) return body.status();
    return ParseExtentFreed(*body);
  }
  std::vector<ListedExtent> ListExtents() {
    const auto body = Call(ControlOpcode::kListExtents, EncodeExtentQuery({0, 1024}));
    return body.ok() ? ParseExtentList(*body)->extents : std::vector<ListedExtent>();
  }
  // How many took effect; -1: refused.
  int64_t FreeNodes(uint32_t tree_id, const std::vector<NodeLife>& nodes) {
    const auto body = Call(ControlOpcode::kFreeNodes, EncodeNodeFree({tree_id, nodes}));
    return body.ok() ? int64_t{ParseNodesFreed(*body)->count} : -1;
  }

  ClientId id;
  Mac proof = {};
  uint32_t sequence = 0;

 private:
  MemoryServer* const server_;
  const PeerId peer_;
};

}  // namespace pando::memory
