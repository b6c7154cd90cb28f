// Bodies of the control messages about single nodes: which nodes of a tree a memory server handed
// out, got back, may hand out again. All offsets are of node starts in the main region of the
// server that is asked. Encoders and parsers are pure; parsers take any bytes (fuzzed:
// control_fuzz).
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"

namespace pando {

// Requests that change something stay below what a memory server keeps for repeats (rule R4).
inline constexpr size_t kNodesPerRequestMax = 64;
inline constexpr size_t kRunsPerRequestMax = 56;
// Replies stay within one control message.
inline constexpr size_t kGrantRunsMax = 256;
inline constexpr size_t kListedNodesMax = 2048;
inline constexpr int64_t kRestNsMax = 3600 * kSecondNs;

// What a memory server keeps apart: the nodes of a tree, and its cells of each size
// (value_cell.h).
struct NodePoolId {
  uint32_t tree_id = 0;
  uint16_t cell_lines = 0;  // 0: nodes

  NodePoolId() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a tree's id stands for its nodes.
  NodePoolId(uint32_t tree_id, uint16_t cell_lines = 0)
      : tree_id(tree_id), cell_lines(cell_lines) {}
  bool is_of_cells() const { return cell_lines != 0; }
  friend auto operator<=>(const NodePoolId&, const NodePoolId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const NodePoolId& id) {
    return H::combine(std::move(h), id.tree_id, id.cell_lines);
  }
};

// In all of these: `cell_lines` other than 0 means cells of the tree, not nodes (rule K2).
struct NodeRequest {  // kAllocateNodes
  uint32_t tree_id = 0;
  uint32_t node_bytes = 0;  // of cells: their lines'
  uint32_t nodes_max = 0;   // of those used before; memory never used comes in whole chunks
  uint16_t cell_lines = 0;
  NodePoolId pool() const { return {tree_id, cell_lines}; }
};
struct NodeRun {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // a multiple of node_bytes, above 0
  uint8_t recycled =
      0;              // 1: the nodes have an old image, to be read before they are formatted (F2)
  uint32_t life = 0;  // that the nodes get (rule R5); never 0
  friend bool operator==(const NodeRun&, const NodeRun&) = default;
};
struct NodeGrant {
  uint64_t free_bytes = 0;  // left for this tree on the server afterwards
  uint32_t orphans = 0;     // nodes of the tree there that wait for a sweep (rule C5); a hint
  // Empty: no node is free now, but freed memory will have rested (rule R3) in `rested_in_ns`, at
  // most kRestNsMax. Else that is 0.
  std::vector<NodeRun> runs;
  int64_t rested_in_ns = 0;
};
struct NodeReturn {  // kReturnNodes: handed to the sender and not written since
  uint32_t tree_id = 0;
  std::vector<NodeRun> runs;  // `recycled` and `life` are not sent
  uint16_t cell_lines = 0;
  NodePoolId pool() const { return {tree_id, cell_lines}; }
};
struct NodeLife {
  uint64_t offset = 0;
  uint32_t life = 0;
  friend bool operator==(const NodeLife&, const NodeLife&) = default;
};
struct NodeFree {  // kFreeNodes -> NodesFreed. They are dead, in these lives (rule R4)
  uint32_t tree_id = 0;
  std::vector<NodeLife> nodes;
  uint16_t cell_lines = 0;  // cells are not dead: nothing refers to them any more (rule K2)
  NodePoolId pool() const { return {tree_id, cell_lines}; }
};
struct NodesFreed {
  uint32_t count = 0;       // of those that took effect
  uint64_t free_bytes = 0;  // for this tree on the server, with what rests
};
struct NodeSettle {  // kSettleNodes: found reachable by a sweep, live -> how many took effect
  uint32_t tree_id = 0;
  std::vector<NodeLife> nodes;
  uint16_t cell_lines = 0;  // of cells their holder says it, too
  NodePoolId pool() const { return {tree_id, cell_lines}; }
};
struct TreeDetach {  // kDetachTree
  uint32_t tree_id = 0;
  // kSettled: every node the client was handed and did not return is linked, and nothing is in
  // flight to any. kCellsDue: and it may have taken cells out that it does not know (rule K7).
  // kInDoubt: who knows (rule R6).
  enum : uint8_t { kInDoubt = 0, kSettled = 1, kCellsDue = 2 };
  uint8_t settled = kInDoubt;
};

// kListOrphans and kListNodes go through a tree's nodes in ascending order, a part a call.
struct NodeQuery {
  uint32_t tree_id = 0;
  uint64_t after_offset = 0;  // 0: from the start; else `next` of the reply before
  uint32_t max = 0;           // entries wanted; at most kListedNodesMax come
};
struct Orphan {
  uint64_t offset = 0;
  uint16_t compute_server = 0;  // the holder; 0, 0: nobody in particular
  uint32_t incarnation = 0;
  uint32_t life = 0;  // in which it is listed: of a later one the holder is another (rule C5)
  friend bool operator==(const Orphan&, const Orphan&) = default;
};
struct OrphanList {
  uint8_t more = 0;   // 1: ask again after `next`; entries may be none all the same
  uint64_t next = 0;  // everything up to here was looked at
  std::vector<Orphan> orphans;
};
enum class NodeUse : uint8_t {
  kUntouched = 0,  // never handed out since its chunk came to the tree
  kFree = 1,       // resting, or to be handed out again
  kOut = 2,        // handed out: linked or not, only its holder knows
  kSettled = 3,    // known to be the tree's
  kOrphan = 4,     // was out when its holder ended
};
struct NodeUseRun {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  NodeUse use = NodeUse::kUntouched;
  uint32_t incarnation = 0;  // of the holder (kOut, kOrphan), else 0
  friend bool operator==(const NodeUseRun&, const NodeUseRun&) = default;
};
struct NodeList {
  uint8_t more = 0;
  uint64_t next = 0;
  std::vector<NodeUseRun> runs;
};

// kListCells goes through a tree's cells of all sizes, a part a call (rule K4): those whose holder
// has ended, and those that are known to have been referred to.
struct CellQuery {
  uint32_t tree_id = 0;
  uint16_t after_lines = 0;  // 0, 0: from the start; else `next` of the reply before
  uint64_t after_offset = 0;
  uint32_t max = 0;  // entries wanted; at most kListedNodesMax come
  // 0: those whose holder has ended; 1: those that have been referred to as well; 2: also those
  // that are out to somebody who lives.
  uint8_t which = 0;
  // 1: the caller goes through all cells, because a holder's end wants it (`due`): others are not
  // asked to for a while.
  uint8_t takes = 0;
  // Not 0: it has, from this `due` on.
  uint64_t done = 0;
};
struct CellUse {
  uint16_t cell_lines = 0;
  uint64_t offset = 0;
  uint32_t life = 0;
  NodeUse use = NodeUse::kSettled;
  uint16_t compute_server = 0;  // of a holder that has ended
  uint32_t incarnation = 0;     // of the holder (kOut, kOrphan), else 0
  friend bool operator==(const CellUse&, const CellUse&) = default;
};
struct CellList {
  uint8_t more = 0;
  uint16_t next_lines = 0;
  uint64_t next_offset = 0;
  uint64_t due = 0;  // not 0: somebody has ended since all cells were gone through
  std::vector<CellUse> cells;
};

std::string EncodeNodeRequest(const NodeRequest& request);
absl::StatusOr<NodeRequest> ParseNodeRequest(std::string_view body);
std::string EncodeNodeGrant(const NodeGrant& grant);
absl::StatusOr<NodeGrant> ParseNodeGrant(std::string_view body);
std::string EncodeNodeReturn(const NodeReturn& returned);
absl::StatusOr<NodeReturn> ParseNodeReturn(std::string_view body);
std::string EncodeNodeFree(const NodeFree& freed);
absl::StatusOr<NodeFree> ParseNodeFree(std::string_view body);
std::string EncodeNodesFreed(const NodesFreed& freed);
absl::StatusOr<NodesFreed> ParseNodesFreed(std::string_view body);
std::string EncodeNodeCount(uint32_t count);  // the reply to kSettleNodes
absl::StatusOr<uint32_t> ParseNodeCount(std::string_view body);
std::string EncodeNodeSettle(const NodeSettle& settle);
absl::StatusOr<NodeSettle> ParseNodeSettle(std::string_view body);
std::string EncodeTreeDetach(const TreeDetach& detach);
absl::StatusOr<TreeDetach> ParseTreeDetach(std::string_view body);
std::string EncodeNodeQuery(const NodeQuery& query);
absl::StatusOr<NodeQuery> ParseNodeQuery(std::string_view body);
std::string EncodeOrphanList(const OrphanList& list);
absl::StatusOr<OrphanList> ParseOrphanList(std::string_view body);
std::string EncodeNodeList(const NodeList& list);
absl::StatusOr<NodeList> ParseNodeList(std::string_view body);
std::string EncodeCellQuery(const CellQuery& query);
absl::StatusOr<CellQuery> ParseCellQuery(std::string_view body);
std::string EncodeCellList(const CellList& list);
absl::StatusOr<CellList> ParseCellList(std::string_view body);

}  // namespace pando
