#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/leaf.h"
#include "compute/index/descend.h"
#include "compute/index/leaf_batch.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"

namespace pando {
namespace {

// `read_window` and `read_leaf` are the two ways to READ (a part of) a leaf. Inlined into both of
// its callers, so that one without a second chain knows nothing of it.
template <typename ReadWindowFn, typename ReadLeafFn>
[[gnu::always_inline]] inline absl::Status Get(OperationContext& context, TreeContext& tree,
                                               std::string_view key, std::string* value,
                                               ReadWindowFn read_window, ReadLeafFn read_leaf) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  Descent descent(context, tree, key, 0);
  while (true) {
    PANDO_RETURN_IF_ERROR(descent.Find());
    LeafMatch match;
    // A leaf's low fence is the separator that led there, and stays that in this life (rule F4).
    if (tree.narrow_reads && !descent.parent().is_null() && !descent.moved_right()) {
      PANDO_ASSIGN_OR_RETURN(const WindowVerdict window,
                             read_window(descent.node(), image.buffer(), &match));
      if (window == WindowVerdict::kAbsent) return KeyNotFound();
      if (window == WindowVerdict::kFound) {
        ReadSlotValue(image.data(), tree.layout, static_cast<uint32_t>(match.slot), value);
        return absl::OkStatus();
      }
    }
    PANDO_ASSIGN_OR_RETURN(const NodeVerdict verdict,
                           read_leaf(descent.node(), image.buffer(), &match));
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

}  // namespace

absl::Status GetKey(OperationContext& context, TreeContext& tree, std::string_view key,
                    std::string* value) {
  return Get(
      context, tree, key, value,
      [&](const Reference& leaf, LocalBuffer image, LeafMatch* match) {
        return ReadWindow(context, tree, leaf, key, image, match);
      },
      [&](const Reference& leaf, LocalBuffer image, LeafMatch* match) {
        return ReadNode(context, tree, leaf, 0, key, image, match);
      });
}

absl::Status GetKeyWith(OperationContext& context, TreeContext& tree, std::string_view key,
                        std::string* value, Chain* along) {
  return Get(
      context, tree, key, value,
      [&](const Reference& leaf, LocalBuffer image, LeafMatch* match) {
        return ReadWindowWith(context, tree, leaf, key, image, match, along);
      },
      [&](const Reference& leaf, LocalBuffer image, LeafMatch* match) {
        return ReadLeafWith(context, tree, leaf, key, image, match, along);
      });
}

}  // namespace pando
