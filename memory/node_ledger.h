// Every node that this memory server has handed out, tree by tree (rules R3, R4, C5).
//
// Not thread-safe: one control thread. What clients send is any values: it changes nothing but what
// it is entitled to. Work of one call is bounded (kNodesExaminedMax, kChunksExaminedMax), with two
// exceptions. Freeing a tree, noting that one of its clients is gone, and counts() are a step for
// each chunk; closing a tree in order is one for each node of the chunks that the client has.
// Invariants:
//   1. A chunk belongs to at most one tree, with one size of nodes or cells, until all of these are
//      free or the tree is.
//   2. A node is out to one holder at a time; it is handed out again only after it was freed or
//      came back unwritten.
//   3. A free or settle takes effect once: the life that it names is the one that was granted last,
//      and memory shows the node in that life, dead or live (rules R4, R5). What is freed rests
//      before it is handed out (rule R3), cells for a moment (rule K2).
//   4. Of a holder that ended, nodes it did not write are free again and the others are orphans,
//      until a sweep has settled or freed them. Of one that only closed the tree, and was not sure,
//      all stay out until it ends (rule R6).
//   5. Cells of a tree (rule K2) are kept as its nodes are, each size apart. They are freed live:
//      nothing refers to them any more, says who took the reference out, or found none.
//   6. The life in the memory of a node never goes back, whichever trees its chunk serves
//      (chunk_pool.h, chunk_nodes.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/time_constants.h"
#include "common/wire/node_glance.h"
#include "common/wire/node_messages.h"
#include "memory/chunk_nodes.h"
#include "memory/chunk_pool.h"
#include "memory/client_id.h"
#include "memory/region.h"

namespace pando::memory {

// --- Of NodeLedger alone.
struct LedgerHolder {
  uint16_t compute_server = 0;
  // It closed the tree, not knowing what became of its nodes: whatever it says later, only its end
  // settles that.
  bool in_doubt = false;
  absl::btree_set<uint32_t> chunks;  // all in which it may have nodes out
};
// A way through all nodes of a tree by calls of ListOrphans() that follow each other.
struct LedgerPass {
  bool under_way = false, clean = false;
  uint64_t next = 0;
};
struct LedgerTree {  // or the cells of one size of a tree
  uint32_t node_bytes = 0;
  absl::btree_set<uint32_t> chunks, partial, with_free;  // partial: with untouched nodes
  absl::btree_map<uint32_t, LedgerHolder> holders;       // by incarnation
  absl::btree_map<uint32_t, uint16_t> gone;  // incarnation -> compute server, while orphans > 0
  uint64_t orphans = 0, free_nodes = 0;
  // Somebody ended in the middle of something: any node may carry its marks (rule M7), until a
  // pass has found none.
  bool suspect = false;
  uint32_t passes = 0;
  LedgerPass pass;
};

// Rule K4: of a tree with cells.
struct LedgerCells {
  uint64_t due =
      0;  // not 0: somebody has ended, or closed the tree in doubt, since it was last done
  uint64_t last = 0;
  // Who is at it, and until when nobody else is asked to.
  uint32_t taken_by = 0;
  int64_t taken_until_ns = 0;
};

class NodeLedger {
 public:
  static constexpr uint32_t kNodesExaminedMax = 8192;  // in one list of nodes
  static constexpr uint32_t kChunksExaminedMax = 1024;
  static constexpr uint32_t kStepsOfACall = 4;  // chunks of ended holders

  NodeLedger(Region* region, const Clock* clock, const TimeConstants& times);

  // Rested nodes of the tree, else the rest of a chunk it has, else a chunk. InvalidArgument:
  // node_bytes is no node size, or not the tree's; ResourceExhausted: nothing is left, or all
  // rests: AllocateLater() says which.
  absl::StatusOr<NodeGrant> Allocate(const ClientId& holder, const NodeRequest& request);
  // When to ask again: the grant without nodes. Empty: nothing rests for this tree.
  std::optional<NodeGrant> AllocateLater(const ClientId& holder, NodePoolId pool) const;
  // All or nothing. InvalidArgument: not nodes that `holder` was handed and has not written.
  absl::Status Return(const ClientId& holder, const NodeReturn& returned);
  // How many took effect; what did not is no error (repeats, frees that come late).
  NodesFreed Free(const NodeFree& freed);
  uint32_t Settle(const NodeSettle& settle);
  OrphanList ListOrphans(const NodeQuery& query);
  NodeList ListNodes(const NodeQuery& query) const;
  CellList ListCells(const ClientId& asker, const CellQuery& query);

  // A node for the server itself (a tree's first root), settled.
  absl::StatusOr<NodeLife> AllocateNode(uint32_t tree_id, uint32_t node_bytes);

  // There may be cells of the tree that nothing refers to: all are looked at (rule K4).
  void CellsBecomeDue(uint32_t tree_id);
  // The holder uses the tree no more, for now. `settled`: whatever it was handed and did not return
  // is linked, and nothing is in flight to any node.
  void CloseHolder(const ClientId& holder, uint32_t tree_id, bool settled);
  // The holder has ended: nothing of it is in flight any more. `uses`: the trees it had not closed.
  void EndHolder(const ClientId& holder, const std::vector<uint32_t>& uses);
  // A client that has closed the tree may have a WRITE in flight to its memory (rule R6).
  bool IsInDoubt(uint32_t tree_id) const;
  // Looks at the nodes of one chunk whose holder has ended. False: there is nothing to look at.
  bool Step();
  bool idle() const { return departures_.empty(); }

  // Nobody refers to the tree any more: its chunks rest, then are free.
  void FreeTree(uint32_t tree_id);

  // So many chunks are for one tree alone, until it has them: that of the owners (rule O2), which
  // goes on when everything else is full. It is handed out in small pieces: its clients are many,
  // and what each holds in reserve is nobody else's. 0: there is no such tree yet.
  void KeepBack(uint32_t chunks) { kept_back_max_ = chunks; }
  void KeepBackFor(uint32_t tree_id) { kept_back_for_ = tree_id; }
  // Free chunks that others do not get now.
  uint64_t kept_back() const { return KeptBackFrom(0); }

  struct Counts {
    uint64_t chunks_free = 0, chunks_used = 0;
    uint64_t nodes_untouched = 0, nodes_free = 0, nodes_out = 0, nodes_settled = 0, orphans = 0;
    uint64_t grants = 0, nodes_granted = 0, nodes_granted_again = 0;  // events
    uint64_t nodes_returned = 0, nodes_freed = 0, frees_ignored = 0, chunks_back = 0;
  };
  Counts counts() const;
  const ChunkPool& pool() const { return pool_; }
  // For what takes chunks besides trees (extent_table.h).
  ChunkPool& pool() { return pool_; }
  // That anybody may get.
  uint64_t free_bytes() const {
    return (pool_.free_chunks() - std::min(pool_.free_chunks(), kept_back())) * chunk_bytes_;
  }
  uint64_t used_bytes() const { return (chunks_.size() - pool_.free_chunks()) * chunk_bytes_; }

 private:
  using Tree = LedgerTree;
  struct Chunk {
    NodePoolId pool;
    std::unique_ptr<ChunkNodes> nodes;  // null: the pool has it
  };
  struct Departure {
    NodePoolId pool;
    ClientId holder;
    std::vector<uint32_t> chunks;
  };
  struct Place {
    uint32_t chunk = 0;
    uint32_t node = 0;
  };

  static constexpr uint32_t kKeptBackNodesMax = 4;  // in one grant

  // Of the free chunks, those that this tree does not get.
  uint64_t KeptBackFrom(uint32_t tree_id) const;
  uint64_t FreeBytes(const Tree& tree) const {
    return free_bytes() + tree.free_nodes * tree.node_bytes;
  }
  uint32_t OrphanHint(uint32_t tree_id, uint32_t incarnation) const;
  // What of the cells is to be gone through by this client.
  uint64_t DueFor(const LedgerCells& cells, uint32_t incarnation) const {
    const bool is_free = incarnation == cells.taken_by || clock_->NowNs() >= cells.taken_until_ns;
    return is_free ? cells.due : 0;
  }
  absl::Status CheckNodeBytes(NodePoolId pool, uint32_t node_bytes) const;
  Tree* FindTree(NodePoolId pool);
  // Its nodes and cells.
  std::vector<NodePoolId> PoolsOf(uint32_t tree_id) const;
  void CloseHolder(const ClientId& holder, NodePoolId pool, bool settled);
  int64_t RestOf(NodePoolId pool) const { return pool.is_of_cells() ? cell_rest_ns_ : rest_ns_; }
  uint64_t OffsetOf(const Tree& tree, const Place& place) const;
  NodeGlance Glance(const Tree& tree, const Place& place) const;
  bool IsWritten(const Tree& tree, const Place& place) const;
  // The node of the tree that starts at `offset`, if there is one that was ever handed out.
  std::optional<Place> Find(const Tree& tree, NodePoolId pool, uint64_t offset) const;
  // The first node of the tree behind `offset`, handed out or not.
  std::optional<Place> FirstAfter(const Tree& tree, uint64_t offset) const;
  std::optional<Place> Next(const Tree& tree, Place place) const;

  void TakeRested(Tree& tree, const ClientId& holder, uint32_t nodes_max, NodeGrant* grant);
  void TakeUntouched(Tree& tree, const ClientId& holder, uint32_t nodes_max, NodeGrant* grant);
  absl::Status AddChunk(NodePoolId pool, uint32_t node_bytes);
  // Puts the chunk on the tree's lists as its nodes are now, or back into the pool.
  void Relist(Tree& tree, uint32_t chunk);
  // Memory shows the node in this life and state, and it is out, settled or an orphan in that life.
  bool Shows(const Tree& tree, NodePoolId pool, const Place& place, uint32_t life,
             NodeState state) const;
  void FreeAt(Tree& tree, const Place& place);
  void SettleAt(NodePoolId pool, const Place& place);
  void BecomeSuspect(Tree& tree);
  void StopBeingOrphan(Tree& tree, const Place& place);
  // The compute server of a holder that lives, or whose departure is under way.
  uint16_t ServerOf(const Tree& tree, uint32_t incarnation) const;
  std::optional<Orphan> OrphanAt(const Tree& tree, const Place& place) const;
  bool HasDeparture(NodePoolId pool) const;
  void ExamineChunk(Tree& tree, const ClientId& holder, uint32_t chunk);

  Region* const region_;
  const Clock* const clock_;
  const TimeConstants times_;
  const int64_t rest_ns_, cell_rest_ns_;
  const uint64_t chunk_bytes_;
  ChunkPool pool_;
  std::vector<Chunk> chunks_;
  absl::btree_map<NodePoolId, Tree> trees_;
  absl::btree_map<uint32_t, LedgerCells> cells_;  // of trees that have cells here
  std::deque<Departure> departures_;
  uint32_t kept_back_max_ = 0, kept_back_for_ = 0;
  Counts events_;
};

}  // namespace pando::memory
