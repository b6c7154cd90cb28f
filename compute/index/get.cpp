#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/leaf.h"
#include "compute/index/descend.h"
#include "compute/index/leaf_batch.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"

namespace pando {

absl::Status GetKey(OperationContext& context, TreeContext& tree, std::string_view key,
                    std::string* value) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  Descent descent(context, tree, key, 0);
  while (true) {
    PANDO_RETURN_IF_ERROR(descent.Find());
    LeafMatch match;
    // A leaf's low fence is the separator that led there, and stays that in this life (rule F4).
    if (tree.narrow_reads && !descent.parent().is_null() && !descent.moved_right()) {
      PANDO_ASSIGN_OR_RETURN(const WindowVerdict window, ReadWindow(context, tree, descent.node(),
                                                                    key, image.buffer(), &match));
      if (window == WindowVerdict::kAbsent) return KeyNotFound();
      if (window == WindowVerdict::kFound) {
        ReadSlotValue(image.data(), tree.layout, static_cast<uint32_t>(match.slot), value);
        return absl::OkStatus();
      }
    }
    PANDO_ASSIGN_OR_RETURN(const NodeVerdict verdict,
                           ReadNode(context, tree, descent.node(), 0, key, image.buffer(), &match));
    if (verdict == NodeVerdict::kMovedRight && !RuleHolds(Rule::kV2)) return KeyNotFound();
    if (verdict == NodeVerdict::kAccepted) [[likely]] {
      FenceScratch scratch;
      if (descent.moved_right()) descent.Accepted(LowFence(image.data(), tree.layout, &scratch));
      if (match.slot < 0) return KeyNotFound();
      ReadSlotValue(image.data(), tree.layout, static_cast<uint32_t>(match.slot), value);
      return absl::OkStatus();
    }
    descent.Report(verdict,
                   verdict == NodeVerdict::kMovedRight ? RightOf(image.data()) : Reference{});
  }
}

}  // namespace pando
