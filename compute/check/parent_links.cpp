// The half of CheckWalk that compares a level with the separators above it.
#include <algorithm>
#include <utility>

#include "compute/check/level_walk.h"

namespace pando {

bool CheckWalk::LoadParent(int level, std::string_view low) {
  NodeLook parent = looker_.FindNode(level, low);
  if (!parent.fine()) return false;
  const auto first =
      std::lower_bound(parent.children.begin(), parent.children.end(), low,
                       [](const Separator& link, std::string_view key) { return link.key < key; });
  next_link_ = static_cast<size_t>(first - parent.children.begin());
  parent_ = std::move(parent);
  return true;
}

void CheckWalk::NextParent(int level) {
  const std::string low = parent_->header.high;
  NodeLook right = looker_.Look(level, parent_->header.right, low);
  // What is wrong with that level has been said; it is found again where it is whole.
  if (!right.fine()) right = looker_.FindNode(level, low);
  parent_.reset();
  if (!right.fine()) return;
  next_link_ = 0;
  while (next_link_ < right.children.size() && right.children[next_link_].key < low) ++next_link_;
  parent_ = std::move(right);
}

void CheckWalk::PassLinks(int level, std::string_view low) {
  if (level == root_level_) return;
  if (!parent_.has_value() && !LoadParent(level + 1, low)) return;
  while (parent_.has_value() && MayGoOn()) {
    while (next_link_ < parent_->children.size() && parent_->children[next_link_].key < low) {
      Unmatched(level, Separator(parent_->children[next_link_++]), previous_);
    }
    const std::string& high = parent_->header.high;
    if (next_link_ < parent_->children.size() || high.empty() || high > low) return;
    NextParent(level + 1);
  }
}

void CheckWalk::MatchLink(int level, const NodePlace& place) {
  if (level == root_level_) {
    // The root record is the root's separator; its siblings wait for a new root.
    if (!place.low.empty()) ++result_.missing_separators;
    return;
  }
  if (!parent_.has_value()) return;
  if (next_link_ < parent_->children.size() && parent_->children[next_link_].key == place.low) {
    const Separator link = parent_->children[next_link_++];
    if (link.child != place.node) Unmatched(level, link, place);
    return;
  }
  ++result_.missing_separators;
}

void CheckWalk::PassRemainingLinks(int level) {
  if (level == root_level_) return;
  while (parent_.has_value() && MayGoOn()) {
    while (next_link_ < parent_->children.size() && MayGoOn()) {
      Unmatched(level, Separator(parent_->children[next_link_++]), previous_);
    }
    // A live tree may have grown to the right of where the walk ended.
    if (options_.look_again != nullptr || parent_->header.right.is_null()) return;
    NextParent(level + 1);
  }
}

bool CheckWalk::Resume(NodePlace* next, int level) {
  previous_.reset();
  if (level == root_level_) return false;
  while (parent_.has_value()) {
    for (; next_link_ < parent_->children.size(); ++next_link_) {
      const Separator& link = parent_->children[next_link_];
      if (link.key <= next->low) continue;
      *next = {link.child, link.key};
      return true;
    }
    if (parent_->header.right.is_null()) return false;
    NextParent(level + 1);
  }
  return false;
}

void CheckWalk::Unmatched(int level, const Separator& link,
                          const std::optional<NodePlace>& covering) {
  if (IsExplained(level, link, covering)) return;
  if (!looker_.unreadable().ok()) return;
  Problem("separator ", DescribeBound(link.key), " refers to ", DescribeNode(link.child),
          ", which is not on level ", level,
          covering.has_value() ? absl::StrCat(" there: ", DescribeNode(covering->node), " from ",
                                              DescribeBound(covering->low), " on is")
                               : std::string());
  NoteSuspect(link.child);
  if (covering.has_value()) NoteSuspect(covering->node);
}

bool CheckWalk::IsExplained(int level, const Separator& link,
                            const std::optional<NodePlace>& covering) {
  for (int tries = 0; LookAgain(tries); ++tries) {
    // The separator is gone, or the node that lay there does not cover it any more.
    const NodeLook parent = looker_.FindNode(level + 1, link.key);
    if (!parent.fine()) continue;
    const bool there =
        std::any_of(parent.children.begin(), parent.children.end(),
                    [&](const Separator& s) { return s.key == link.key && s.child == link.child; });
    if (!there || !covering.has_value()) return true;
    const NodeLook node = looker_.Look(level, covering->node, link.key);
    if (!node.fine() && node.verdict != NodeLook::Verdict::kTorn) return true;
  }
  return false;
}

}  // namespace pando
