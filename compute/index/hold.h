// What a client that died left in a node, and how the next holder of the node's lock makes it sound
// (rules V4, C4, M7). Every holder looks at a node through InspectUnderLock() before it uses it.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/wire/node_image.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"
#include "compute/lock/hocl.h"

namespace pando {

// What a held node turned out to be.
struct HeldVerdict {
  NodeVerdict verdict = NodeVerdict::kStale;
  LeafMatch match;  // of an accepted leaf: where the key is
  // The lock had to be given up: another node had to be looked after first. Find the place again.
  bool released = false;
};

// `image` was read under `lock`, which guards a node that should be `expectation`. Repairs a torn
// node, finishes or undoes a merge that its merger did not; then says what the node is. kAccepted:
// it is sound, unmarked and covers the key. The lock is held unless `released`; on an error it is
// not.
absl::StatusOr<HeldVerdict> InspectUnderLock(OperationContext& context, TreeContext& tree,
                                             HeldLock* lock, const NodeExpectation& expectation,
                                             LocalBuffer image);

// For readers of a node that stays torn (rule V4): takes its lock and inspects the node, if no
// living client holds the lock. False: under its lock it is not the node meant, which may stay torn
// for good (it is being formatted, or serves something else now): the way there is out of date.
// True: read it again; also if there was nothing to do. Not under a node lock.
absl::StatusOr<bool> RepairIfAbandoned(OperationContext& context, TreeContext& tree,
                                       const Reference& node, uint8_t level, std::string_view key,
                                       LocalBuffer image);

// For readers whose READs take too long to be trusted (rule F2), one after the other: reads the
// node under its lock, where no client writes. kTorn: a dead client left it so. Not under a node
// lock.
absl::StatusOr<NodeVerdict> ReadUnderLock(OperationContext& context, TreeContext& tree,
                                          const Reference& node, const NodeExpectation& expectation,
                                          LocalBuffer image, LeafMatch* match);

// DataLoss: what cannot be repaired.
absl::Status StaysTorn(const Reference& node);

// Takes the node's lock and inspects it. For callers that found it unsound when they could not
// wait.
absl::Status LockAndRepair(OperationContext& context, TreeContext& tree, const Reference& node,
                           uint8_t level, std::string_view key);

// Rule C4 for a bulk load: its loader died between marking the empty root as dead and swinging the
// record, so the root that the record names is made live again. For descents that find no way.
absl::Status ReviveRoot(OperationContext& context, TreeContext& tree);

// repair.cpp. Rule C4, under the node's lock; `image`: torn, as read. True: it was rewritten in
// place and in remote memory. False: it is not the holder's to repair (rule V4). Aborted: somebody
// is writing another node that the repair needs, or that is `*unknown` (else null) and lies on a
// memory server that is to be waited for under no lock; nothing was written, so give the lock up
// and try again. DataLoss: lines are damaged, not just of different writes.
absl::StatusOr<bool> RepairNode(OperationContext& context, TreeContext& tree,
                                const NodeExpectation& expectation, const HeldLock& lock,
                                LocalBuffer image, Reference* unknown);

// Rule M8: so many right siblings may be merged into a leaf at once.
inline constexpr size_t kAbsorbedMax = 12;

// redo.cpp. Rule M7 for the holder of a node whose `peer` it absorbs, and those behind it: marks
// them dead, clears the marker, frees them. False: some lock is taken, or `*unknown` (else null)
// lies on a memory server that is to be waited for under no lock; nothing happened.
absl::StatusOr<bool> FinishAbsorbing(OperationContext& context, TreeContext& tree,
                                     const HeldLock& lock, uint8_t level, LocalBuffer image,
                                     Reference* unknown);
// redo.cpp. Rule M7 for a node that was met as merging, with no lock held: the merge is finished if
// its commit was written, else undone. `low`: the node's low fence; empty: the root that was being
// shrunk away.
absl::Status ResolveMerging(OperationContext& context, TreeContext& tree, const Reference& node,
                            uint8_t level, std::string_view low);

// WRITEs line 0 of a held node with this state and peer, at entry level (rules M2, M5, M6), and
// waits for it.
absl::Status WriteMarker(OperationContext& context, TreeContext& tree, RemoteAddress node,
                         LocalBuffer image, NodeState state, const Reference& peer);

}  // namespace pando
