// A lock benchmark in the manner of the Sherman paper (SIGMOD'22, whose section 4.3 has the
// techniques): sessions of several compute servers take and release locks at random, and do nothing
// under them.
//
// Each acquisition reads one line with the lock, as a tree reads the node; a release writes nothing
// but the word. Every run also checks that no lock is ever held twice; on the simulated fabric that
// shows only where `held_ns` lets others run meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/workload/distribution.h"
#include "common/base/histogram.h"
#include "pando/client.h"
#include "pando/options.h"
#include "pando/stats.h"

namespace pando::bench {

struct LockBenchOptions {
  std::vector<uint16_t> memory_servers;  // ids; the locks are spread over them
  int compute_servers = 2;
  int threads = 2;
  int coroutines = 4;
  uint64_t locks = 10'240;  // over all memory servers
  DistributionOptions distribution = {.name = "zipfian", .theta = 0.99};
  uint64_t operations = 200'000;  // all sessions together
  int handover_max = 32;
  int64_t timeout_ms = 10'000;
  int64_t held_ns = 0;  // how long a lock is held before its release begins
  uint64_t seed = 1;

  int sessions() const { return compute_servers * threads; }
};

struct LockBenchResult {
  uint64_t operations = 0;
  double seconds = 0;
  Histogram latency_ns;   // from the call to the end of the release
  Histogram round_trips;  // of acquisition and release together
  uint64_t errors = 0;
  uint64_t violations = 0;  // a lock held twice: must be 0
  std::string first_error;
  FabricStats fabric;
  uint64_t attempts = 0, failures = 0, handovers = 0;

  double throughput() const { return seconds == 0 ? 0 : static_cast<double>(operations) / seconds; }
};

// One rung of the ladder: the techniques up to and including this one.
struct LockTechnique {
  const char* name;
  Techniques techniques;
};
// Global words alone, then local tables, wait queue and handover. (What lies on the NIC is the
// fabric's affair.)
std::array<LockTechnique, 4> LockLadder();

// How compute servers come to be, and how their sessions get time: the fabric decides.
struct LockBenchHost {
  std::function<absl::StatusOr<std::unique_ptr<Client>>(const ClientOptions&)> connect;
  // Runs all jobs, each of which drives one session, to their end: on threads of their own, or one
  // after the other where driving one drives them all.
  std::function<void(std::vector<std::function<void()>>)> run;
  // Instead, on a simulated fabric with a timing model: lets the world go on until `done`. Sessions
  // are its events then, so that their CPU time counts, and take operations from a common store, so
  // that all end at about the same time.
  std::function<void(const std::function<bool()>& done)> step;
};

// InvalidArgument: more locks than there are words, or none.
absl::StatusOr<LockBenchResult> RunLockBench(const LockBenchOptions& options,
                                             const Techniques& techniques,
                                             const LockBenchHost& host);

}  // namespace pando::bench
