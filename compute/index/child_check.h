// Rule S3's question about the child, asked while the parent (or the root record) is locked.
#pragma once

#include "absl/status/statusor.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"

namespace pando {

// True if the child is live, of the life meant, and starts at the separator. False also if it is
// torn or being merged: the next session that misses the separator asks again. Aborted: as of
// TryReadNode().
absl::StatusOr<bool> ChildWantsSeparator(OperationContext& context, const TreeContext& tree,
                                         const MissingSeparator& missing, Reference* unknown);

}  // namespace pando
