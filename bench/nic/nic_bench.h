// The microbenchmarks that define a NIC's profile, on the timing model: rates and latencies of bare
// verbs.
//
// One compute server with some threads, each with a queue pair of its own to one memory server,
// works in a closed loop: a thread posts a batch of chains and waits for all of them, or keeps a
// window of them full (NicProfile::Published). Virtual time; the same load gives the same numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/fabric/nic/nic_profile.h"

namespace pando::bench {

struct NicResult {
  double mops = 0;     // verbs a microsecond
  double mean_us = 0;  // from a batch's first doorbell to its last completion; window: of a chain
  uint64_t verbs = 0;  // simulated, with the warm-up
  uint64_t doorbells = 0;
};

// Runs the load that a published measurement describes; its value does not matter.
NicResult RunNicBench(const NicProfile& profile, const NicProfile::Published& load);

// What is published has the unit of the load.
inline double ValueOf(const NicResult& result, const NicProfile::Published& load) {
  return load.unit == "us" ? result.mean_us : result.mops;
}

// "24 x 8 WRITE 8 B".
std::string DescribeLoad(const NicProfile::Published& load);

// A profile that comes with Pando by its name, or a file. As NicProfile::Load().
absl::StatusOr<NicProfile> LoadNicProfile(std::string_view name);

}  // namespace pando::bench
