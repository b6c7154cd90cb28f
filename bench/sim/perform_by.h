// Operations of a history with deadlines of nanoseconds, where the public interface has
// milliseconds: in virtual time an operation takes microseconds.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "bench/history/history.h"
#include "pando/client.h"

namespace pando {

// As Perform() (bench/perform), of one key. Inside a task of the session.
absl::Status PerformBy(Session& session, const Tree& tree, int64_t timeout_ns,
                       history::Operation* operation);

}  // namespace pando
