#include "compute/index/write_run.h"

#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/node_image.h"
#include "compute/index/descend.h"
#include "compute/index/held_node.h"
#include "compute/index/leaf_write.h"
#include "compute/index/operations.h"

namespace pando {
namespace {

// How many were executed, with their results.
absl::StatusOr<size_t> TryRun(OperationContext& context, TreeContext& tree,
                              absl::Span<const RunWrite> writes,
                              std::vector<MissingSeparator>* later) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  Descent descent(context, tree, writes.front().operation->key, 0);
  HeldNode leaf(context, tree, image.buffer(), Rule::kU1);
  while (true) {
    PANDO_ASSIGN_OR_RETURN(const HeldNode::Attempt attempt, leaf.Hold(descent));
    if (attempt != HeldNode::Attempt::kHeld) continue;
    FenceScratch scratch;
    if (descent.moved_right()) descent.Accepted(LowFence(image.data(), tree.layout, &scratch));
    LeafWrite write(context, tree, image.buffer(), later);
    const size_t done = write.Execute(leaf.TakeLock(), writes, leaf.match().slot);
    const bool again = !RuleHolds(Rule::kU5) && IsOutcomeUnknown(*writes.front().result);
    if (again && !context.expired()) continue;
    if (done > 0) return done;
    PANDO_RETURN_IF_ERROR(tree.Refill(context, descent.node().address.server()));
  }
}

}  // namespace

size_t WriteRun(OperationContext& context, TreeContext& tree, absl::Span<const RunWrite> writes,
                std::vector<MissingSeparator>* later) {
  PANDO_DCHECK(!writes.empty());
  const RunWrite& first = writes.front();
  if (writes.size() == 1) {  // may wait as a request
    *first.result = WriteKey(context, tree, *first.operation, first.answer);
    return 1;
  }
  const absl::StatusOr<size_t> done = TryRun(context, tree, writes, later);
  if (done.ok()) return *done;
  *first.result = done.status();
  return 1;
}

const CachedNode* FindParentOfLeaf(const TreeContext& tree, const SearchKey& key) {
  const IndexCache& cache = tree.environment.cache;
  if (const CachedNode* const parent = cache.FindParent(*tree.parents, key)) return parent;
  Reference node;
  for (int level = tree.root.Load(&node); level > 0; --level) {
    const CachedNode* const cached = cache.Find(node);
    if (cached == nullptr || cached->level() != level || !cached->Covers(key)) return nullptr;
    if (level == 1) return cached;
    node = cached->Child(cached->ChildIndex(key));
  }
  return nullptr;
}

std::optional<std::string> NextBorder(OperationContext& context, const TreeContext& tree,
                                      std::string_view key) {
  const EpochDomain::Guard guard(tree.environment.cache.epochs(), context.session.epoch_slot());
  const SearchKey search_key(key);
  const CachedNode* const parent = FindParentOfLeaf(tree, search_key);
  if (parent == nullptr) {
    Reference root;
    if (tree.root.Load(&root) == 0) return "";  // the only leaf
    return std::nullopt;
  }
  const uint32_t next = parent->ChildIndex(search_key) + 1;
  if (next == parent->child_count()) return std::string(parent->high());
  return parent->ChildLow(next);
}

std::optional<std::string> NextGroup(OperationContext& context, const TreeContext& tree,
                                     std::string_view key) {
  const EpochDomain::Guard guard(tree.environment.cache.epochs(), context.session.epoch_slot());
  const CachedNode* const parent = FindParentOfLeaf(tree, SearchKey(key));
  if (parent != nullptr) return std::string(parent->high());
  Reference root;
  if (tree.root.Load(&root) == 0) return "";
  return std::nullopt;
}

absl::Status LeadTo(OperationContext& context, TreeContext& tree, std::string_view key) {
  return Descent(context, tree, key, 0).Find();
}

}  // namespace pando
