// Runs one TreeCase on a fabric that exists, by threads, in time: with pando-ycsb beside this
// program.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "bench/figures/case.h"
#include "bench/figures/snapshot.h"

namespace pando::bench {

struct RealFabric {
  std::string name;  // "shm" or "verbs"; "": the simulator
  std::string device, secret_file;
  double seconds = 2;  // measured of each case
};

// Whether the figure can be made so: the others need what only the simulator tells or has.
bool RunsForReal(const std::string& figure);

// Of `tree_case.span` and `cache_share` nothing is used. An error ends with what pando-ycsb has
// said.
absl::StatusOr<CaseResult> RunRealCase(const TreeCase& tree_case, const SnapshotOptions& tree,
                                       const RealFabric& fabric);

}  // namespace pando::bench
