// Walks the levels of a tree from left to right, each beside its parents' (tree_check.h says what
// is checked).
//
// Invariants:
//   1. The place to look at next is what the last node's right reference and high fence say, or,
//      behind damage, the next separator: the walk goes on behind what is broken.
//   2. Before something counts as wrong on a live tree, the left neighbour, or the parent, has been
//      read again and still says the same.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "compute/check/node_look.h"
#include "compute/check/tree_check.h"

namespace pando {

// Not thread-safe. All arguments must outlive it.
class CheckWalk {
 public:
  CheckWalk(const TreeCheckOptions& options, int root_level, NodeLooker* looker,
            TreeCheckResult* result)
      : options_(options), root_level_(root_level), looker_(*looker), result_(*result) {}

  void WalkLevel(int level);
  // Not too many problems or nodes, and memory can be read.
  bool MayGoOn() const;

 private:
  template <typename... Parts>
  void Problem(const Parts&... parts) {
    if (result_.problems.size() < options_.problems_max) {
      result_.problems.push_back(absl::StrCat(parts...));
    }
  }
  void NoteSuspect(const Reference& node) {
    if (result_.doubtful.size() < 3 * options_.problems_max) result_.doubtful.push_back(node);
  }
  bool LookAgain(int tries);

  // The leftmost place of the level; false: there is none (any more), or no way to it.
  bool Start(int level, NodePlace* next);
  // Looks at the next place until it is as it should be, or stays wrong (then it has been
  // reported). Not fine: the walk cannot go on from there. Nothing: the level has ended meanwhile.
  std::optional<NodeLook> TakeNode(int level, NodePlace* next);
  std::string Expected(const NodePlace& place) const;
  // Live trees: where the left neighbour, or the parent, leads to by now.
  void Reroute(int level, NodePlace* next);
  std::vector<std::string> Examine(const NodeLook& look, std::string_view low) const;
  void TakeEntries(NodeLook* look);

  // The parents: links up to `low` that no node has answered are reported.
  bool LoadParent(int level, std::string_view low);
  void NextParent(int level);
  void PassLinks(int level, std::string_view low);
  void MatchLink(int level, const NodePlace& place);
  void PassRemainingLinks(int level);
  // Goes to the next separator behind the place that cannot be passed. False: there is none.
  bool Resume(NodePlace* next, int level);
  // `covering`: the node that lies where the link's child should.
  void Unmatched(int level, const Separator& link, const std::optional<NodePlace>& covering);
  bool IsExplained(int level, const Separator& link, const std::optional<NodePlace>& covering);

  const TreeCheckOptions& options_;
  const int root_level_;
  NodeLooker& looker_;
  TreeCheckResult& result_;
  absl::flat_hash_set<uint64_t> seen_;
  std::string key_cursor_;  // the last key taken
  bool any_key_ = false;
  std::optional<NodePlace> previous_;  // the node before the next place; none behind damage
  std::optional<NodeLook> parent_;
  size_t next_link_ = 0;  // in parent_->children
};

}  // namespace pando
