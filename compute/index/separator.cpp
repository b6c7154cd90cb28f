#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

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

// Separators of one level, ascending: those from `next` on are still to be looked at.
struct Work {
  std::vector<MissingSeparator>& missing;
  size_t next = 0;
  std::vector<MissingSeparator> above;  // parents were split: their own separators

  bool done() const { return next == missing.size(); }
};

// What an attempt at one parent left open.
struct Attempt {
  bool needs_node = false;
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
                         Work* work, Attempt* attempt) {
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
  const Reference right_reference = spare->reference();
  std::vector<NewNode> sibling;
  sibling.push_back({*std::move(spare), *std::move(lease)});
  PANDO_RETURN_IF_ERROR(WriteSplit(context, tree, std::move(lock), std::move(sibling), image));
  tree.environment.cache.Insert(tree.id(), self, node);
  tree.environment.cache.Insert(tree.id(), node.header.right, right);
  work->above.push_back(
      {static_cast<uint8_t>(node.header.level + 1), right.header.low, right_reference});
  return absl::OkStatus();
}

bool Wants(const TreeContext& tree, const MissingSeparator& missing, NodeVerdict verdict,
           const std::byte* child) {
  FenceScratch scratch;
  const bool live = verdict == NodeVerdict::kAccepted &&
                    (StateOf(child) == NodeState::kLive || !RuleHolds(Rule::kM2));
  return live && LowFence(child, tree.layout, &scratch) == missing.separator;
}

// ChildWantsSeparator() of several, READ together.
absl::Status AskChildren(OperationContext& context, const TreeContext& tree,
                         const std::vector<MissingSeparator>& missing, std::vector<bool>* wanted,
                         Reference* not_known) {
  std::vector<NodeRead> reads;
  for (size_t i = 0; i < missing.size() && missing.size() > 1; ++i) {
    PANDO_ASSIGN_OR_RETURN(BufferLease image,
                           context.session.buffers().Lease(tree.layout.node_bytes()));
    reads.push_back({missing[i].child, std::move(image)});
  }
  ReadTogether(context, tree, absl::MakeSpan(reads));
  for (size_t i = 0; i < missing.size(); ++i) {
    if (i < reads.size() && reads[i].timely) {
      const auto level = static_cast<uint8_t>(missing[i].parent_level - 1);
      const NodeVerdict verdict = Classify(
          reads[i].image.data(), tree.layout,
          Expect(tree, missing[i].child, level, missing[i].separator), tree.environment.crc);
      if (verdict != NodeVerdict::kTorn) {
        wanted->push_back(Wants(tree, missing[i], verdict, reads[i].image.data()));
        continue;
      }
    }
    PANDO_ASSIGN_OR_RETURN(const bool wants,
                           ChildWantsSeparator(context, tree, missing[i], not_known));
    wanted->push_back(wants);
  }
  return absl::OkStatus();
}

absl::Status InsertIntoParent(OperationContext& context, TreeContext& tree, HeldNode& parent,
                              Work* work, Attempt* attempt) {
  const LocalBuffer image = parent.image();
  InternalNode node;
  const absl::Status decoded = DecodeInternal(image.data, tree.layout, &node);
  if (!decoded.ok()) {
    (void)parent.ReleaseUnchanged();
    return decoded;
  }
  const Reference self = parent.node();
  // Those that this parent covers and does not know.
  std::vector<MissingSeparator> unknown;
  size_t end = work->next;
  for (; end < work->missing.size(); ++end) {
    const MissingSeparator& missing = work->missing[end];
    const bool covered = node.header.high.empty() || missing.separator < node.header.high;
    if (!covered && end > work->next) break;
    // Known already: as an entry, or as the leftmost child of a parent that was split just there.
    if (node.header.low == missing.separator || node.FindSeparator(missing.separator) >= 0) {
      context.session.counters().lost_races.Add();
    } else {
      unknown.push_back(missing);
    }
  }
  std::vector<bool> wanted;
  // Under the parent's lock: a merger of the child needs the same lock (rules S3, M1), so the
  // answer holds until the write below.
  Reference not_known;
  const absl::Status asked = AskChildren(context, tree, unknown, &wanted, &not_known);
  if (!asked.ok()) {
    const absl::Status released = parent.ReleaseUnchanged();
    if (not_known.is_null()) return asked;
    PANDO_RETURN_IF_ERROR(released);
    return tree.NodeLock(context, not_known).status();  // then again, from the way down on
  }
  bool changed = false;
  for (size_t i = 0; i < unknown.size(); ++i) {
    if (!wanted[i]) continue;
    node.Insert(unknown[i].separator, unknown[i].child);
    changed = true;
    if (node.Fits(tree.layout)) continue;
    // The others go to the halves.
    const std::string& inserted = unknown[i].separator;
    PANDO_RETURN_IF_ERROR(SplitParent(context, tree, parent.TakeLock(), std::move(node), inserted,
                                      image, work, attempt));
    if (attempt->needs_node) return absl::OkStatus();
    while (!work->done() && work->missing[work->next].separator <= inserted) ++work->next;
    return absl::OkStatus();
  }
  if (!changed) {
    work->next = end;
    tree.environment.cache.Insert(tree.id(), self, node);
    return parent.ReleaseUnchanged();
  }
  EncodeInternal(node, tree.layout, image.data, tree.environment.crc, image.data);
  WriteBack writes(context, tree, self.address.server());
  // Line 0 first: after a death between two packets repair trusts it, and rebuilds the entries from
  // the child level (rule C4). The lock goes in the same chain, after the WRITEs (rule L4).
  const absl::Status added = writes.AddNodeHeaderFirst(self.address, image);
  if (!added.ok()) {
    tree.environment.hocl.LeaveToFencing(context, parent.TakeLock(), added);
    return added;
  }
  PANDO_RETURN_IF_ERROR(writes.Release(parent.TakeLock(), image.data));
  work->next = end;
  tree.environment.cache.Insert(tree.id(), self, node);
  return absl::OkStatus();
}

// One way down to the parent that covers the next separator, and the insertion there.
absl::Status TryInsert(OperationContext& context, TreeContext& tree, Descent& descent, Work* work,
                       Attempt* attempt) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  HeldNode parent(context, tree, image.buffer(), Rule::kS3);
  PANDO_ASSIGN_OR_RETURN(const HeldNode::Attempt held, parent.Hold(descent));
  if (held != HeldNode::Attempt::kHeld) return absl::OkStatus();
  return InsertIntoParent(context, tree, parent, work, attempt);
}

// The next one, and those behind it that its parent covers.
absl::Status InsertNext(OperationContext& context, TreeContext& tree, Work* work) {
  const MissingSeparator& missing = work->missing[work->next];
  const size_t before = work->next;
  Descent descent(context, tree, missing.separator, missing.parent_level);
  while (work->next == before) {
    Attempt attempt;
    const absl::Status status = TryInsert(context, tree, descent, work, &attempt);
    if (!status.ok() && descent.above_root()) {
      if (context.expired()) return context.DeadlineError("growing the root");
      bool over = false;
      PANDO_RETURN_IF_ERROR(GrowRoot(context, tree, missing, &over));
      if (over) ++work->next;  // the next session that misses it asks again
      continue;  // finds the separator in the root that was just made, or inserts it there
    }
    PANDO_RETURN_IF_ERROR(status);
    if (attempt.needs_node) {
      PANDO_RETURN_IF_ERROR(tree.Refill(context, descent.node().address.server()));
    }
  }
  return absl::OkStatus();
}

// Those of one level. What their parents' splits make is left in `above`: in any order, as the left
// half of a parent may be split after the right one was made.
absl::Status InsertLevel(OperationContext& context, TreeContext& tree,
                         std::vector<MissingSeparator>* missing,
                         std::vector<MissingSeparator>* above) {
  // Somebody else is at it where one has been begun.
  std::erase_if(*missing, [&tree](const auto& one) { return !tree.BeginSeparator(one); });
  std::sort(missing->begin(), missing->end(),
            [](const auto& a, const auto& b) { return a.separator < b.separator; });
  const absl::Cleanup done = [&tree, begun = *missing] {
    for (const MissingSeparator& one : begun) tree.EndSeparator(one);
  };
  Work work{*missing};
  absl::Status status;
  while (status.ok() && !work.done()) status = InsertNext(context, tree, &work);
  missing->erase(missing->begin(), missing->begin() + static_cast<ptrdiff_t>(work.next));
  *above = std::move(work.above);
  return status;
}

}  // namespace

absl::StatusOr<bool> ChildWantsSeparator(OperationContext& context, const TreeContext& tree,
                                         const MissingSeparator& missing, Reference* unknown) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  const auto level = static_cast<uint8_t>(missing.parent_level - 1);
  PANDO_ASSIGN_OR_RETURN(
      const NodeVerdict verdict,
      TryReadNode(context, tree, missing.child, level, missing.separator, image.buffer(), unknown));
  return Wants(tree, missing, verdict, image.data());
}

absl::Status InsertSeparators(OperationContext& context, TreeContext& tree,
                              std::vector<MissingSeparator>* missing) {
  while (!missing->empty()) {
    std::vector<MissingSeparator> above;
    PANDO_RETURN_IF_ERROR(InsertLevel(context, tree, missing, &above));
    *missing = std::move(above);
  }
  return absl::OkStatus();
}

}  // namespace pando
