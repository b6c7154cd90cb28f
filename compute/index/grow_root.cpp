#include <cstring>
#include <utility>

#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "compute/index/child_check.h"
#include "compute/index/held_root.h"
#include "compute/index/hold.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"
#include "compute/index/write_back.h"

namespace pando {
namespace {

// The new root over `record`, written but not yet referred to. An error: a WRITE may have been
// made.
absl::Status WriteNewRoot(OperationContext& context, TreeContext& tree, const RootRecord& record,
                          const MissingSeparator& missing, const SpareNode& spare,
                          LocalBuffer image, RootRecord* grown) {
  std::memset(image.data, 0, tree.layout.node_bytes());
  InternalNode root;
  root.header.tree_id = tree.id();
  root.header.level = missing.parent_level;
  root.header.state = NodeState::kLive;
  root.header.life = spare.life;
  root.header.leftmost = record.root;
  root.header.reserve.assign(NodeHeader::kReserveBytes, '\0');
  root.Insert(missing.separator, missing.child);
  EncodeInternal(root, tree.layout, spare.OldImage(image.data), tree.environment.crc, image.data);
  WriteBack writes(context, tree, spare.address.server());
  PANDO_RETURN_IF_ERROR(writes.AddNode(spare.address, image));
  PANDO_RETURN_IF_ERROR(writes.Flush());
  grown->tree_id = tree.id();
  grown->root = spare.reference();
  grown->level = missing.parent_level;
  tree.environment.cache.Insert(tree.id(), grown->root, root);
  return absl::OkStatus();
}

// Under the record's lock: true if the root has to grow for `missing` (rule R1: rereads and
// revalidates as S3). `torn`: the root has to be looked after first. `over`: the root has shrunk
// since, or the child is none any more. Aborted: as of TryReadNode().
absl::StatusOr<bool> MustGrow(OperationContext& context, TreeContext& tree,
                              const RootRecord& record, const MissingSeparator& missing, bool* torn,
                              bool* over, Reference* unknown) {
  *over = record.level + 1 < missing.parent_level;
  if (record.level + 1 != missing.parent_level) return false;
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  PANDO_ASSIGN_OR_RETURN(
      const NodeVerdict verdict,
      TryReadNode(context, tree, record.root, record.level, "", image.buffer(), unknown));
  *torn = verdict == NodeVerdict::kTorn;
  if (verdict != NodeVerdict::kAccepted) return false;
  if (!RuleHolds(Rule::kR1)) return true;
  PANDO_ASSIGN_OR_RETURN(const bool wanted, ChildWantsSeparator(context, tree, missing, unknown));
  *over = !wanted;
  return wanted;
}

}  // namespace

absl::Status GrowRoot(OperationContext& context, TreeContext& tree, const MissingSeparator& missing,
                      bool* over) {
  *over = false;
  NodeAllocator& allocator = tree.environment.allocator;
  // Everything is reserved before the lock is taken (rule L2), the node last: what fails then gives
  // it back.
  PANDO_ASSIGN_OR_RETURN(const BufferLease line, context.session.buffers().Lease(kLineBytes));
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  std::optional<SpareNode> spare;
  while (!(spare = allocator.TryTake(tree.id(), tree.entry.root_record.server()))) {
    PANDO_RETURN_IF_ERROR(tree.Refill(context, tree.entry.root_record.server()));
  }
  const uint64_t life = context.session.LifeOf(spare->address.server());
  absl::StatusOr<HeldLock> acquired =
      tree.environment.hocl.Acquire(context, tree.RootLock(), line.buffer());
  if (!acquired.ok()) {
    allocator.PutBack(tree.id(), *std::move(spare));
    return acquired.status();
  }
  HeldLock lock = *std::move(acquired);
  WriteBack writes(context, tree, tree.entry.root_record.server());
  RootRecord record;
  absl::Status status;
  if (DecodeRootRecord(line.data(), tree.id(), tree.environment.crc, &record) !=
      RootVerdict::kAccepted) {
    status = RecordDamaged();
  }
  absl::StatusOr<bool> grow = false;
  bool torn = false;
  Reference unknown;
  if (status.ok()) grow = MustGrow(context, tree, record, missing, &torn, over, &unknown);
  if (!grow.ok()) status = grow.status();
  if (!status.ok() || !*grow) {
    allocator.PutBack(tree.id(), *std::move(spare));
    if (status.ok()) {
      context.session.counters().lost_races.Add();
      tree.root.Store(record);
    }
    const absl::Status released = writes.Release(std::move(lock), line.data());
    if (torn) {
      // Nothing may come of it, where all READs of the root take too long (rule F2): it grows when
      // the next session misses the separator, and can read it.
      *over = true;
      return LockAndRepair(context, tree, record.root, record.level, "");
    }
    if (!unknown.is_null()) {
      PANDO_RETURN_IF_ERROR(released);
      return tree.NodeLock(context, unknown).status();  // the next attempt can READ there
    }
    return status.ok() ? released : status;
  }
  RootRecord grown;
  // The new root is complete before the record names it.
  status = WriteNewRoot(context, tree, record, missing, *spare, image.buffer(), &grown);
  if (!status.ok()) {  // nobody refers to the node: the record's lock holds nobody up
    (void)writes.Release(std::move(lock), line.data());
    allocator.NoteFailure(spare->address.server(), life, status);
    (void)AbandonNode(context, tree, spare->address, image.buffer(), status);
    return status;
  }
  EncodeRootRecord(grown, line.data(), tree.environment.crc, line.data());
  status = writes.AddRaw(tree.entry.root_record, line.buffer());
  if (!status.ok()) {
    allocator.NoteUncertain(tree.id());
    tree.environment.hocl.LeaveToFencing(context, std::move(lock), status);
    return status;
  }
  status = writes.Release(std::move(lock), line.data());
  if (!status.ok()) {
    allocator.NoteUncertain(tree.id());
    return status;
  }
  tree.root.Store(grown);
  context.session.counters().root_splits.Add();
  return absl::OkStatus();
}

}  // namespace pando
