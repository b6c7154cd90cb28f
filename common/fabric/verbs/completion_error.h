// What a failed work request means, in words: status of the provider, and a hint what to look at.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/fabric/chain.h"
#include "common/fabric/verbs/verbs_handles.h"
#include "common/registry/server_location.h"

namespace pando {

// "transport retry counter exceeded: the server, its port or the network between does not answer".
std::string DescribeCompletionStatus(ibv_wc_status status);

// Unavailable that names server, verb and reason.
absl::Status BrokenChainError(const ServerLocation& server, const Chain& chain, size_t verb,
                              const std::string& reason);

}  // namespace pando
