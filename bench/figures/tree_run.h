// Runs one TreeCase on a loaded cluster, in virtual time.
#pragma once

#include "absl/status/statusor.h"
#include "bench/figures/case.h"
#include "bench/figures/snapshot.h"

namespace pando::bench {

// Connects the compute servers, fills their index caches, runs all coroutines for a warm-up and the
// measured span, and closes everything again. Changes the snapshot. InvalidArgument: options that
// the client library refuses; ResourceExhausted: full memory servers.
absl::StatusOr<CaseResult> RunTreeCase(const TreeCase& tree_case, Snapshot* snapshot);

}  // namespace pando::bench
