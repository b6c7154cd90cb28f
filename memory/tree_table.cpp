#include "memory/tree_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "memory/id_source.h"

namespace pando::memory {

void TreeTable::NoteIncarnation(uint32_t incarnation) {
  highest_id_ = std::max(highest_id_, incarnation);
  highest_incarnation_ = std::max(highest_incarnation_, incarnation);
  if (dropped_.range_count() < kDroppedRangesMax) dropped_.Insert(incarnation);
}

absl::Status TreeTable::Attach(const ClientId& client, uint32_t tree_id, uint64_t life) {
  if (tree_id == 0) return absl::InvalidArgumentError("tree id 0 stands for no tree");
  if (tree_id > highest_incarnation_ && tree_id - highest_incarnation_ >= IdSource::kMadeUpFrom) {
    return absl::InvalidArgumentError(
        absl::StrCat("no catalog has given out ", tree_id, " as the id of a tree"));
  }
  if (dropped_.Contains(tree_id)) {
    return absl::NotFoundError(absl::StrCat("tree ", tree_id, " was dropped"));
  }
  if (life != 0 && life != life_ && RuleHolds(Rule::kR7)) {
    return absl::DataLossError(
        absl::StrCat("tree ", tree_id,
                     " had nodes on an earlier life of this memory server, and they are gone with "
                     "it: drop the tree and create it again"));
  }
  const auto use = uses_.find(tree_id);
  if (use != uses_.end()) {
    use->second.insert(client);
    return absl::OkStatus();
  }
  if (uses_.size() >= kTreesInUseMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kTreesInUseMax, " trees are in use; close some"));
  }
  highest_id_ = std::max(highest_id_, tree_id);
  uses_[tree_id].insert(client);
  return absl::OkStatus();
}

absl::Status TreeTable::CheckUses(const ClientId& client, uint32_t tree_id) const {
  const auto use = uses_.find(tree_id);
  if (use == uses_.end() || !use->second.contains(client)) {
    return absl::FailedPreconditionError(
        absl::StrCat(client.ToString(), " is not attached to tree ", tree_id));
  }
  return absl::OkStatus();
}

absl::Status TreeTable::CheckMayGrow(const ClientId& client, uint32_t tree_id) const {
  const absl::Status uses = CheckUses(client, tree_id);
  if (!uses.ok()) return uses;
  if (dropped_.Contains(tree_id)) {
    return absl::FailedPreconditionError(
        absl::StrCat("tree ", tree_id, " was dropped and cannot grow"));
  }
  return absl::OkStatus();
}

bool TreeTable::Detach(const ClientId& client, uint32_t tree_id) {
  const auto use = uses_.find(tree_id);
  if (use == uses_.end() || use->second.erase(client) == 0 || !use->second.empty()) return false;
  // Of a tree that lives on nothing has to be known: who comes back says what it has here.
  uses_.erase(use);
  return dropped_.Contains(tree_id);
}

absl::StatusOr<bool> TreeTable::Drop(uint32_t tree_id) {
  if (tree_id == 0) return absl::InvalidArgumentError("tree id 0 stands for no tree");
  if (dropped_.range_count() >= kDroppedRangesMax) {
    return absl::ResourceExhaustedError("too many scattered tree ids were dropped");
  }
  dropped_.Insert(tree_id);
  const auto use = uses_.find(tree_id);
  if (use == uses_.end()) return true;
  if (!use->second.empty()) return false;
  uses_.erase(use);
  return true;
}

std::vector<uint32_t> TreeTable::TreesOf(const ClientId& client) const {
  std::vector<uint32_t> trees;
  for (const auto& [tree_id, clients] : uses_) {
    if (clients.contains(client)) trees.push_back(tree_id);
  }
  return trees;
}

}  // namespace pando::memory
