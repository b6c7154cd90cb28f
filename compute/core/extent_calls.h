// Memory for redo logs (rule W1), asked of memory servers: what they say is checked here.
//
// Thread safety: as of ControlChannel; inside a coroutine of the context's session.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/wire/control.h"
#include "common/wire/log_extent.h"
#include "compute/core/control_channel.h"
#include "compute/core/session_context.h"

namespace pando {

// An extent, with whose it is.
struct HeldExtent {
  LogExtent extent;
  uint16_t compute_server = 0;
  uint32_t incarnation = 0;
  // Of the holder, at that server. kJoined: it lives, or something of it may still be in flight.
  ClientLiveness holder = ClientLiveness::kUnknown;
};

// At least `bytes`, all zero, this client's until a client frees it; waits, to the deadline, while
// memory rests or is zeroed. After DeadlineExceeded the client may have an extent of which it knows
// nothing: ListExtents() shows it. ResourceExhausted: says how much would fit.
absl::StatusOr<LogExtent> AllocateExtent(OperationContext& context, ControlChannel& control,
                                         ServerId server, uint64_t bytes);

// False: it is free already, or gone with an earlier life of the server. A client that frees its
// own says that nothing of it is in flight there. FailedPrecondition: it belongs to a client that
// has not ended there (AwaitFence()).
absl::StatusOr<bool> FreeExtent(OperationContext& context, ControlChannel& control,
                                const LogExtent& extent, uint32_t holder_incarnation);

// All that the server has, by offset. DataLoss: its list comes to no end, or makes no sense.
absl::StatusOr<std::vector<HeldExtent>> ListExtents(OperationContext& context,
                                                    ControlChannel& control, ServerId server);

}  // namespace pando
