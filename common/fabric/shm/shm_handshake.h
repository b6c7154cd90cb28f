// The client's half of the handshake: connect, say hello, get the memory.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/fabric/shm/shm_client.h"
#include "common/registry/server_location.h"

namespace pando {

// Statuses as ConnectShm(). Blocks for at most `timeout_ms`.
absl::StatusOr<std::unique_ptr<ShmLink>> ShakeHands(const ServerLocation& location,
                                                    int64_t timeout_ms);

}  // namespace pando
