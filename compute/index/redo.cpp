// What the holder of a lock does about nodes that a dead client left torn or half-merged (rules V4,
// C4, M7, R1). Everything here is idempotent: it is a function of the states found, and may die
// itself between any two packets.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/index/descend.h"
#include "compute/index/held_node.h"
#include "compute/index/held_root.h"
#include "compute/index/hold.h"
#include "compute/index/key_range.h"
#include "compute/index/lock_set.h"
#include "compute/index/read_node.h"
#include "compute/index/write_back.h"

namespace pando {
namespace {

constexpr int64_t kRedoAgainChains = 4;

// The node, as read under its lock: merging still, in the life meant.
bool IsStillMerging(const TreeContext& tree, const std::byte* image, const Reference& node,
                    uint8_t level) {
  NodeEdges edges;
  return ReadEdges(image, tree.layout, Expect(tree, node, level, ""), tree.environment.crc,
                   &edges) &&
         edges.state == NodeState::kMerging;
}

// With the locks held: how a merge ends for its right node.
absl::Status EndMerging(OperationContext& context, TreeContext& tree, LockSet* locks,
                        const Reference& node, LocalBuffer image, bool absorbed) {
  const absl::Status written =
      WriteMarker(context, tree, node.address, image,
                  absorbed ? NodeState::kDead : NodeState::kLive, Reference{});
  if (!written.ok()) {
    tree.environment.allocator.NoteUncertain(tree.id());
    (void)locks->ReleaseAll();
    return written;
  }
  context.session.counters().redone.Add();
  const absl::Status released = locks->ReleaseAll();
  if (absorbed) tree.environment.allocator.Free(tree.id(), node);
  return released;
}

// A root that was being shrunk away: it is the root still, or the record names its child.
absl::Status ResolveOldRoot(OperationContext& context, TreeContext& tree, const Reference& node,
                            uint8_t level) {
  HeldRoot root(context, tree);
  while (true) {
    PANDO_RETURN_IF_ERROR(root.Hold());
    if (!root.accepted()) {
      (void)root.locks().ReleaseAll();
      return RecordDamaged();
    }
    const absl::StatusOr<bool> held = root.TryNode(node);
    if (held.ok() && *held && IsStillMerging(tree, root.image().data, node, level)) {
      return EndMerging(context, tree, &root.locks(), node, root.image(),
                        root.record().root != node);
    }
    PANDO_RETURN_IF_ERROR(root.locks().ReleaseAll());
    if (!held.ok() || *held) return held.status();
    if (context.expired()) return context.DeadlineError("waiting for the lock of an old root");
    context.BackOff(kRedoAgainChains);
  }
}

}  // namespace

absl::Status WriteMarker(OperationContext& context, TreeContext& tree, RemoteAddress node,
                         LocalBuffer image, NodeState state, const Reference& peer) {
  SetMarker(image.data, state, peer);
  SealEntryLevel(image.data, 0, 1, tree.environment.crc);
  WriteBack writes(context, tree, node.server());
  PANDO_RETURN_IF_ERROR(writes.AddRaw(node, image.Slice(0, kLineBytes)));
  return writes.Flush();
}

absl::StatusOr<bool> FinishAbsorbing(OperationContext& context, TreeContext& tree,
                                     const HeldLock& lock, uint8_t level, LocalBuffer image,
                                     Reference* unknown) {
  struct Right {
    Reference node;
    BufferLease image;
  };
  *unknown = {};
  const Reference end = RightOf(image.data);
  Reference next = PeerOf(image.data);
  const Reference first = next;
  std::vector<Right> merging;
  LockSet locks(context, tree);
  locks.Borrow(lock);
  absl::Status status;
  // From the first to the last: where one is dead, all behind it are (rule M8).
  while (merging.size() < kAbsorbedMax && !next.is_null() && next != end) {
    absl::StatusOr<BufferLease> right = context.session.buffers().Lease(tree.layout.node_bytes());
    absl::StatusOr<bool> held = false;
    if (!right.ok()) {
      held = right.status();
    } else if (locks.Knows(next)) {
      held = locks.TryAdd(next, right->buffer());
    } else {
      *unknown = next;
    }
    if (!held.ok() || !*held) {
      const absl::Status released = locks.ReleaseAll();
      PANDO_RETURN_IF_ERROR(held.status());
      PANDO_RETURN_IF_ERROR(released);
      return false;
    }
    if (!IsStillMerging(tree, right->data(), next, level)) break;
    merging.push_back({next, *std::move(right)});
    next = RightOf(merging.back().image.data());
    if (!RuleHolds(Rule::kM8)) break;
  }
  // The last one first, as the merger does: a redo that dies here leaves the first one merging,
  // from which the next redo finds the others (rule M8).
  for (size_t i = merging.size(); i-- > 0 && status.ok() && RuleHolds(Rule::kM7Dead);) {
    status = WriteMarker(context, tree, merging[i].node.address, merging[i].image.buffer(),
                         NodeState::kDead, Reference{});
  }
  if (status.ok()) {
    // The survivor's marker goes last: as long as it stands, each holder redoes this (rule M7).
    status = WriteMarker(context, tree, lock.target().node.address, image, NodeState::kLive,
                         Reference{});
  }
  if (!status.ok()) {
    tree.environment.allocator.NoteUncertain(tree.id());
    (void)locks.ReleaseAll();
    return status;
  }
  context.session.counters().redone.Add();
  const absl::Status released = locks.ReleaseAll();
  // Also if its merger marked it dead: a second free of the same life does nothing (rule R4).
  tree.environment.allocator.Free(tree.id(), first);
  for (size_t i = 1; i < merging.size(); ++i) {
    tree.environment.allocator.Free(tree.id(), merging[i].node);
  }
  PANDO_RETURN_IF_ERROR(released);
  return true;
}

absl::Status ResolveMerging(OperationContext& context, TreeContext& tree, const Reference& node,
                            uint8_t level, std::string_view low) {
  if (low.empty()) return ResolveOldRoot(context, tree, node, level);
  const std::string low_fence(low);
  const std::string before = KeyBefore(low_fence, tree.layout.key_bytes_max());
  PANDO_ASSIGN_OR_RETURN(const BufferLease left_image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  Descent descent(context, tree, before, level);
  HeldNode left(context, tree, left_image.buffer());
  while (true) {
    if (context.expired()) return context.DeadlineError("finishing a merge");
    PANDO_ASSIGN_OR_RETURN(const HeldNode::Attempt attempt, left.Hold(descent));
    if (attempt != HeldNode::Attempt::kHeld) {
      if (attempt == HeldNode::Attempt::kRepaired) context.BackOff(kRedoAgainChains);
      continue;
    }
    LockSet locks(context, tree);
    locks.Adopt(left.TakeLock());
    const absl::StatusOr<bool> held = locks.TryAdd(node, image.buffer());
    if (held.ok() && *held && IsStillMerging(tree, image.data(), node, level)) {
      // The left neighbour still leads to the node: M4 has not happened, and the merge is undone.
      // Else the survivor has its keys.
      const bool absorbed = RightOf(left_image.data()) != node;
      return EndMerging(context, tree, &locks, node, image.buffer(), absorbed);
    }
    PANDO_RETURN_IF_ERROR(locks.ReleaseAll());
    if (!held.ok() || *held) return held.status();
    context.BackOff(kRedoAgainChains);
  }
}

absl::StatusOr<HeldVerdict> InspectUnderLock(OperationContext& context, TreeContext& tree,
                                             HeldLock* lock, const NodeExpectation& expectation,
                                             LocalBuffer image) {
  const bool crc = tree.environment.crc;
  Hocl& hocl = tree.environment.hocl;
  const Reference node = lock->target().node;
  HeldVerdict result;
  Reference unknown;
  result.verdict = Classify(image.data, tree.layout, expectation, crc, &result.match);
  if (result.verdict == NodeVerdict::kTorn) {
    const absl::StatusOr<bool> repaired =
        RepairNode(context, tree, expectation, *lock, image, &unknown);
    if (absl::IsAborted(repaired.status())) {
      PANDO_RETURN_IF_ERROR(hocl.ReleaseUnchanged(context, std::move(*lock), nullptr));
      result.released = true;
      if (!unknown.is_null()) {
        PANDO_RETURN_IF_ERROR(tree.NodeLock(context, unknown).status());
        return result;
      }
      if (context.expired()) {
        return context.DeadlineError(
            "repairing a node that needs another one, which is being written");
      }
      context.BackOff(kRedoAgainChains);
      return result;
    }
    if (!repaired.ok()) {
      // Where the chain of a failed repair may still be in flight, the release fails, too (rule
      // L5); a handover would post nothing that can fail.
      lock->ForbidHandover();
      (void)hocl.ReleaseUnchanged(context, std::move(*lock), nullptr);
      return repaired.status();
    }
    // What is not ours to repair is not the node meant (rule V4).
    result.verdict = *repaired ? Classify(image.data, tree.layout, expectation, crc, &result.match)
                               : NodeVerdict::kStale;
  }
  // A node that does not cover the key is left to operations on its own keys.
  if (result.verdict != NodeVerdict::kAccepted || !IsMarked(image.data)) [[likely]]
    return result;
  if (!RuleHolds(Rule::kM7)) return result;  // the variant takes no notice of markers
  if (StateOf(image.data) == NodeState::kMerging) {
    FenceScratch scratch;
    const std::string low(LowFence(image.data, tree.layout, &scratch));
    PANDO_RETURN_IF_ERROR(hocl.ReleaseUnchanged(context, std::move(*lock), image.data));
    result.released = true;
    PANDO_RETURN_IF_ERROR(ResolveMerging(context, tree, node, expectation.level, low));
    return result;
  }
  const absl::StatusOr<bool> finished =
      FinishAbsorbing(context, tree, *lock, expectation.level, image, &unknown);
  if (!finished.ok()) {
    lock->ForbidHandover();
    (void)hocl.ReleaseUnchanged(context, std::move(*lock), nullptr);
    return finished.status();
  }
  if (!*finished) {
    PANDO_RETURN_IF_ERROR(hocl.ReleaseUnchanged(context, std::move(*lock), image.data));
    result.released = true;
    if (context.expired()) return context.DeadlineError("finishing a merge");
    if (!unknown.is_null()) PANDO_RETURN_IF_ERROR(tree.NodeLock(context, unknown).status());
    context.BackOff(kRedoAgainChains);
  }
  return result;
}

namespace {

// False: it is not the node meant.
absl::StatusOr<bool> InspectNode(OperationContext& context, TreeContext& tree,
                                 const LockTarget& target, const NodeExpectation& expectation,
                                 LocalBuffer image) {
  Hocl& hocl = tree.environment.hocl;
  PANDO_ASSIGN_OR_RETURN(HeldLock lock, hocl.Acquire(context, target, image));
  PANDO_ASSIGN_OR_RETURN(const HeldVerdict inspected,
                         InspectUnderLock(context, tree, &lock, expectation, image));
  if (inspected.released) return true;
  const absl::Status released = hocl.ReleaseUnchanged(context, std::move(lock), image.data);
  if (inspected.verdict == NodeVerdict::kTorn) return StaysTorn(target.node);
  PANDO_RETURN_IF_ERROR(released);
  return inspected.verdict != NodeVerdict::kStale;
}

}  // namespace

absl::Status StaysTorn(const Reference& node) {
  return absl::DataLossError(absl::StrCat("node ", node.address.offset(), " of server ",
                                          node.address.server(),
                                          " is inconsistent under its lock"));
}

absl::Status LockAndRepair(OperationContext& context, TreeContext& tree, const Reference& node,
                           uint8_t level, std::string_view key) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  PANDO_ASSIGN_OR_RETURN(const LockTarget target, tree.NodeLock(context, node));
  return InspectNode(context, tree, target, Expect(tree, node, level, key), image.buffer())
      .status();
}

absl::StatusOr<bool> RepairIfAbandoned(OperationContext& context, TreeContext& tree,
                                       const Reference& node, uint8_t level, std::string_view key,
                                       LocalBuffer image) {
  PANDO_ASSIGN_OR_RETURN(const LockTarget target, tree.NodeLock(context, node));
  PANDO_ASSIGN_OR_RETURN(const bool abandoned,
                         tree.environment.hocl.IsAbandoned(context, target, image));
  const NodeExpectation expectation = Expect(tree, node, level, key);
  if (!abandoned ||
      Classify(image.data, tree.layout, expectation, tree.environment.crc) != NodeVerdict::kTorn) {
    return true;
  }
  return InspectNode(context, tree, target, expectation, image);
}

absl::StatusOr<NodeVerdict> ReadUnderLock(OperationContext& context, TreeContext& tree,
                                          const Reference& node, const NodeExpectation& expectation,
                                          LocalBuffer image, LeafMatch* match) {
  PANDO_ASSIGN_OR_RETURN(const LockTarget target, tree.NodeLock(context, node));
  Hocl& hocl = tree.environment.hocl;
  PANDO_ASSIGN_OR_RETURN(HeldLock lock, hocl.Acquire(context, target, image));
  const NodeVerdict verdict =
      Classify(image.data, tree.layout, expectation, tree.environment.crc, match);
  lock.AnswerFromImage();
  PANDO_RETURN_IF_ERROR(hocl.ReleaseUnchanged(context, std::move(lock), image.data));
  return verdict;
}

absl::Status ReviveRoot(OperationContext& context, TreeContext& tree) {
  HeldRoot root(context, tree);
  PANDO_RETURN_IF_ERROR(root.Hold());
  const Reference& leaf = root.record().root;
  absl::StatusOr<bool> held = false;
  if (root.accepted() && root.record().level == 0) held = root.TryNode(leaf);
  NodeEdges edges;
  const bool dead = held.ok() && *held &&
                    ReadEdges(root.image().data, tree.layout, Expect(tree, leaf, 0, ""),
                              tree.environment.crc, &edges) &&
                    edges.state == NodeState::kDead;
  if (!dead) {
    PANDO_RETURN_IF_ERROR(root.locks().ReleaseAll());
    return held.status();
  }
  return EndMerging(context, tree, &root.locks(), leaf, root.image(), /*absorbed=*/false);
}

}  // namespace pando
