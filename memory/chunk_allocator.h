// Who holds each chunk of the region. Clients get whole chunks and carve nodes from them in
// ascending order.
//
// Not thread-safe: one control thread. Invariants:
//   1. A chunk belongs to at most one tree, with one node size, until the tree is freed as a whole.
//   2. Memory handed out is zero: fresh, or zeroed after it has rested (rule R3), or an untouched
//   remainder.
//   3. [watermark, end) of a chunk that nobody holds has never been handed out, or came back
//   untouched.
//   4. free + held + partial + full == chunk_count.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/wire/control.h"
#include "memory/client_id.h"
#include "memory/region.h"

namespace pando::memory {

class ChunkAllocator {
 public:
  // `rest_ns`: how long a freed chunk rests before it is handed out again (rule R3).
  ChunkAllocator(Region* region, const Clock* clock, int64_t rest_ns);

  // A remainder that came back, or a free chunk. InvalidArgument: node_bytes is no node size, or
  // not the tree's; ResourceExhausted: nothing left, or everything left still rests.
  absl::StatusOr<ChunkGrant> Allocate(const ClientId& holder, uint32_t tree_id,
                                      uint32_t node_bytes);

  // The untouched end of a chunk that `holder` holds. InvalidArgument if it is anything else.
  absl::Status Return(const ClientId& holder, const ChunkGrant& remainder);

  // Carves one node on behalf of the server itself (a tree's first root). Zero memory; the address
  // as an offset.
  absl::StatusOr<uint64_t> AllocateNode(uint32_t tree_id, uint32_t node_bytes);

  // The holder is gone, or no longer uses the tree: nothing of it writes any more. Formatted nodes
  // stay the tree's; the zero end of each chunk was never used and is handed out again.
  void ReleaseHolder(const ClientId& holder, uint32_t tree_id);
  void ReleaseHolder(const ClientId& holder);

  // Nobody refers to the tree any more: its chunks rest, then are free.
  void FreeTree(uint32_t tree_id);

  struct Counts {
    uint64_t free = 0, held = 0, partial = 0, full = 0;  // chunks, by state
    uint64_t grants = 0, returns = 0, recovered = 0;     // events
    uint64_t exhausted = 0, zeroed_bytes = 0;
  };
  Counts counts() const;
  uint64_t free_bytes() const { return free_chunks() * region_->superblock().chunk_bytes; }
  uint64_t used_bytes() const;

 private:
  enum class State : uint8_t { kFree, kHeld, kPartial, kFull };
  struct Chunk {
    State state = State::kFree;
    uint32_t tree_id = 0;
    uint32_t node_bytes = 0;
    uint64_t watermark = 0;  // bytes handed out; while held: at the time of the grant
    ClientId holder;
  };
  struct Resting {
    uint32_t chunk;
    int64_t until_ns;
  };
  struct TreeChunks {
    uint32_t node_bytes = 0;
    std::vector<uint32_t> all;
    std::vector<uint32_t> partial;
  };

  uint64_t free_chunks() const { return (chunks_.size() - next_fresh_) + resting_.size(); }
  uint64_t UsableBytes(const Chunk& chunk) const;
  absl::Status CheckNodeBytes(uint32_t tree_id, uint32_t node_bytes) const;
  // A chunk of the tree with room, held by nobody yet and on no list: the caller holds or unholds
  // it.
  absl::StatusOr<uint32_t> TakeChunk(uint32_t tree_id, uint32_t node_bytes);
  absl::StatusOr<uint32_t> TakeFree();
  void Unhold(uint32_t index, uint64_t watermark);

  Region* const region_;
  const Clock* const clock_;
  const int64_t rest_ns_;
  std::vector<Chunk> chunks_;
  uint32_t next_fresh_ = 0;      // chunks from here on have never been used
  std::deque<Resting> resting_;  // used before, oldest first; not zeroed yet
  absl::btree_map<uint32_t, TreeChunks> trees_;
  Counts events_;
};

}  // namespace pando::memory
