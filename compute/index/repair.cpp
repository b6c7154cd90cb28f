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
#include "compute/index/read_node.h"
#include "compute/index/write_back.h"

namespace pando {
namespace {

absl::Status Damaged(RemoteAddress node, std::string_view how) {
  return absl::DataLossError(absl::StrCat("node ", node.offset(), " of server ", node.server(),
                                          " cannot be repaired: ", std::string(how)));
}

// Rule F4: where `high` continues behind line 0 the rest may be of another write.
absl::Status SettleHigh(OperationContext& context, TreeContext& tree, uint8_t level,
                        RemoteAddress node, LocalBuffer image) {
  if (HighIsInLine0(image.data)) return absl::OkStatus();
  const Reference right = RightOf(image.data);
  if (right.is_null()) return Damaged(node, "a high fence without a right sibling");
  PANDO_ASSIGN_OR_RETURN(const std::optional<NodeEdges> edges,
                         ReadNodeEdges(context, tree, right, level));
  if (!edges.has_value()) return Damaged(node, "its right sibling is gone");
  SetHigh(image.data, tree.layout, edges->low);
  return absl::OkStatus();
}

// The separators of an internal node, from the level below. What is missed is legal (rule S3).
absl::Status RebuildInternal(OperationContext& context, TreeContext& tree, uint8_t level,
                             RemoteAddress at, LocalBuffer image) {
  InternalNode node;
  node.header = ReadHeader(image.data, tree.layout);
  const std::string& high = node.header.high;
  Reference child = node.header.leftmost;
  for (bool leftmost = true; !child.is_null(); leftmost = false) {
    PANDO_ASSIGN_OR_RETURN(std::optional<NodeEdges> edges,
                           ReadNodeEdges(context, tree, child, static_cast<uint8_t>(level - 1)));
    if (!edges.has_value()) {
      if (leftmost) return Damaged(at, "its leftmost child is gone");
      break;
    }
    if (!leftmost) {
      const std::string_view last =
          node.entries.empty() ? node.header.low : node.entries.back().key;
      if (edges->low <= last) return Damaged(at, "its children are out of order");
      if (!high.empty() && edges->low >= high) break;
      if (edges->state == NodeState::kLive) {
        if (node.StreamBytes() + InternalNode::EntryBytes(edges->low) >
            tree.layout.internal_payload_bytes()) {
          break;
        }
        node.entries.push_back({std::move(edges->low), child});
      }
    }
    child = edges->right;
  }
  EncodeInternal(node, tree.layout, image.data, tree.environment.crc, image.data);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> RepairNode(OperationContext& context, TreeContext& tree,
                                const NodeExpectation& expectation, RemoteAddress node,
                                LocalBuffer image) {
  const bool crc = tree.environment.crc;
  if (!MayRepair(image.data, expectation, crc)) return false;
  if (!LinesWhole(image.data, tree.layout, crc)) return Damaged(node, "a line is torn inside");
  PANDO_RETURN_IF_ERROR(SettleHigh(context, tree, expectation.level, node, image));
  if (!RuleHolds(Rule::kC4)) {
    // The variant believes every line.
  } else if (expectation.level == 0) {
    LeafEditor(image.data, tree.layout, crc).ClearOutOfFence();
  } else {
    PANDO_RETURN_IF_ERROR(RebuildInternal(context, tree, expectation.level, node, image));
  }
  if (expectation.level == 0 || !RuleHolds(Rule::kC4)) {
    SealNodeLevel(image.data, image.data, tree.layout, crc);
  }
  WriteBack writes(context, tree, node.server());
  PANDO_RETURN_IF_ERROR(writes.AddNodeHeaderFirst(node, image));
  PANDO_RETURN_IF_ERROR(writes.Flush());
  context.session.counters().repairs.Add();
  return true;
}

}  // namespace pando
