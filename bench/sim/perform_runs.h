// Writes of a history in runs (compute/index/write_run.h).
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "bench/history/history.h"
#include "pando/client.h"

namespace pando {

// Executes writes, sorted by key, those of one key in their order, run by run. Inside a task of the
// session. Fills in what was read, and calls `ended` for each operation once its run is over; no
// more runs where that says false.
void PerformRuns(Session& session, const Tree& tree, std::vector<history::Operation*> operations,
                 absl::FunctionRef<bool(history::Operation*, const absl::Status&)> ended);

}  // namespace pando
