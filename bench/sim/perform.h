// Executing an operation of a history with the production client.
#pragma once

#include "absl/status/status.h"
#include "bench/history/history.h"
#include "pando/client.h"

namespace pando {

// Inside a task of the session, or outside. Fills in what was read; times are the caller's.
absl::Status Perform(Session& session, const Tree& tree, history::Operation* operation);

// True: `status` is an outcome that the operation may have; `found` says which. Else it failed.
bool Conclude(const absl::Status& status, history::Operation* operation);

// Of an operation without an outcome: a read says nothing then.
void ForgetReads(history::Operation* operation);

}  // namespace pando
