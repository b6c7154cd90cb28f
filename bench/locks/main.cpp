// pando-locks: the lock benchmark, technique by technique.
#include <gflags/gflags.h>
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/cost/sim_cluster.h"
#include "bench/host/host_info.h"
#include "bench/host/memory_servers.h"
#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "bench/locks/lock_bench.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/program/command_line.h"
#include "common/wire/lock_word.h"

DEFINE_string(fabric, "shm", "shm: this machine's speed; sim: virtual time, the same every run");
DEFINE_int32(memory_servers, 1, "memory servers; the locks are spread over them");
DEFINE_int32(compute_servers, 2, "compute servers, each with local lock tables of its own");
DEFINE_int32(threads, 2, "threads a compute server, each with a session");
DEFINE_int32(coroutines, 4, "coroutines a thread");
DEFINE_uint64(locks, 10'240, "locks over all memory servers");
DEFINE_uint64(operations, 200'000, "acquisitions of all threads together");
DEFINE_string(distribution, "zipfian", "of the locks: uniform, zipfian, hotspot");
DEFINE_double(theta, 0.99, "of zipfian, between 0 and 1");
DEFINE_int32(handover_max, 32, "handovers in a row");
DEFINE_int64(timeout_ms, 10'000, "deadline of an acquisition");
DEFINE_uint64(seed, 1, "of everything that is drawn");
DEFINE_bool(ladder, true, "one technique after the other; else only what the flags below say");
DEFINE_bool(local_locks, true, "without --ladder: local lock tables before the global words");
DEFINE_bool(wait_queue, true, "without --ladder: local waiters are served in order");
DEFINE_bool(handover, true, "without --ladder: a held lock goes to the next local waiter");
DEFINE_string(json, "", "file for the result");

namespace pando::bench {
namespace {

const ProgramInfo kProgram = {
    .name = "pando-locks",
    .summary =
        "pando-locks --compute_servers=4 --threads=2 --locks=10240 --theta=0.99\n\n"
        "Takes and releases locks at random: what local tables, wait queue and handover do.",
    .source = __FILE__};

constexpr int kGraceMs = 5'000;

LockBenchOptions OptionsFromFlags() {
  const auto check = [](const char* flag, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return;
    ExitWithUsageError(kProgram,
                       absl::StrCat("--", flag, " is ", low, " to ", high, ", not ", value));
  };
  check("memory_servers", FLAGS_memory_servers, 1, 1024);
  check("compute_servers", FLAGS_compute_servers, 1, 1024);
  check("threads", FLAGS_threads, 1, 1024);
  check("coroutines", FLAGS_coroutines, 1, 1024);
  check("handover_max", FLAGS_handover_max, 1, 1 << 20);
  check("timeout_ms", FLAGS_timeout_ms, 1, 3'600'000);
  LockBenchOptions options;
  for (int i = 1; i <= FLAGS_memory_servers; ++i) {
    options.memory_servers.push_back(static_cast<uint16_t>(i));
  }
  options.compute_servers = FLAGS_compute_servers;
  options.threads = FLAGS_threads;
  options.coroutines = FLAGS_coroutines;
  options.locks = FLAGS_locks;
  options.distribution = {.name = FLAGS_distribution, .theta = FLAGS_theta};
  options.operations = FLAGS_operations;
  options.handover_max = FLAGS_handover_max;
  options.timeout_ms = FLAGS_timeout_ms;
  options.seed = FLAGS_seed;
  return options;
}

uint32_t LockWords() {
  const uint64_t needed = FLAGS_locks / static_cast<uint64_t>(FLAGS_memory_servers) + 1;
  return static_cast<uint32_t>(std::min<uint64_t>(kRootLockWords + needed + 256, 1 << 30));
}

absl::StatusOr<LockBenchResult> RunOnSim(const LockBenchOptions& options,
                                         const Techniques& techniques) {
  SimCluster cluster({.sim = {.seed = options.seed},
                      .memory_servers = FLAGS_memory_servers,
                      .lock_words = LockWords()});
  return RunLockBench(
      options, techniques,
      {.connect = [&cluster](const ClientOptions& client)
           -> absl::StatusOr<std::unique_ptr<Client>> { return cluster.NewClient(client); },
       .run =
           [](const std::vector<std::function<void()>>& jobs) {
             for (const auto& job : jobs) job();  // driving one drives the world
           }});
}

absl::StatusOr<LockBenchResult> RunOnShm(const LockBenchOptions& options,
                                         const Techniques& techniques) {
  PANDO_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Create());
  const std::string registry = folder.path() / "registry";
  std::vector<Process> servers;
  for (const uint16_t id : options.memory_servers) {
    PANDO_ASSIGN_OR_RETURN(
        Process server,
        Process::Spawn(
            {.arguments = {ProgramFolder() / "pando-memory", absl::StrCat("--registry=", registry),
                           absl::StrCat("--server_id=", id), "--memory=64M",
                           absl::StrCat("--locks=", LockWords()), "--exit_with_parent"},
             .log_file = folder.path() / absl::StrCat("memory-", id, ".log"),
             .death_signal = SIGTERM}));
    servers.push_back(std::move(server));
  }
  PANDO_RETURN_IF_ERROR(AwaitMemoryServers(&servers, registry, /*stop_fd=*/-1));
  const auto connect = [&](ClientOptions client) {
    client.registry = registry;
    client.memory_servers_min = FLAGS_memory_servers;
    client.connect_timeout_ms = 20'000;
    return Client::Connect(client);
  };
  const auto run = [](const std::vector<std::function<void()>>& jobs) {
    std::vector<std::thread> threads;
    for (const auto& job : jobs) threads.emplace_back(job);
    for (std::thread& thread : threads) thread.join();
  };
  absl::StatusOr<LockBenchResult> result =
      RunLockBench(options, techniques, {.connect = connect, .run = run});
  Stop(&servers, kGraceMs);
  return result;
}

nlohmann::json ResultJson(const LockTechnique& rung, const LockBenchResult& result) {
  const auto us = [&result](double percent) {
    return static_cast<double>(result.latency_ns.Percentile(percent)) / kMicrosecondNs;
  };
  return {{"name", rung.name},
          {"techniques",
           {{"local_locks", rung.techniques.local_locks},
            {"wait_queue", rung.techniques.wait_queue},
            {"handover", rung.techniques.handover}}},
          {"seconds", result.seconds},
          {"operations", result.operations},
          {"errors", result.errors},
          {"violations", result.violations},
          {"throughput", result.throughput()},
          {"latency_us",
           {{"mean", result.latency_ns.Mean() / kMicrosecondNs},
            {"p50", us(50)},
            {"p90", us(90)},
            {"p99", us(99)},
            {"p999", us(99.9)},
            {"max", static_cast<double>(result.latency_ns.max()) / kMicrosecondNs}}},
          {"round_trips",
           {{"mean", result.round_trips.Mean()},
            {"p50", result.round_trips.Percentile(50)},
            {"p99", result.round_trips.Percentile(99)},
            {"max", result.round_trips.max()}}},
          {"fabric",
           {{"reads", result.fabric.reads},
            {"writes", result.fabric.writes},
            {"cas", result.fabric.cas},
            {"chains", result.fabric.chains}}},
          {"lock_attempts", result.attempts},
          {"lock_failures", result.failures},
          {"handovers", result.handovers}};
}

nlohmann::json ConfigJson(const LockBenchOptions& options) {
  const HostInfo host = GetHostInfo();
  return {{"fabric", FLAGS_fabric},
          {"device", FLAGS_fabric == "sim" ? "simulated" : "shared memory of this host"},
          {"memory_servers", options.memory_servers.size()},
          {"compute_servers", options.compute_servers},
          {"threads", options.threads},
          {"coroutines", options.coroutines},
          {"locks", options.locks},
          {"distribution", options.distribution.name},
          {"theta", options.distribution.theta},
          {"operations", options.operations},
          {"handover_max", options.handover_max},
          {"seed", options.seed},
          {"commit", host.commit},
          {"compiler", host.compiler},
          {"kernel", host.kernel},
          {"cpu", host.cpu}};
}

void PrintLine(const LockTechnique& rung, const LockBenchResult& result) {
  const auto us = [&result](double percent) {
    return static_cast<double>(result.latency_ns.Percentile(percent)) / kMicrosecondNs;
  };
  absl::PrintF("%-16s %10s %9.2f %9.2f %10.2f %7.3f %10d %10d %10d\n", rung.name,
               FormatCount(result.throughput()), us(50), us(99), us(99.9),
               result.round_trips.Mean(), result.attempts, result.failures, result.handovers);
}

int Main() {
  const LockBenchOptions options = OptionsFromFlags();
  if (FLAGS_fabric != "shm" && FLAGS_fabric != "sim") {
    ExitWithUsageError(kProgram, absl::StrCat("--fabric is shm or sim, not '", FLAGS_fabric, "'"));
  }
  std::vector<LockTechnique> rungs;
  if (FLAGS_ladder) {
    const auto ladder = LockLadder();
    rungs.assign(ladder.begin(), ladder.end());
  } else {
    Techniques techniques = LockLadder().front().techniques;
    techniques.local_locks = FLAGS_local_locks;
    techniques.wait_queue = FLAGS_local_locks && FLAGS_wait_queue;
    techniques.handover = techniques.handover_image = techniques.wait_queue && FLAGS_handover;
    rungs.push_back({"as asked", techniques});
  }
  absl::PrintF(
      "%s%d locks, %s; %d memory servers, %d compute servers x %d threads x %d "
      "coroutines\n\n%-16s %10s %9s %9s %10s %7s %10s %10s %10s\n",
      FLAGS_fabric == "sim" ? "simulated: " : "", options.locks, FLAGS_distribution,
      FLAGS_memory_servers, FLAGS_compute_servers, FLAGS_threads, FLAGS_coroutines, "", "locks/s",
      "p50 us", "p99 us", "p99.9 us", "trips", "CAS", "failed", "handovers");
  nlohmann::json series = nlohmann::json::array();
  bool good = true;
  for (const LockTechnique& rung : rungs) {
    const absl::StatusOr<LockBenchResult> result = FLAGS_fabric == "sim"
                                                       ? RunOnSim(options, rung.techniques)
                                                       : RunOnShm(options, rung.techniques);
    if (absl::IsInvalidArgument(result.status())) {
      ExitWithUsageError(kProgram, std::string(result.status().message()));
    }
    if (!result.ok()) {
      std::fprintf(stderr, "pando-locks: %s\n", result.status().ToString().c_str());
      return 1;
    }
    PrintLine(rung, *result);
    std::fflush(stdout);
    series.push_back(ResultJson(rung, *result));
    if (result->errors > 0 || result->violations > 0) {
      std::fprintf(stderr, "pando-locks: %d errors (%s), %d locks held twice\n",
                   static_cast<int>(result->errors), result->first_error.c_str(),
                   static_cast<int>(result->violations));
      good = false;
    }
  }
  if (!FLAGS_json.empty()) {
    std::ofstream out(FLAGS_json, std::ios::trunc);
    out << nlohmann::json{{"config", ConfigJson(options)}, {"series", series}}.dump(2) << '\n';
    out.close();
    if (!out) {
      std::fprintf(stderr, "pando-locks: cannot write %s\n", FLAGS_json.c_str());
      return 1;
    }
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace pando::bench

int main(int argc, char** argv) {
  pando::ParseCommandLine(argc, argv, pando::bench::kProgram);
  return pando::bench::Main();
}
