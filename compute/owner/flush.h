// Brings the records of an owned range to their leaves, many to a leaf at once (rules B1, B3): the
// way of a Bε-tree's messages from the root's buffer to the leaves.
//
// Not thread-safe: in coroutines of one session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "compute/core/session_context.h"
#include "compute/hot/partition.h"
#include "compute/index/tree_context.h"

namespace pando {

struct FlushCounts {
  uint64_t messages = 0;  // that are in their leaves now
  uint64_t leaves = 0;    // that were written for them; one that was split counts once
  uint64_t refused = 0;   // that memory servers had no room for, or whose leaf's is gone
  uint64_t gone = 0;      // of these, the latter
  uint64_t failed = 0;    // of unknown outcome, or not begun: they stay dirty
};

// Whether a memory server is gone that an operation needed, as far as this client knows: it had no
// effect there.
bool IsServerGone(const absl::Status& status);
// What is said of records that such a server has the leaves of.
absl::Status LeavesGoneError();

// Writes `items`, ascending, into their leaves: puts and erases, those of a leaf as one change,
// several leaves in flight. `ended(i, result)` for each: kDone means that items[i] is in its leaf
// for certain; it suspends nowhere. The first error of those that are not, ResourceExhausted last.
absl::Status FlushToLeaves(SessionContext* session, TreeContext* leaves, int64_t deadline_ns,
                           const std::vector<FlushItem>& items, FlushCounts* counts,
                           absl::FunctionRef<void(size_t, FlushResult)> ended);

}  // namespace pando
