#include "bench/figures/lock_run.h"

#include <ctime>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/cost/sim_cluster.h"
#include "bench/figures/snapshot.h"
#include "bench/locks/lock_bench.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

constexpr uint64_t kLockRegionBytes = 64 << 20;

LockBenchOptions BenchOptions(const LockCase& lock_case) {
  LockBenchOptions options;
  options.memory_servers = {1};
  options.compute_servers = lock_case.compute_servers;
  options.threads = lock_case.threads;
  options.coroutines = lock_case.coroutines;
  options.locks = lock_case.locks;
  options.distribution = lock_case.distribution;
  options.operations = lock_case.operations;
  options.handover_max = lock_case.system.handover_max;
  options.timeout_ms = 60'000;
  options.seed = lock_case.seed;
  return options;
}

}  // namespace

absl::StatusOr<CaseResult> RunLockCase(const LockCase& lock_case,
                                       const std::shared_ptr<const NicProfile>& nic) {
  SimCluster cluster({.sim = WorldOptions(lock_case.seed, nic),
                      .memory_servers = 1,
                      .main_bytes = kLockRegionBytes});
  sim::SimWorld& world = cluster.world();
  world.SetLocksOnChip(lock_case.system.techniques.on_chip_locks);
  LockBenchHost host;
  int connected = 0;
  host.connect = [&](const ClientOptions& client) -> absl::StatusOr<std::unique_ptr<Client>> {
    return NewComputeServer(client, connected++, &cluster);
  };
  CaseResult result;
  host.step = [&](const std::function<bool()>& done) {
    const std::clock_t cpu_start = std::clock();
    while (!done() && world.Step()) {
    }
    result.cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  };
  PANDO_ASSIGN_OR_RETURN(LockBenchResult locks,
                         RunLockBench(BenchOptions(lock_case), lock_case.system.techniques, host));
  if (locks.violations > 0) {
    return absl::InternalError(absl::StrCat(locks.violations, " locks were held twice"));
  }
  result.operations = locks.operations;
  result.span_ns = static_cast<int64_t>(locks.seconds * kSecondNs);
  result.errors = locks.errors;
  result.first_error = locks.first_error;
  result.latency_ns = std::move(locks.latency_ns);
  result.write_trips = std::move(locks.round_trips);
  result.fabric = locks.fabric;
  result.tree.lock_attempts = locks.attempts;
  result.tree.lock_failures = locks.failures;
  result.tree.handovers = locks.handovers;
  result.events = world.stats().events;
  result.verbs = world.stats().verbs;
  result.doorbells = world.stats().doorbells;
  return result;
}

}  // namespace pando::bench
