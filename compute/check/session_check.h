// Checks an open tree over the fabric: tree_check.h with READs, and the locks of its nodes.
#pragma once

#include "absl/status/statusor.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"
#include "pando/check.h"

namespace pando {

// Unavailable, DeadlineExceeded: it could not be checked.
absl::StatusOr<CheckReport> CheckOpenTree(OperationContext& context, TreeContext& tree,
                                          const CheckOptions& options);

}  // namespace pando
