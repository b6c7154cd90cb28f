// The client's half of the handshake: connect, say hello, prove knowledge of the secret, learn
// where the server's memory is. And calls that need no more than a handshake.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/fabric/verbs/verbs_client.h"
#include "common/fabric/verbs/verbs_fabric.h"

namespace pando {

// Statuses as ConnectVerbs(). Blocks for at most options.connect_timeout_ms.
absl::StatusOr<std::unique_ptr<VerbsLink>> ShakeVerbsHands(const ServerLocation& location,
                                                           const VerbsFabricOptions& options);

// One call over a connection of its own. Blocks for a second at most. Statuses as above.
absl::StatusOr<std::string> CallVerbsServer(const ServerLocation& location,
                                            const VerbsFabricOptions& options,
                                            std::string_view request);

}  // namespace pando
