#include "compute/index/held_node.h"

#include "common/base/rule.h"
#include "common/wire/leaf.h"
#include "common/wire/node_image.h"

namespace pando {

absl::StatusOr<HeldNode::Attempt> HeldNode::Hold(Descent& descent) {
  PANDO_RETURN_IF_ERROR(descent.Find());
  PANDO_ASSIGN_OR_RETURN(const LockTarget target, tree_.NodeLock(context_, descent.node()));
  PANDO_ASSIGN_OR_RETURN(lock_, tree_.environment.hocl.Acquire(context_, target, image_));
  return Inspect(descent);
}

namespace {

TargetParts PartsOf(const NodeLayout& layout, std::string_view key) {
  const WindowReads reads = ReadsOf(WindowOf(layout, key));
  TargetParts parts;
  for (uint32_t i = 0; i < reads.count; ++i) {
    parts.parts[parts.count++] = {.offset = reads.runs[i].first_line * kLineBytes,
                                  .bytes = reads.runs[i].line_count * kLineBytes};
  }
  return parts;
}

}  // namespace

bool HeldNode::WindowDecides(const Descent& descent, bool adds) {
  const NodeLayout& layout = tree_.layout;
  WindowVerdict verdict =
      ClassifyWindow(image_.data, layout, Expect(tree_, descent.node(), 0, descent.key()),
                     tree_.environment.crc, &match_);
  if (verdict == WindowVerdict::kFlagged && !RuleHolds(Rule::kN8)) verdict = WindowVerdict::kAbsent;
  if (verdict != WindowVerdict::kFound && verdict != WindowVerdict::kAbsent) return false;
  // Rule M7: a holder that works on such a leaf has to resolve the merge first.
  if (IsMarked(image_.data) && RuleHolds(Rule::kN8Marker)) return false;
  return verdict == WindowVerdict::kFound || !adds ||
         HasRoomInWindow(image_.data, layout, descent.key());
}

absl::StatusOr<HeldNode::Attempt> HeldNode::HoldWindow(Descent& descent, bool adds,
                                                       Hocl::Delegate delegate) {
  PANDO_RETURN_IF_ERROR(descent.Find());
  // The low fence is known of a leaf to which its parent led (rule N2).
  if (descent.parent().is_null() || descent.moved_right()) return HoldOrDelegate(descent, delegate);
  PANDO_ASSIGN_OR_RETURN(const LockTarget target, tree_.NodeLock(context_, descent.node()));
  Hocl& hocl = tree_.environment.hocl;
  PANDO_ASSIGN_OR_RETURN(
      std::optional<HeldLock> lock,
      hocl.TryAcquireParts(context_, target, PartsOf(tree_.layout, descent.key()), image_));
  if (!lock.has_value()) return HoldOrDelegate(descent, delegate);
  lock_ = *std::move(lock);
  const bool crowded = lock_.local()->HasWaiters();
  if (crowded) lock_.local()->NoteCrowd();
  if (window_only()) {
    if (!crowded && WindowDecides(descent, adds)) return Attempt::kHeld;
    PANDO_RETURN_IF_ERROR(hocl.ReadAll(context_, lock_, image_));
  }
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
