// Which failed chains can be recovered: their status is Unavailable, as they may still be in flight
// (rule L5), but the server is there, and the fabric is about to connect to it again; or it is
// DeadlineExceeded, as the fabric had not connected to it yet. The first chain to that server that
// succeeds afterwards says that nothing of the failed ones is in flight any more. Thread safety:
// pure functions.
#pragma once

#include "absl/status/status.h"

namespace pando {

absl::Status MarkRecoverable(absl::Status status);
bool IsRecoverable(const absl::Status& status);

}  // namespace pando
