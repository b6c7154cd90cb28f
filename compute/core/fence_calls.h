// The end of a life of a compute server, and its right to serve keys of owned trees, asked of
// memory servers (rules D2, O5): what they say is checked here.
//
// Thread safety: as of ControlChannel; inside a coroutine of the context's session.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/wire/owner_messages.h"
#include "compute/core/control_channel.h"
#include "compute/core/session_context.h"

namespace pando {

// Tells one server that this life has ended, and asks whether it has there; what the server cannot
// know of, it remembers all the same: that life is never introduced there. Repeating it is
// harmless. InvalidArgument: it is one's own, or nobody's.
absl::StatusOr<FenceReply> Fence(OperationContext& context, ControlChannel& control,
                                 ServerId server, uint16_t compute_server, uint32_t incarnation);

// The same, until it is confirmed. DeadlineExceeded: it is not, yet, or the server has said nothing
// for `answer_ns`; Unavailable: the server is gone.
absl::Status AwaitFence(OperationContext& context, ControlChannel& control, ServerId server,
                        uint16_t compute_server, uint32_t incarnation,
                        int64_t answer_ns = kNeverNs);

// Asks the catalog's server for a serving lease, or for more of it, and returns how long it is.
// It counts from when this was called, in the caller's time, and a caller counts less of it (rule
// O5); 0: it has no end but that of this process. Who is not answered has only what he had.
// FailedPrecondition: he is fenced, or there are no owned trees.
absl::StatusOr<int64_t> RenewServingLease(OperationContext& context, ControlChannel& control,
                                          ServerId catalog_server);

}  // namespace pando
