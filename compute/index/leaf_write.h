// What writes do at the leaf they belong to (rules U2, U3, U6, S1, S2, S4, S5): applies them and
// those that wait for the same leaf, writes back, splits.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compute/core/session_context.h"
#include "compute/index/leaf_batch.h"
#include "compute/index/tree_context.h"
#include "compute/index/write_back.h"
#include "compute/index/write_operation.h"
#include "compute/lock/hocl.h"

namespace pando {

// `image`: an accepted leaf, read under its lock, which is held. `later`: as WriteRun().
class LeafWrite {
 public:
  LeafWrite(OperationContext& context, TreeContext& tree, LocalBuffer image,
            std::vector<MissingSeparator>* later = nullptr)
      : context_(context), tree_(tree), image_(image), later_(later) {}

  // Rule N8: executes one operation, which erases nothing, where no more of the leaf was READ than
  // line 0 and the key's window. The key is in `slot` (-1: absent; the window has room then).
  // Combines nothing. Writes back and gives the lock up.
  void ExecuteInWindow(HeldLock&& lock, const RunWrite& write, int slot);

  // Executes the operations at the head of `writes`, at least one, that the leaf covers, and
  // waiting ones with them, writes back and gives the lock up. They are sorted by key; the first
  // one's key is covered, and in `slot` (-1: absent). Returns how many have their results now. 0:
  // the leaf is full and no spare node was at hand; nothing happened, refill and try again: they
  // are then decided again (rule U5).
  size_t Execute(HeldLock&& lock, absl::Span<const RunWrite> writes, int slot);

 private:
  // Of a leaf that may have to be split: seldom needed.
  struct Division {
    std::vector<NewNode> siblings;  // taken for it
    std::vector<MissingSeparator> separators;
    absl::Status status;  // why there are no more siblings
  };

  // One more node for a split of this leaf, and room for more entries with it. False: there is
  // none, or the division's status says why not.
  bool AddSibling(const HeldLock& lock, LeafBatch& batch);
  // Of those that follow the first one, which was applied. Returns how many were, with it.
  size_t ApplyFollowing(const HeldLock& lock, absl::Span<const RunWrite> writes, LeafBatch& batch);
  // Nothing could be applied, or everything was in vain.
  size_t GiveUp(HeldLock&& lock, const RunWrite& first);
  // What the batch leaves fits the leaf. True: nothing is to be written, and all is done.
  bool WriteBackLeaf(HeldLock&& lock, LeafBatch& batch, absl::Span<const RunWrite> applied,
                     absl::Status* written);
  // `image`: for the next holder; may be null.
  absl::Status WriteEntries(HeldLock&& lock, LeafEditor& editor, const std::byte* image);
  // The same where nodes for a split were taken: it may fit all the same.
  bool Divide(HeldLock&& lock, LeafBatch& batch, absl::Span<const RunWrite> applied,
              absl::Status* written);
  // What the batch leaves, in as many leaves as that needs. Notes their separators.
  absl::Status Split(HeldLock lock, LeafBatch& batch, const std::vector<LeafEntry>& sorted,
                     bool ascending);
  void NoteUnderfull(const LeafBatch& batch, const LeafEditor& editor);
  // Applies what local waiters have queued for this leaf, as far as it fits (rule U2).
  void Combine(HeldLock& lock, LeafBatch& batch);
  // Results of combined operations; `outcome`: what all of them get instead if it is an error.
  void FinishCombined(LocalLock* local, const absl::Status& outcome);
  void PutBackSiblings();

  Hocl& hocl() const { return tree_.environment.hocl; }

  OperationContext& context_;
  TreeContext& tree_;
  const LocalBuffer image_;
  std::vector<MissingSeparator>* const later_;
  std::unique_ptr<Division> division_;
  std::vector<LockRequestPtr> combined_;
  std::vector<absl::Status> results_;
};

}  // namespace pando
