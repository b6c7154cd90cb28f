// The result of pando-ycsb for people (a table) and for programs (JSON).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/ycsb/coordinator.h"
#include "bench/ycsb/plan.h"

namespace pando::bench {

// {"config":..., "load":..., "run":..., "repeat":...}. `run` is the repetition with the median
// throughput, whole; nothing is averaged over repetitions. Without `run` and `repeat` where nothing
// was run.
nlohmann::json ResultJson(const Plan& plan, const YcsbResult& result);

// {"format":1, "config":..., "load":..., "run":...}: the same repetition with its whole histograms
// (bench/README.md has the fields), for merging over hosts. No `run` where nothing was run.
nlohmann::json HistogramJson(const Plan& plan, const YcsbResult& result);

// Two lines about the plan: what heads the table.
std::string ResultHeader(const Plan& plan);
std::string ResultTable(const Plan& plan, const YcsbResult& result);

// The repetition with the median throughput (the lower one of two). At least one run.
const PhaseStats& MedianRun(const YcsbResult& result);

}  // namespace pando::bench
