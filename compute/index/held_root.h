// The root record under its lock, and under that the lock of one node, mostly of the root (rules
// R1, M7, C4).
//
// Not thread-safe. Invariant: the holder of the record releases it (CHECKed by LockSet).
#pragma once

#include "absl/status/statusor.h"
#include "common/wire/root_record.h"
#include "compute/core/session_context.h"
#include "compute/index/lock_set.h"
#include "compute/index/tree_context.h"

namespace pando {

class HeldRoot {
 public:
  HeldRoot(OperationContext& context, TreeContext& tree)
      : context_(context), tree_(tree), locks_(context, tree) {}

  // Waits for the record's lock and reads the record. An error: nothing is held.
  absl::Status Hold();
  // Whether what was read is this tree's record, and whole; only then it says anything.
  bool accepted() const { return accepted_; }
  const RootRecord& record() const { return record_; }
  LocalBuffer line() const { return line_.buffer(); }

  // Tries the lock of a node and reads it into image(), as LockSet::TryAdd().
  absl::StatusOr<bool> TryNode(const Reference& node) {
    return locks_.TryAdd(node, image_.buffer());
  }
  LocalBuffer image() const { return image_.buffer(); }
  LockSet& locks() { return locks_; }

 private:
  OperationContext& context_;
  TreeContext& tree_;
  BufferLease line_, image_;
  LockSet locks_;
  RootRecord record_;
  bool accepted_ = false;
};

// DataLoss: the record is not this tree's, or not whole, although its lock is held.
absl::Status RecordDamaged();

}  // namespace pando
