// Writes to many keys: those of one leaf as one change (rule U6).
//
// Not thread-safe. Inside a coroutine of the context's session; keys and values have been
// validated.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "compute/cache/cached_node.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"
#include "compute/index/write_operation.h"

namespace pando {

// Executes operations of one leaf as one change: those at the head of `writes` (at least one;
// sorted by key, those of one key in the caller's order) that the leaf covers which covers the
// first one. Splits it into as many as they need. Each has a result of its own, as WriteKey() says
// it. Returns how many have their results now: 1.. . What stands in the way of all of them (the
// lock, the deadline, a server that is gone) is the result of the first one alone, where nothing
// was begun, and of all that were begun, where their write-back failed: their outcome is unknown
// then. What the context notices on the way (a missing separator, an underfull leaf) is one of
// each: see to it between two runs.
//
// `later`, where given, gets the separators of a split, for InsertSeparators(): the separators of
// many leaves go into their parents together, and no leaf's lock is held meanwhile.
size_t WriteRun(OperationContext& context, TreeContext& tree, absl::Span<const RunWrite> writes,
                std::vector<MissingSeparator>* later = nullptr);

// The cached level-1 node that covers the key, or null. Under a guard.
const CachedNode* FindParentOfLeaf(const TreeContext& tree, const SearchKey& key);
// The low fence of the leaf behind the one that covers `key`, as far as is known here; "": that
// leaf is the tree's last one. Nothing: no parent is cached; the first run there changes that. No
// network. For sharing operations out among coroutines: it may be out of date.
std::optional<std::string> NextBorder(OperationContext& context, const TreeContext& tree,
                                      std::string_view key);
// The same of the level-1 node that covers the key: the low fence of the one behind it.
std::optional<std::string> NextGroup(OperationContext& context, const TreeContext& tree,
                                     std::string_view key);
// Finds the leaf that covers `key`, READing and caching what these want. No lock.
absl::Status LeadTo(OperationContext& context, TreeContext& tree, std::string_view key);

}  // namespace pando
