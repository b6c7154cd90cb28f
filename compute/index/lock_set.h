// The locks of an operation on several nodes (rules L1, L2): the first one was waited for, further
// ones are only tried; words that several nodes share are taken and given back once; nothing is
// handed over (rule L6).
//
// Not thread-safe. Invariant: every lock ends in ReleaseAll() (CHECKed).
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"
#include "compute/lock/hocl.h"

namespace pando {

class LockSet {
 public:
  LockSet(OperationContext& context, TreeContext& tree) : context_(context), tree_(tree) {}
  ~LockSet();
  LockSet(const LockSet&) = delete;
  LockSet& operator=(const LockSet&) = delete;

  void Adopt(HeldLock lock);
  // A word that its owner gives back, not this set.
  void Borrow(const HeldLock& lock) { borrowed_.push_back(lock.target()); }

  // Unless its memory server is known TryAdd() ends in Unavailable. It may have just come: with no
  // lock held, TreeContext::NodeLock() waits for it.
  bool Knows(const Reference& node) const { return tree_.Knows(node); }
  // Tries the node's lock and reads the node. False: another holder has it. An error: the lock was
  // not taken; those held before still are.
  absl::StatusOr<bool> TryAdd(const Reference& node, LocalBuffer image);
  // Gives back what the last successful TryAdd() took.
  absl::Status ReleaseLast();

  // The last one taken goes first. Everything is let go, also after an error; the first one is
  // returned. Also after a failed chain: words of the server where it may still be in flight cannot
  // be given back, and stay (rule L5); those of others must not.
  absl::Status ReleaseAll();
  // The same after everything has gone well, one chain a server. `chain`, which is not posted yet,
  // goes first, ahead of the releases at its server, of which there are some.
  absl::Status ReleaseTogether(Chain* chain);

 private:
  bool Holds(const LockTarget& target) const;
  absl::Status Release(HeldLock lock);

  OperationContext& context_;
  TreeContext& tree_;
  std::vector<LockTarget> borrowed_;
  std::vector<HeldLock> locks_;
  bool last_was_shared_ = false;  // the last TryAdd() took no word of its own
  bool shares_ = false;           // some TryAdd() did not
};

}  // namespace pando
