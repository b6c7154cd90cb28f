// Leaves whose keys are all erased are merged into their left neighbour, several at once (rule M8).
//
// Not thread-safe. Inside a coroutine of the context's session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/core/session_context.h"
#include "compute/index/key_range.h"
#include "compute/index/tree_context.h"

namespace pando {

// What is known here, without network, of the leaf that covers a key and of those after it.
struct LeavesAfter {
  bool known = false;   // the parent is cached, or the leaf is the root
  Reference parent;     // null: it has none
  size_t siblings = 0;  // of the same parent, on either side
  size_t inside = 0;    // of them, directly after it, that end at or below the range's end
};
LeavesAfter FindLeavesAfter(OperationContext& context, const TreeContext& tree,
                            std::string_view key, const KeyCut& end);

struct Absorbed {
  size_t leaves = 0;     // that are gone; 0: nothing has happened
  bool is_busy = false;  // then: somebody has a lock, or a node had to be looked after
  uint64_t erased = 0;   // keys, of them and of the survivor
  KeyCut next;           // all keys of the range below are erased
  std::string low;       // the survivor's low fence
};
// Erases what the leaf that covers `key` has of `range`, and the leaves after it that lie in the
// range as a whole, or are empty and end in it or below, which go: up to kAbsorbedMax of one
// parent. Locks are held for that long, all but the parent's only tried. Unknown: some of the keys
// may be erased; call again. `keys`, where given, gets what was erased.
absl::StatusOr<Absorbed> AbsorbErased(OperationContext& context, TreeContext& tree,
                                      std::string_view key, const KeyRange& range,
                                      std::vector<std::string>* keys = nullptr);

}  // namespace pando
