// The operations of the tree (design: one job a file). All run inside a coroutine of the context's
// session; keys and values have been validated.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/core/session_context.h"
#include "compute/index/key_range.h"
#include "compute/index/tree_context.h"
#include "compute/index/write_operation.h"
#include "pando/client.h"
#include "pando/size.h"

namespace pando {

// get.cpp. NotFound.
absl::Status GetKey(OperationContext& context, TreeContext& tree, std::string_view key,
                    std::string* value);
// The same; a chain of READs goes along with the first READ of a leaf, in its round trip, and is
// done when that is. Where no leaf was READ it is not.
absl::Status GetKeyWith(OperationContext& context, TreeContext& tree, std::string_view key,
                        std::string* value, Chain* along);

// write.cpp: put, insert (AlreadyExists), update and erase (NotFound), replace, erase if and upsert
// (IsConditionFailed). `answer` (may be null) gets the present value where a condition failed, and
// an upsert's new one.
absl::Status WriteKey(OperationContext& context, TreeContext& tree, const WriteOperation& operation,
                      std::string* answer);

// scan.cpp (rules R2, R9): up to `limit` entries of the range, from its other end if `reverse`;
// `leaves_max` READ at once, 0: as many as is usual.
absl::Status ScanKeys(OperationContext& context, TreeContext& tree, const KeyRange& range,
                      bool reverse, size_t limit, size_t leaves_max, std::vector<KeyValue>* rows);
// How many leaves to READ for so many entries, by what leaves have been found to have.
size_t LeavesFor(const TreeContext& tree, size_t entries);

// estimate.cpp. InvalidArgument: too few READs.
absl::StatusOr<SizeEstimate> EstimateTreeSize(OperationContext& context, TreeContext& tree,
                                              int reads_max);

// separator.cpp (rule S3): makes the children known to their parent level, which is the same for
// all, growing the root where needed; those of one parent in one write. In any order. OK when there
// is nothing (more) to do. A missing separator is always legal, so errors cost only speed;
// `missing` is left with those that somebody has yet to look at: none, it may be.
absl::Status InsertSeparators(OperationContext& context, TreeContext& tree,
                              std::vector<MissingSeparator>* missing);
inline absl::Status InsertSeparator(OperationContext& context, TreeContext& tree,
                                    MissingSeparator missing) {
  std::vector<MissingSeparator> one = {std::move(missing)};
  return InsertSeparators(context, tree, &one);
}

// grow_root.cpp (rule R1): puts a root over the present one, whose level is the one below
// missing.parent_level. OK also when somebody else has, when nothing is to be done any more
// (`over`), or when a memory server had to be waited for, under no lock: then look again.
absl::Status GrowRoot(OperationContext& context, TreeContext& tree, const MissingSeparator& missing,
                      bool* over);

// merge.cpp (rules M1 to M6): merges the level's node that covers `key` with a neighbour if it is
// underfull and both fit, then looks at levels above, and at children, down to that level, that are
// neighbours from now on. Best effort: OK also where nothing fits. Aborted: locks were in use; then
// and where the deadline has passed the context notes a leaf as underfull again.
absl::Status MergeUnderfull(OperationContext& context, TreeContext& tree, uint8_t level,
                            std::string_view key);

// shrink_root.cpp (rule R1): if the root is of `level` and has a single child, the child becomes
// the root, and so on down.
absl::Status ShrinkRoot(OperationContext& context, TreeContext& tree, uint8_t level);

// sweep.cpp (rule C5): what the dead left of this tree, on all memory servers. An error: some
// servers were not swept to the end; sweep again. Not `thorough`: a session does it by itself, and
// an operation waits for it; each server gets a part of the time, and where it has stopped there
// the next one goes on.
absl::Status SweepTree(OperationContext& context, TreeContext& tree, bool thorough,
                       SweepResult* result);
// Of a sweep of nodes, or of cells, that begins now.
constexpr int64_t kOwnSweepNsMax = kSecondNs / 2;  // that is not thorough
int64_t SweepDeadlineNs(OperationContext& context, bool thorough);
// Tells memory servers what this client knows; one that is silent leaves half of the time.
void FlushBeforeSweep(OperationContext& context, const TreeContext& tree, int64_t until_ns);

// bulk_load.cpp (rule R4). `next` gives an entry, or says that there are no more; where it fails
// nothing is loaded, and its error is the result. It may suspend. After any error but an unknown
// outcome nothing refers to what was loaded, and nothing will.
using NextEntry = absl::FunctionRef<absl::StatusOr<bool>(KeyValue*)>;
absl::Status BulkLoadTree(OperationContext& context, TreeContext& tree, NextEntry next);

}  // namespace pando
