// The picture of a run (--plot=DIR): throughput by seconds, latencies by kinds of operations.
// Python and its matplotlib draw it; nothing else of pando-ycsb needs them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "bench/ycsb/coordinator.h"
#include "bench/ycsb/plan.h"

namespace pando::bench {

// Before a run, which may take an hour: makes the folder where there is none, and looks whether a
// picture can be drawn. FailedPrecondition: python3 or python3-matplotlib is missing. Unavailable:
// the folder cannot be written to.
absl::Status PreparePlot(const std::string& folder);

// FOLDER/run.json, what is drawn, and FOLDER/run.png, of the repetition with the median throughput.
// At least one run. Blocks for some seconds.
absl::Status WritePlot(const std::string& folder, const Plan& plan, const YcsbResult& result);

}  // namespace pando::bench
