// Reading a redo log that another member has written, or an earlier life of this one (rule D3).
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/wire/log_extent.h"
#include "common/wire/log_format.h"
#include "common/wire/lsn.h"
#include "compute/core/session_context.h"

namespace pando {

// The messages [base, end) that the log has.
struct LogSpan {
  Lsn base = kNoLsn;
  Lsn end = kNoLsn;
};

// Gives `take` each message from the base on, in order, as far as place, checksums and epoch hold:
// all that was ever acknowledged, and maybe more. Its writer must be fenced before (rule D2). The
// message is valid during the call; an error that `take` returns ends the reading and is returned.
// Some messages may have been given where this fails. DataLoss: there is no base line, or a batch
// is malformed although its checksum holds; a client that writes arbitrary memory can cause that.
// Unavailable: the server is gone, or another life of it is there. One coroutine; constant memory.
absl::StatusOr<LogSpan> ReadLog(OperationContext& context, const LogExtent& extent, uint64_t log_id,
                                uint32_t epoch,
                                absl::FunctionRef<absl::Status(Lsn, const LogMessage&)> take);

}  // namespace pando
