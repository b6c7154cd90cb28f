// A scenario for rule R6: a spare node whose grantee has a chain in flight. Two memory servers.
//
//   1. Client A puts a key into a full leaf; the spare node S of its split lies on the other
//      server, and so does the one for the new root. The queue pair breaks under S1: the put is
//      refused, without effect. Or under the WRITE of the root: a separator is missing, which is
//      legal.
//   2. A closes the tree, its session stays open. Client C's splits ask that server for nodes.
//   3. What had left A lands.
//
// If C is handed S, what A wrote destroys what C has linked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/sim/sim_run.h"
#include "common/base/clock.h"

namespace pando {

// From S1 to the end of the put.
inline constexpr int64_t kLateSpareNs = 60 * kMicrosecondNs;

struct LateSpare {
  uint64_t seed = 1;
  // From the break to where the put would have ended without.
  int64_t break_before_end_ns = 0;
  int64_t late_ns = 400 * kMicrosecondNs;  // packets are up to so late
};

struct LateSpareResult {
  std::vector<std::string> problems;  // empty: nothing was lost, and nothing refused is there
  bool refused = false;               // the put, without effect
  bool acknowledged = false;
  bool late = false;  // something landed after A had seen the queue pair break
};

LateSpareResult PlayLateSpare(const LateSpare& options);

// Breaks at every fifth of a microsecond from there to the end, packets up to 5 ms late, as one
// run.
SimRunResult RunLateSpare(uint64_t seed);

}  // namespace pando
