// From the root to the node that covers a key (rules V1, V3), mostly through the index cache.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"

namespace pando {

// Rule V3: steps to the right before the way down is tried again.
inline constexpr int kMovesRightMax = 4;

// One operation's search for the node of `level` that covers `key`. A place is only a hint: the
// caller reads the node, classifies it and reports what it met. The descent then forgets what
// misled it and finds another place.
//
//   Descent descent(context, tree, key, 0);
//   while (true) {
//     PANDO_RETURN_IF_ERROR(descent.Find());
//     verdict = ... read or lock descent.node() ...
//     if (verdict == accepted) break;
//     descent.Report(verdict, RightOf(image));
//   }
//   descent.Accepted(low fence of the image);
class Descent {
 public:
  Descent(OperationContext& context, TreeContext& tree, std::string_view key, uint8_t level)
      : context_(context), tree_(tree), key_(key), search_key_(key), level_(level) {}

  // Finds a place. With a cached path: no round trip. Errors: Unavailable, DeadlineExceeded,
  // DataLoss, FailedPrecondition (the tree is gone; or the root is below `level`: it has to grow
  // first).
  absl::Status Find();
  const Reference& node() const { return node_; }
  std::string_view key() const { return key_; }
  uint8_t level() const { return level_; }
  // What led there, of the level above, from the cache or just put there; null: the root hint did.
  const Reference& parent() const { return parent_; }
  // Why the last Find() failed: the tree has no such level (rule R1). The status alone does not
  // tell, since others fail like that, too.
  bool above_root() const { return above_root_; }
  // True if node() was reached from its left sibling: call Accepted() then.
  bool moved_right() const { return moved_right_; }

  // What the image at node() turned out to be, if not accepted; `right`: its right sibling where it
  // moved right.
  void Report(NodeVerdict verdict, const Reference& right);
  // The image at node() was accepted after a move right. Notes a missing separator in the context:
  // the node was reached from its left sibling although the parent had been read in this very
  // descent.
  void Accepted(std::string_view low_fence);

 private:
  absl::Status FindRoot(Reference* root, uint8_t* root_level);
  // Finds a leaf through the cache's shortcut. False: go down from the root.
  bool JumpToLeaf();
  // Goes down as far as cached nodes lead, without a round trip.
  void WalkCached(Reference* node, uint8_t* node_level);
  // Reads the node and goes to the child covering the key. Aborted: something was out of date;
  // start again from the root.
  absl::Status StepDown(Reference* node, uint8_t* node_level);
  absl::Status ReadInternal(Reference* node, uint8_t node_level, Reference* child);
  // What led to the node at hand (a cached parent, or the root hint) is out of date: not for this
  // descent, but for the next one. Keeps a parent that has been replaced since.
  void ForgetParent();
  // Rule V3. Where a restart and a fresh look at the parent led to the same place, separators are
  // missing: any number may be, so from there on only the deadline ends the way to the right.
  bool MayMoveRight(int moves) const;
  // Rule V3: forgets what led here; the second time the root record is read afresh.
  void Restart();

  OperationContext& context_;
  TreeContext& tree_;
  const std::string_view key_;
  const SearchKey search_key_;
  const uint8_t level_;
  Reference node_;
  Reference parent_, child_;  // what led where; null: the root hint did
  bool have_place_ = false;
  bool reread_root_ = false;
  bool parent_is_fresh_ = false;  // it was read in this descent
  bool moved_right_ = false;
  bool above_root_ = false;
  int moves_ = 0;
  int restarts_ = 0;
};

}  // namespace pando
