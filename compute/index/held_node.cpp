#include "compute/index/held_node.h"

namespace pando {

absl::StatusOr<HeldNode::Attempt> HeldNode::Hold(Descent& descent) {
  PANDO_RETURN_IF_ERROR(descent.Find());
  PANDO_ASSIGN_OR_RETURN(const LockTarget target, tree_.NodeLock(context_, descent.node()));
  PANDO_ASSIGN_OR_RETURN(lock_, tree_.environment.hocl.Acquire(context_, target, image_));
  return Inspect(descent);
}

absl::StatusOr<HeldNode::Attempt> HeldNode::Leave(Descent& descent, NodeVerdict verdict) {
  const bool moved_right = verdict == NodeVerdict::kMovedRight;
  if (moved_right && covers_.has_value() && !RuleHolds(*covers_)) return Attempt::kHeld;
  const Reference right = moved_right ? RightOf(image_.data) : Reference{};
  PANDO_RETURN_IF_ERROR(ReleaseUnchanged());
  if (verdict == NodeVerdict::kTorn) return StaysTorn(descent.node());
  descent.Report(verdict, right);
  return Attempt::kElsewhere;
}

}  // namespace pando
