// Rule R1: a root with one child and nothing beside it makes way for the child.
#include <optional>
#include <utility>

#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "common/wire/root_record.h"
#include "compute/index/held_root.h"
#include "compute/index/hold.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"
#include "compute/index/write_back.h"

namespace pando {
namespace {

// The only child of a held root, if it may be the root itself. Aborted: as of ReadNodeEdges().
absl::StatusOr<std::optional<Reference>> OnlyChild(OperationContext& context, TreeContext& tree,
                                                   const RootRecord& record, const std::byte* image,
                                                   Reference* unknown) {
  const NodeVerdict verdict = Classify(
      image, tree.layout, Expect(tree, record.root, record.level, ""), tree.environment.crc);
  if (verdict != NodeVerdict::kAccepted || IsMarked(image)) return std::optional<Reference>();
  InternalNode root;
  PANDO_RETURN_IF_ERROR(DecodeInternal(image, tree.layout, &root));
  if (!root.entries.empty()) return std::optional<Reference>();
  PANDO_ASSIGN_OR_RETURN(const std::optional<NodeEdges> child,
                         ReadNodeEdges(context, tree, root.header.leftmost,
                                       static_cast<uint8_t>(record.level - 1), unknown));
  const bool alone = child.has_value() && child->state == NodeState::kLive &&
                     (child->right.is_null() || !RuleHolds(Rule::kR1Sibling));
  return alone ? std::optional<Reference>(root.header.leftmost) : std::nullopt;
}

// The old root is marked while the record changes: after a death the next holder finds the mark,
// and sees from the record whether it is still the root (redo.cpp). It dies only after the record
// has named its child, so that no record ever leads to a dead root (rules R1, M7).
absl::Status WriteShrink(OperationContext& context, TreeContext& tree, const Reference& old_root,
                         LocalBuffer image, const RootRecord& shrunk, LocalBuffer line) {
  PANDO_RETURN_IF_ERROR(
      WriteMarker(context, tree, old_root.address, image, NodeState::kMerging, shrunk.root));
  EncodeRootRecord(shrunk, line.data, tree.environment.crc, line.data);
  WriteBack record(context, tree, tree.entry.root_record.server());
  PANDO_RETURN_IF_ERROR(record.AddRaw(tree.entry.root_record, line));
  PANDO_RETURN_IF_ERROR(record.Flush());
  return WriteMarker(context, tree, old_root.address, image, NodeState::kDead, Reference{});
}

// Holds the record and the root at that level, and says which child of it may be the root itself.
// Empty, or an error: nothing is held.
absl::StatusOr<std::optional<Reference>> HoldOverOnlyChild(OperationContext& context,
                                                           TreeContext& tree, uint8_t level,
                                                           HeldRoot& root) {
  const RootRecord& record = root.record();
  while (true) {
    PANDO_RETURN_IF_ERROR(root.Hold());
    absl::StatusOr<bool> held = false;
    absl::StatusOr<std::optional<Reference>> child = std::optional<Reference>();
    Reference unknown;
    if (root.accepted() && record.level == level) {
      if (root.locks().Knows(record.root)) {
        held = root.TryNode(record.root);
      } else {
        unknown = record.root;
      }
    }
    if (held.ok() && *held) {
      child = OnlyChild(context, tree, record, root.image().data, &unknown);
      if (child.ok() && child->has_value()) return child;
    }
    const absl::Status released = root.locks().ReleaseAll();
    PANDO_RETURN_IF_ERROR(held.status());
    if (unknown.is_null()) PANDO_RETURN_IF_ERROR(child.status());
    PANDO_RETURN_IF_ERROR(released);
    if (unknown.is_null()) return child;
    PANDO_RETURN_IF_ERROR(tree.NodeLock(context, unknown).status());
  }
}

}  // namespace

absl::Status ShrinkRoot(OperationContext& context, TreeContext& tree, uint8_t level) {
  if (level == 0) return absl::OkStatus();
  HeldRoot root(context, tree);
  PANDO_ASSIGN_OR_RETURN(const std::optional<Reference> child,
                         HoldOverOnlyChild(context, tree, level, root));
  if (!child.has_value()) return absl::OkStatus();
  LockSet& locks = root.locks();
  const RootRecord& record = root.record();
  RootRecord shrunk = record;
  shrunk.root = *child;
  shrunk.level = static_cast<uint8_t>(record.level - 1);
  const absl::Status written =
      WriteShrink(context, tree, record.root, root.image(), shrunk, root.line());
  if (!written.ok()) {
    tree.environment.allocator.NoteUncertain(tree.id());
    (void)locks.ReleaseAll();
    return written;
  }
  const absl::Status released = locks.ReleaseAll();
  tree.environment.allocator.Free(tree.id(), record.root);
  PANDO_RETURN_IF_ERROR(released);
  tree.root.Store(shrunk);
  tree.environment.cache.Invalidate(record.root);
  context.session.counters().root_shrinks.Add();
  // A tree that has become small may see no more merges.
  tree.environment.allocator.FlushIfMany(context, tree.id());
  return ShrinkRoot(context, tree, shrunk.level);
}

}  // namespace pando
