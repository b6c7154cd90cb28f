// What a range of seeds has exercised: a workload that never splits or never retries proves little.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/sim/sim_run.h"
#include "pando/stats.h"

namespace pando {

// Sums counters of several clients or runs.
void AddStats(const ClientStats& from, ClientStats* to);

class Coverage {
 public:
  void Add(const SimRunResult& result);

  // Name and total of each counter, in order of interest; of waits the longest.
  std::vector<std::pair<std::string, uint64_t>> Counters() const;
  std::string Describe() const;

 private:
  uint64_t runs_ = 0, operations_ = 0, three_levels_ = 0, missing_separators_ = 0, reconnects_ = 0;
  uint64_t refused_ = 0, unknown_ = 0;
  int64_t longest_wait_ns_ = 0;  // SimRunResult
  ClientStats stats_;
  SweepResult swept_;
  SimRunResult done_;  // its counters
  sim::SimStats sim_;
};

}  // namespace pando
