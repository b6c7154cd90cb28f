// Nodes for a client's splits: carved from chunks that memory servers hand out.
//
// Thread safety: any session. TryTake() never waits, so it may be called under a node lock;
// Refill() makes a control call and may not (rule L2). Invariants:
//   1. A node is handed out once until it comes back through PutBack().
//   2. What TryTake() returns has never been written since its chunk was zeroed (its old image is
//   all zero).
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "compute/core/control_channel.h"

namespace pando {

class NodeAllocator {
 public:
  explicit NodeAllocator(ControlChannel* control) : control_(control) {}

  // What a server has free; kept up to date from chunk grants.
  void AddServer(ServerId server, uint64_t free_bytes);

  // A node on `preferred` if this client has room there, else anywhere. Empty: Refill() first.
  std::optional<RemoteAddress> TryTake(uint32_t tree_id, ServerId preferred);
  // Gives an unwritten node back.
  void PutBack(uint32_t tree_id, RemoteAddress node);

  // Gets another chunk for the tree from the server with the most free memory (`preferred` where
  // equal). ResourceExhausted when all are full. Concurrent callers share one request.
  absl::Status Refill(OperationContext& context, uint32_t tree_id, uint32_t node_bytes,
                      ServerId preferred);

  // Returns untouched remainders of the tree's chunks to their servers (closing a tree).
  void ReturnAll(OperationContext& context, uint32_t tree_id);

 private:
  struct Run {  // unused nodes
    ServerId server = 0;
    uint64_t offset = 0;
    uint64_t end = 0;
  };
  struct Pool {
    uint32_t node_bytes = 0;
    std::vector<Run> runs;
    bool refilling = false;
  };

  absl::Status RequestChunk(OperationContext& context, uint32_t tree_id, uint32_t node_bytes,
                            ServerId preferred);
  std::vector<ServerId> ServersByFreeSpace(ServerId preferred);

  ControlChannel* const control_;
  std::mutex mutex_;
  absl::flat_hash_map<uint32_t, Pool> pools_;  // by tree
  std::vector<std::pair<ServerId, uint64_t>> free_bytes_;
};

}  // namespace pando
