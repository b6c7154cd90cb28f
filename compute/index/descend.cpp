#include "compute/index/descend.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "compute/index/hold.h"
#include "compute/index/read_node.h"

namespace pando {
namespace {
// Restarts after which a descent backs off, and the longest back-off in chain times.
constexpr int kRestartsAtOnce = 2;
constexpr int kBackOffChainsMax = 64;
// Fresh looks at the root record in vain, before the root itself is suspected (rule C4).
constexpr int kRestartsBeforeRevival = 6;
}  // namespace

absl::Status Descent::FindRoot(Reference* root, uint8_t* root_level) {
  int level = reread_root_ ? -1 : tree_.root.Load(root);
  parent_is_fresh_ = false;
  if (level < level_) {  // unknown, asked for, or too low: only a fresh look decides that
    PANDO_ASSIGN_OR_RETURN(const RootRecord record, ReadRoot(context_, tree_));
    parent_is_fresh_ = true;
    reread_root_ = false;
    if (record.level < level_) {
      above_root_ = true;
      return absl::FailedPreconditionError(
          absl::StrCat("the tree has no level ", static_cast<int>(level_)));
    }
    *root = record.root;
    level = record.level;
  }
  *root_level = static_cast<uint8_t>(level);
  parent_ = {};
  return absl::OkStatus();
}

absl::Status Descent::Find() {
  above_root_ = false;
  if (have_place_) {  // after a move right
    if (moves_ <= kMovesRightMax || !context_.expired()) return absl::OkStatus();
    return context_.DeadlineError("moving right past missing separators");
  }
  if (level_ == 0 && restarts_ == 0 && JumpToLeaf()) [[likely]]
    return absl::OkStatus();
  while (true) {
    if (restarts_ > 0 && context_.expired()) return context_.DeadlineError("searching the tree");
    if (restarts_ > 0 && restarts_ % kRestartsBeforeRevival == 0 && parent_.is_null()) {
      PANDO_RETURN_IF_ERROR(ReviveRoot(context_, tree_));
    }
    if (restarts_ > kRestartsAtOnce) context_.BackOff(std::min(restarts_, kBackOffChainsMax));
    Reference node;
    uint8_t node_level = 0;
    PANDO_RETURN_IF_ERROR(FindRoot(&node, &node_level));
    absl::Status status;
    while (node_level > level_ && status.ok()) {
      WalkCached(&node, &node_level);
      if (node_level > level_) status = StepDown(&node, &node_level);
    }
    if (absl::IsAborted(status)) continue;
    PANDO_RETURN_IF_ERROR(status);
    node_ = node;
    have_place_ = true;
    moved_right_ = false;
    moves_ = 0;
    return absl::OkStatus();
  }
}

bool Descent::JumpToLeaf() {
  const IndexCache& cache = tree_.environment.cache;
  const EpochDomain::Guard guard(tree_.environment.cache.epochs(), context_.session.epoch_slot());
  const CachedNode* const parent = cache.FindParent(*tree_.parents, search_key_);
  if (parent == nullptr) return false;
  context_.session.counters().cache_hits.Add();
  parent_is_fresh_ = false;
  parent_ = parent->self();
  child_ = node_ = parent->Child(parent->ChildIndex(search_key_));
  have_place_ = true;
  moved_right_ = false;
  moves_ = 0;
  return true;
}

void Descent::WalkCached(Reference* node, uint8_t* node_level) {
  IndexCache& cache = tree_.environment.cache;
  SessionCounters& counters = context_.session.counters();
  const EpochDomain::Guard guard(cache.epochs(), context_.session.epoch_slot());
  while (*node_level > level_) {
    const CachedNode* cached = cache.Find(*node);
    const bool leads_on =
        cached != nullptr && cached->level() == *node_level && cached->Covers(search_key_);
    if (*node_level == 1) (leads_on ? counters.cache_hits : counters.cache_misses).Add();
    if (!leads_on) return;
    parent_is_fresh_ = false;
    parent_ = *node;
    child_ = *node = cached->Child(cached->ChildIndex(search_key_));
    --*node_level;
  }
}

absl::Status Descent::StepDown(Reference* node, uint8_t* node_level) {
  Reference child;
  PANDO_RETURN_IF_ERROR(ReadInternal(node, *node_level, &child));
  parent_is_fresh_ = true;
  parent_ = *node;
  child_ = *node = child;
  --*node_level;
  return absl::OkStatus();
}

absl::Status Descent::ReadInternal(Reference* node, uint8_t node_level, Reference* child) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context_.session.buffers().Lease(tree_.layout.node_bytes()));
  for (int moves = 0; MayMoveRight(moves) && !node->is_null(); ++moves) {
    if (moves > kMovesRightMax && context_.expired()) {
      return context_.DeadlineError("moving right past missing separators");
    }
    PANDO_ASSIGN_OR_RETURN(const NodeVerdict verdict,
                           ReadNode(context_, tree_, *node, node_level, key_, image.buffer()));
    if (verdict == NodeVerdict::kMovedRight) {
      context_.session.counters().moves_right.Add();
      *node = RightOf(image.data());
      continue;
    }
    if (verdict != NodeVerdict::kAccepted) break;
    InternalNode decoded;
    PANDO_RETURN_IF_ERROR(DecodeInternal(image.data(), tree_.layout, &decoded));
    tree_.environment.cache.Insert(tree_.id(), *node, decoded);
    if (moves > 0) {
      if (parent_is_fresh_) {
        context_.missing = {static_cast<uint8_t>(node_level + 1), decoded.header.low, *node};
      } else {
        ForgetParent();
      }
    }
    *child = decoded.ChildFor(key_);
    return absl::OkStatus();
  }
  if (!node->is_null()) tree_.environment.cache.Invalidate(*node);
  Restart();
  return absl::AbortedError("the way down was out of date");
}

bool Descent::MayMoveRight(int moves) const {
  return moves <= kMovesRightMax || (parent_is_fresh_ && restarts_ > 0);
}

void Descent::Restart() {
  context_.session.counters().stale_retries.Add();
  have_place_ = false;
  ++restarts_;
  if (!RuleHolds(Rule::kV3)) return;  // the variant goes the same way again
  if (!parent_.is_null()) ForgetParent();
  if (restarts_ > 1 || parent_.is_null()) reread_root_ = true;
}

void Descent::ForgetParent() {
  if (parent_.is_null()) {
    tree_.root.Store({});
  } else {
    tree_.environment.cache.InvalidateIfLeads(parent_, search_key_, child_);
  }
}

void Descent::Report(NodeVerdict verdict, const Reference& right) {
  if (verdict == NodeVerdict::kMovedRight && !right.is_null() && MayMoveRight(++moves_)) {
    context_.session.counters().moves_right.Add();
    // Either the cached parent is out of date, or the separator is missing there: look afresh next
    // time, unless this very client is about to bring both up to date.
    if (!parent_is_fresh_ && !parent_.is_null() &&
        !tree_.IsInsertingSeparatorOf(right, static_cast<uint8_t>(level_ + 1))) {
      ForgetParent();
    }
    node_ = right;
    moved_right_ = true;
    return;
  }
  Restart();
}

void Descent::Accepted(std::string_view low_fence) {
  if (!moved_right_) return;
  if (parent_is_fresh_) {
    context_.missing = {static_cast<uint8_t>(level_ + 1), std::string(low_fence), node_};
  } else if (parent_.is_null()) {
    ForgetParent();
  }
}

}  // namespace pando
