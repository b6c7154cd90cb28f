#include "compute/check/level_walk.h"

#include <algorithm>
#include <utility>

namespace pando {

bool CheckWalk::MayGoOn() const {
  return looker_.unreadable().ok() && result_.problems.size() < options_.problems_max;
}

bool CheckWalk::LookAgain(int tries) {
  if (options_.look_again == nullptr || !looker_.unreadable().ok()) return false;
  if (tries == 0) ++result_.looked_again;
  return options_.look_again(tries);
}

void CheckWalk::WalkLevel(int level) {
  previous_.reset();
  parent_.reset();
  NodePlace next;
  if (!Start(level, &next)) return;
  if (level < root_level_) LoadParent(level + 1, "");
  while (MayGoOn()) {
    if (result_.nodes.size() >= options_.nodes_max) return Problem("more nodes than expected");
    PassLinks(level, next.low);
    std::optional<NodeLook> look = TakeNode(level, &next);
    if (!look.has_value()) break;
    if (!look->fine()) {
      if (!Resume(&next, level)) return;
      continue;
    }
    PassLinks(level, look->header.low);
    MatchLink(level, {look->node, look->header.low});
    ++result_.nodes_per_level[static_cast<size_t>(level)];
    result_.nodes.push_back(look->node);
    seen_.insert(look->node.address.raw());
    if (level == 0) TakeEntries(&*look);
    previous_ = {look->node, look->header.low};
    if (look->header.right.is_null()) break;
    next = {look->header.right, look->header.high};
  }
  if (MayGoOn()) PassRemainingLinks(level);
}

bool CheckWalk::Start(int level, NodePlace* next) {
  absl::StatusOr<NodePlace> place = looker_.FindPlace(level, "");
  for (int tries = 0; !place.ok() && !absl::IsNotFound(place.status()) && LookAgain(tries);
       ++tries) {
    place = looker_.FindPlace(level, "");
  }
  if (place.ok()) {
    *next = *std::move(place);
    return true;
  }
  // The tree has become lower, or why its upper levels lead nowhere has been said already.
  const bool said = absl::IsNotFound(place.status()) || !result_.problems.empty();
  if (!said && looker_.unreadable().ok()) Problem("level ", level, ": ", place.status().ToString());
  return false;
}

std::string CheckWalk::Expected(const NodePlace& place) const {
  return absl::StrCat(
      " (expected from ", DescribeBound(place.low), " on",
      previous_.has_value() ? absl::StrCat(", right of ", DescribeNode(previous_->node)) : "", ")");
}

std::optional<NodeLook> CheckWalk::TakeNode(int level, NodePlace* next) {
  for (int tries = 0;; ++tries) {
    NodeLook look = looker_.Look(level, next->node, next->low);
    std::vector<std::string> problems;
    if (look.fine()) {
      problems = Examine(look, next->low);
    } else {
      const bool loop =
          look.verdict != NodeLook::Verdict::kTorn && seen_.contains(next->node.address.raw());
      problems = {absl::StrCat(loop ? "is met twice" : look.problem, Expected(*next))};
    }
    if (problems.empty() || !looker_.unreadable().ok()) return look;
    if (!LookAgain(tries)) {
      for (const std::string& problem : problems) {
        Problem("level ", level, ": ", DescribeNode(look.node), " ", problem);
      }
      NoteSuspect(look.node);
      if (previous_.has_value()) NoteSuspect(previous_->node);
      return look;
    }
    Reroute(level, next);
    if (next->node.is_null()) return std::nullopt;
  }
}

void CheckWalk::Reroute(int level, NodePlace* next) {
  if (previous_.has_value()) {
    const NodeLook left = looker_.Look(level, previous_->node, previous_->low);
    if (left.fine()) {
      *next = {left.header.right, left.header.high};
      return;
    }
    if (left.verdict == NodeLook::Verdict::kTorn) return;
    previous_.reset();
  }
  absl::StatusOr<NodePlace> place = looker_.FindPlace(level, next->low);
  if (place.ok()) *next = *std::move(place);
}

std::vector<std::string> CheckWalk::Examine(const NodeLook& look, std::string_view low) const {
  std::vector<std::string> problems;
  const NodeHeader& header = look.header;
  if (header.low != low) {
    problems.push_back(absl::StrCat("has the low fence ", DescribeBound(header.low),
                                    ", which is not its left neighbour's high fence ",
                                    DescribeBound(low)));
  }
  if (header.state != NodeState::kLive) problems.emplace_back("is not live, but merging");
  if (!header.peer.is_null()) {
    problems.push_back(absl::StrCat("has a merge's marker: ", DescribeNode(header.peer)));
  }
  if (header.high.empty() != header.right.is_null()) {
    problems.push_back(absl::StrCat("has the high fence ", DescribeBound(header.high), ", but ",
                                    header.right.is_null() ? "no" : "a", " right sibling"));
  }
  return problems;
}

void CheckWalk::TakeEntries(NodeLook* look) {
  for (LeafEntry& entry : look->entries) {
    if (any_key_ && entry.key <= key_cursor_) {
      // On a live tree: a node was met again.
      if (options_.look_again == nullptr) {
        Problem(DescribeNode(look->node), ": key ", DescribeBound(entry.key), " is out of order");
      }
      continue;
    }
    any_key_ = true;
    key_cursor_ = entry.key;
    ++result_.keys;
    result_.key_bytes += entry.key.size();
    result_.value_bytes += entry.value.size();
    if (options_.keep_entries) {
      result_.entries.emplace_back(std::move(entry.key), std::move(entry.value));
    }
  }
}

}  // namespace pando
