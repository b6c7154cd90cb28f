// Checks an open tree over the fabric: tree_check.h with READs, and the locks of its nodes.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compute/core/control_channel.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"
#include "pando/check.h"

namespace pando {

// The memory servers, to be asked about their nodes.
struct CheckServers {
  ControlChannel& channel;
  std::vector<ServerId> ids;
};

// Unavailable, DeadlineExceeded: it could not be checked.
absl::StatusOr<CheckReport> CheckOpenTree(OperationContext& context, TreeContext& tree,
                                          const CheckServers& servers, const CheckOptions& options);

}  // namespace pando
