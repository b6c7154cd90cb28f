#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "compute/index/child_check.h"
#include "compute/index/descend.h"
#include "compute/index/held_node.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"
#include "compute/index/write_back.h"

namespace pando {
namespace {

// What became of an attempt to insert a separator into one parent.
struct Attempt {
  bool retry = false;
  bool needs_node = false;
  std::optional<MissingSeparator> next;  // the parent was split: its own separator
};

// Where an internal node with one entry too many is cut; the entry there moves up.
size_t SplitPosition(const InternalNode& node, std::string_view inserted) {
  const size_t count = node.entries.size();
  // Ascending inserts leave the left node nearly full.
  if (node.entries.back().key == inserted && node.header.high.empty()) return count - 2;
  size_t bytes = 0;
  size_t position = 0;
  while (position + 2 < count && bytes < node.StreamBytes() / 2) {
    bytes += InternalNode::EntryBytes(node.entries[position].key);
    ++position;
  }
  return position;
}

absl::Status SplitParent(OperationContext& context, TreeContext& tree, HeldLock lock,
                         InternalNode node, std::string_view inserted, LocalBuffer image,
                         Attempt* attempt) {
  Hocl& hocl = tree.environment.hocl;
  std::optional<SpareNode> spare =
      tree.environment.allocator.TryTake(tree.id(), lock.target().server);
  if (!spare.has_value()) {
    attempt->needs_node = true;
    return hocl.ReleaseUnchanged(context, std::move(lock), image.data);
  }
  absl::StatusOr<BufferLease> lease = context.session.buffers().Lease(tree.layout.node_bytes());
  if (!lease.ok()) {
    tree.environment.allocator.PutBack(tree.id(), *std::move(spare));
    (void)hocl.ReleaseUnchanged(context, std::move(lock), image.data);
    return lease.status();
  }
  const Reference self = lock.target().node;
  const size_t position = SplitPosition(node, inserted);
  std::memset(lease->data(), 0, tree.layout.node_bytes());
  InternalNode right;
  right.header = node.header;
  right.header.life = spare->life;
  right.header.low = node.entries[position].key;
  right.header.leftmost = node.entries[position].child;
  right.entries.assign(std::make_move_iterator(node.entries.begin() + position + 1),
                       std::make_move_iterator(node.entries.end()));
  node.entries.resize(position);
  node.header.high = right.header.low;
  node.header.right = spare->reference();

  EncodeInternal(right, tree.layout, spare->OldImage(lease->data()), tree.environment.crc,
                 lease->data());
  EncodeInternal(node, tree.layout, image.data, tree.environment.crc, image.data);
  context.session.counters().splits.Add();
  PANDO_RETURN_IF_ERROR(
      WriteSplit(context, tree, std::move(lock), spare->address, lease->buffer(), image));
  tree.environment.cache.Insert(tree.id(), self, node);
  tree.environment.cache.Insert(tree.id(), node.header.right, right);
  attempt->next = {static_cast<uint8_t>(node.header.level + 1), right.header.low,
                   node.header.right};
  return absl::OkStatus();
}

absl::Status InsertIntoParent(OperationContext& context, TreeContext& tree, HeldNode& parent,
                              const MissingSeparator& missing, Attempt* attempt) {
  const LocalBuffer image = parent.image();
  InternalNode node;
  const absl::Status decoded = DecodeInternal(image.data, tree.layout, &node);
  if (!decoded.ok()) {
    (void)parent.ReleaseUnchanged();
    return decoded;
  }
  const Reference self = parent.node();
  // Known already: as an entry, or as the leftmost child of a parent that was split just there.
  if (node.header.low == missing.separator || node.FindSeparator(missing.separator) >= 0) {
    context.session.counters().lost_races.Add();
    tree.environment.cache.Insert(tree.id(), self, node);
    return parent.ReleaseUnchanged();
  }
  const absl::StatusOr<bool> wanted = ChildWantsSeparator(context, tree, missing);
  if (!wanted.ok() || !*wanted) {
    (void)parent.ReleaseUnchanged();
    return wanted.status();
  }
  node.Insert(missing.separator, missing.child);
  if (!node.Fits(tree.layout)) {
    return SplitParent(context, tree, parent.TakeLock(), std::move(node), missing.separator, image,
                       attempt);
  }
  EncodeInternal(node, tree.layout, image.data, tree.environment.crc, image.data);
  WriteBack writes(context, tree, self.address.server());
  const absl::Status added = writes.AddNodeHeaderFirst(self.address, image);
  if (!added.ok()) {
    tree.environment.hocl.LeaveToFencing(context, parent.TakeLock(), added);
    return added;
  }
  PANDO_RETURN_IF_ERROR(writes.Release(parent.TakeLock(), image.data));
  tree.environment.cache.Insert(tree.id(), self, node);
  return absl::OkStatus();
}

// One way down to the parent that covers the separator, and the insertion there.
absl::Status TryInsert(OperationContext& context, TreeContext& tree,
                       const MissingSeparator& missing, Descent& descent, Attempt* attempt) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  HeldNode parent(context, tree, image.buffer(), Rule::kS3);
  PANDO_ASSIGN_OR_RETURN(const HeldNode::Attempt held, parent.Hold(descent));
  if (held == HeldNode::Attempt::kHeld) {
    return InsertIntoParent(context, tree, parent, missing, attempt);
  }
  attempt->retry = true;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> ChildWantsSeparator(OperationContext& context, const TreeContext& tree,
                                         const MissingSeparator& missing) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  const auto level = static_cast<uint8_t>(missing.parent_level - 1);
  PANDO_ASSIGN_OR_RETURN(const NodeVerdict verdict, TryReadNode(context, tree, missing.child, level,
                                                                missing.separator, image.buffer()));
  FenceScratch scratch;
  const bool live = verdict == NodeVerdict::kAccepted &&
                    (StateOf(image.data()) == NodeState::kLive || !RuleHolds(Rule::kM2));
  return live && LowFence(image.data(), tree.layout, &scratch) == missing.separator;
}

absl::Status InsertSeparator(OperationContext& context, TreeContext& tree,
                             MissingSeparator missing) {
  while (true) {
    if (!tree.BeginSeparator(missing)) return absl::OkStatus();
    const absl::Cleanup done = [&tree, begun = missing] { tree.EndSeparator(begun); };
    Descent descent(context, tree, missing.separator, missing.parent_level);
    Attempt attempt;
    do {
      attempt = {};
      const absl::Status status = TryInsert(context, tree, missing, descent, &attempt);
      if (!status.ok() && descent.above_root()) {
        if (context.expired()) return context.DeadlineError("growing the root");
        bool over = false;
        PANDO_RETURN_IF_ERROR(GrowRoot(context, tree, missing, &over));
        if (over) return absl::OkStatus();  // whoever misses it still asks again
        attempt.retry =
            true;  // finds the separator in the root that was just made, or inserts it there
        continue;
      }
      PANDO_RETURN_IF_ERROR(status);
      if (attempt.needs_node) {
        PANDO_RETURN_IF_ERROR(tree.Refill(context, descent.node().address.server()));
        attempt.retry = true;
      }
    } while (attempt.retry);
    if (!attempt.next.has_value()) return absl::OkStatus();
    missing = *std::move(attempt.next);
  }
}

}  // namespace pando
