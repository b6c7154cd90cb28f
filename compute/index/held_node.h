// A node on whose lock everything begins that changes the tree: found by a descent, locked, read,
// and looked at for what a dead client left (hold.h).
//
//   HeldNode held(context, tree, image);
//   while (true) {
//     PANDO_ASSIGN_OR_RETURN(const HeldNode::Attempt attempt, held.Hold(descent));
//     if (attempt == HeldNode::Attempt::kHeld) break;  // else nothing is held: the next place
//   }
//   ... held.TakeLock(), which ends as every HeldLock does, or held.ReleaseUnchanged() ...
//
// Not thread-safe. Invariant: the lock is held after kHeld, and after nothing else, until it is
// taken or released (CHECKed by HeldLock; a destructor cannot wait for a release, nor say what
// became of it).
#pragma once

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/index/descend.h"
#include "compute/index/hold.h"
#include "compute/index/read_node.h"
#include "compute/index/tree_context.h"
#include "compute/lock/hocl.h"

namespace pando {

class HeldNode {
 public:
  enum class Attempt {
    kHeld,       // the node of the descent's level that covers its key: sound, unmarked
    kElsewhere,  // it was another one, which the descent has been told
    kRepaired,   // something that a dead client left was in the way
    kExecuted,   // only with a delegate: the operation was executed by the lock's holder
  };

  // `image`: of a node; outlives this. `covers`: the rule whose variant takes a node that does not
  // cover the key for one that does.
  HeldNode(OperationContext& context, TreeContext& tree, LocalBuffer image,
           std::optional<Rule> covers = std::nullopt)
      : context_(context), tree_(tree), image_(image), covers_(covers) {}

  // One attempt at the place that the descent finds. Errors: the descent's, the lock's, DataLoss;
  // nothing is held.
  absl::StatusOr<Attempt> Hold(Descent& descent);
  // The same for a single operation on that node, which may wait as a request (Hocl).
  absl::StatusOr<Attempt> HoldOrDelegate(Descent& descent, Hocl::Delegate delegate);

  // Rule N8, of a leaf: READs no more than line 0 and the window of the descent's key, where that
  // may do; if it does not, the leaf. `adds`: the key gets a slot if it is absent. Where
  // others want the lock HoldOrDelegate().
  absl::StatusOr<Attempt> HoldWindow(Descent& descent, bool adds, Hocl::Delegate delegate);
  // After kHeld: the image is of line 0 and the key's window alone.
  bool window_only() const { return !lock_.image_is_fresh(); }

  const Reference& node() const { return lock_.target().node; }
  LocalBuffer image() const { return image_; }
  // Of a leaf: where the descent's key is.
  const LeafMatch& match() const { return match_; }
  // Moves it out where it is bound to a HeldLock.
  HeldLock&& TakeLock() { return std::move(lock_); }
  absl::Status ReleaseUnchanged() {
    return tree_.environment.hocl.ReleaseUnchanged(context_, std::move(lock_), image_.data);
  }

 private:
  absl::StatusOr<Attempt> Inspect(Descent& descent);
  // What was READ of the leaf is enough.
  bool WindowDecides(const Descent& descent, bool adds);
  // Of a node that is not the one wanted.
  absl::StatusOr<Attempt> Leave(Descent& descent, NodeVerdict verdict);

  OperationContext& context_;
  TreeContext& tree_;
  const LocalBuffer image_;
  const std::optional<Rule> covers_;
  HeldLock lock_;
  LeafMatch match_;
};

// Inline, for the sake of the returns behind a suspension (common/sched/README.md).
[[gnu::always_inline]] inline absl::StatusOr<HeldNode::Attempt> HeldNode::Inspect(
    Descent& descent) {
  PANDO_ASSIGN_OR_RETURN(
      const HeldVerdict inspected,
      InspectUnderLock(context_, tree_, &lock_,
                       Expect(tree_, descent.node(), descent.level(), descent.key()), image_));
  if (inspected.released) [[unlikely]]
    return Attempt::kRepaired;
  match_ = inspected.match;
  if (inspected.verdict == NodeVerdict::kAccepted) [[likely]]
    return Attempt::kHeld;
  return Leave(descent, inspected.verdict);
}

[[gnu::always_inline]] inline absl::StatusOr<HeldNode::Attempt> HeldNode::HoldOrDelegate(
    Descent& descent, Hocl::Delegate delegate) {
  PANDO_RETURN_IF_ERROR(descent.Find());
  PANDO_ASSIGN_OR_RETURN(const LockTarget target, tree_.NodeLock(context_, descent.node()));
  PANDO_ASSIGN_OR_RETURN(std::optional<HeldLock> lock, tree_.environment.hocl.AcquireOrDelegate(
                                                           context_, target, image_, delegate));
  if (!lock.has_value()) return Attempt::kExecuted;
  lock_ = *std::move(lock);
  return Inspect(descent);
}

}  // namespace pando
