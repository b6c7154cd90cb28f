// Rule C4: a node that is torn under its lock is what a dead client left of a node-level write.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "common/wire/node_repair.h"
#include "compute/index/hold.h"
#include "compute/index/lock_set.h"
#include "compute/index/read_node.h"
#include "compute/index/write_back.h"

namespace pando {
namespace {

absl::Status Damaged(RemoteAddress node, std::string_view how) {
  return absl::DataLossError(absl::StrCat("node ", node.offset(), " of server ", node.server(),
                                          " cannot be repaired: ", std::string(how)));
}

// What the repair of one held node needs of others. While they are looked for nothing is written.
class Repair {
 public:
  Repair(OperationContext& context, TreeContext& tree, const HeldLock& lock, LocalBuffer image,
         Reference* unknown)
      : context_(context), tree_(tree), lock_(lock), image_(image), unknown_(unknown) {}

  // Rule F4: where `high` continues behind line 0 the rest may be of another write.
  absl::Status SettleHigh(uint8_t level);
  // The separators of an internal node, from the level below. What is missed is legal (rule S3).
  absl::Status RebuildInternal(uint8_t level);

 private:
  // What another node's header says that the repair cannot do without. Where it stays torn its
  // writer is at work, stopped, or dead and not cleared away yet: only under its lock is it known
  // to be damaged. Aborted: somebody has that lock, or the node is `unknown_`.
  absl::StatusOr<NodeEdges> EdgesOf(const Reference& other, uint8_t level, std::string_view gone);
  absl::Status Damaged(std::string_view how) const {
    return pando::Damaged(lock_.target().node.address, how);
  }

  OperationContext& context_;
  TreeContext& tree_;
  const HeldLock& lock_;
  const LocalBuffer image_;
  Reference* const unknown_;
};

absl::StatusOr<NodeEdges> Repair::EdgesOf(const Reference& other, uint8_t level,
                                          std::string_view gone) {
  PANDO_ASSIGN_OR_RETURN(std::optional<NodeEdges> seen,
                         ReadNodeEdges(context_, tree_, other, level, unknown_));
  if (seen.has_value()) return *std::move(seen);
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context_.session.buffers().Lease(tree_.layout.node_bytes()));
  LockSet locks(context_, tree_);
  locks.Borrow(lock_);
  PANDO_ASSIGN_OR_RETURN(const bool held, locks.TryAdd(other, image.buffer()));
  if (!held) return absl::AbortedError("a node that the repair needs is being written");
  NodeEdges edges;
  const bool whole = ReadEdges(image.data(), tree_.layout, Expect(tree_, other, level, ""),
                               tree_.environment.crc, &edges);
  PANDO_RETURN_IF_ERROR(locks.ReleaseAll());
  if (!whole) return Damaged(gone);
  return edges;
}

absl::Status Repair::SettleHigh(uint8_t level) {
  if (HighIsInLine0(image_.data) || !RuleHolds(Rule::kF4)) return absl::OkStatus();
  const Reference right = RightOf(image_.data);
  if (right.is_null()) return Damaged("a high fence without a right sibling");
  PANDO_ASSIGN_OR_RETURN(const NodeEdges edges,
                         EdgesOf(right, level, "its right sibling is gone or damaged"));
  SetHigh(image_.data, tree_.layout, edges.low);
  return absl::OkStatus();
}

absl::Status Repair::RebuildInternal(uint8_t level) {
  InternalNode node;
  node.header = ReadHeader(image_.data, tree_.layout);
  const std::string& high = node.header.high;
  Reference child = node.header.leftmost;
  const auto child_level = static_cast<uint8_t>(level - 1);
  for (bool leftmost = true; !child.is_null(); leftmost = false) {
    std::optional<NodeEdges> edges;
    if (leftmost) {
      PANDO_ASSIGN_OR_RETURN(edges,
                             EdgesOf(child, child_level, "its leftmost child is gone or damaged"));
    } else {
      PANDO_ASSIGN_OR_RETURN(edges, ReadNodeEdges(context_, tree_, child, child_level, unknown_));
      if (!edges.has_value()) break;
      const std::string_view last =
          node.entries.empty() ? node.header.low : node.entries.back().key;
      if (edges->low <= last) return Damaged("its children are out of order");
      if (!high.empty() && edges->low >= high) break;
      if (edges->state == NodeState::kLive) {
        if (node.StreamBytes() + InternalNode::EntryBytes(edges->low) >
            tree_.layout.internal_payload_bytes()) {
          break;
        }
        node.entries.push_back({std::move(edges->low), child});
      }
    }
    child = edges->right;
  }
  EncodeInternal(node, tree_.layout, image_.data, tree_.environment.crc, image_.data);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> RepairNode(OperationContext& context, TreeContext& tree,
                                const NodeExpectation& expectation, const HeldLock& lock,
                                LocalBuffer image, Reference* unknown) {
  *unknown = {};
  const bool crc = tree.environment.crc;
  const RemoteAddress node = lock.target().node.address;
  if (!MayRepair(image.data, expectation, crc)) return false;
  if (!LinesWhole(image.data, tree.layout, crc)) return Damaged(node, "a line is torn inside");
  Repair repair(context, tree, lock, image, unknown);
  PANDO_RETURN_IF_ERROR(repair.SettleHigh(expectation.level));
  if (!RuleHolds(Rule::kC4)) {
    // The variant believes every line.
  } else if (expectation.level == 0) {
    LeafEditor(image.data, tree.layout, crc).ClearOutOfFence();
  } else {
    PANDO_RETURN_IF_ERROR(repair.RebuildInternal(expectation.level));
  }
  if (expectation.level == 0 || !RuleHolds(Rule::kC4)) {
    SealNodeLevel(image.data, image.data, tree.layout, crc);
  }
  WriteBack writes(context, tree, node.server());
  // Line 0 first: it is what a repair trusts, also the next one, if this one dies between two
  // packets (rule C4).
  PANDO_RETURN_IF_ERROR(writes.AddNodeHeaderFirst(node, image));
  PANDO_RETURN_IF_ERROR(writes.Flush());
  context.session.counters().repairs.Add();
  return true;
}

}  // namespace pando
