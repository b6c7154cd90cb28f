// What a write does at the leaf it belongs to (rules U2, U3, S1, S2): applies the operation and
// those that wait for the same leaf, writes back, splits.
//
// Not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "compute/core/session_context.h"
#include "compute/index/leaf_batch.h"
#include "compute/index/tree_context.h"
#include "compute/index/write_operation.h"
#include "compute/lock/hocl.h"

namespace pando {

// `image`: an accepted leaf, read under its lock, which is held.
class LeafWrite {
 public:
  LeafWrite(OperationContext& context, TreeContext& tree, LocalBuffer image)
      : context_(context), tree_(tree), image_(image) {}

  // Executes the operation, whose key is in `slot` (-1: absent), and waiting ones with it, writes
  // back and gives the lock up.
  // `answer`: as LeafBatch::Apply().
  // `needs_node`: the leaf is full and no spare node was at hand; nothing happened, refill and try
  // again: the operation is decided anew then (rule U5).
  absl::Status Execute(HeldLock&& lock, const WriteOperation& operation, int slot,
                       std::string* answer, bool* needs_node);

 private:
  absl::Status WriteEntries(HeldLock&& lock, LeafEditor& editor);
  // With the key and its value, which had no slot.
  absl::Status Split(HeldLock lock, std::string_view key, std::string_view value, bool* needs_node);
  void NoteUnderfull(const LeafEditor& editor);
  // Applies what local waiters have queued for this leaf, as far as it fits (rule U2).
  void Combine(HeldLock& lock, LeafBatch& batch);
  // Results of combined operations; `outcome`: what all of them get instead if it is an error.
  void FinishCombined(LocalLock* local, const absl::Status& outcome);

  Hocl& hocl() const { return tree_.environment.hocl; }

  OperationContext& context_;
  TreeContext& tree_;
  const LocalBuffer image_;
  std::vector<LockRequestPtr> combined_;
  std::vector<absl::Status> results_;
};

}  // namespace pando
