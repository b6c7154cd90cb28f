// The client's half of the handshake: connect, say hello, prove knowledge of the secret, learn
// where the server's memory is.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/fabric/verbs/verbs_client.h"
#include "common/fabric/verbs/verbs_fabric.h"

namespace pando {

// Statuses as ConnectVerbs(). Blocks for at most options.connect_timeout_ms.
absl::StatusOr<std::unique_ptr<VerbsLink>> ShakeVerbsHands(const ServerLocation& location,
                                                           const VerbsFabricOptions& options);

}  // namespace pando
