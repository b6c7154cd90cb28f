// pando-ycsb: the YCSB workloads on Pando.
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/host/json_file.h"
#include "bench/host/paths.h"
#include "bench/host/print.h"
#include "bench/host/stop_signals.h"
#include "bench/ycsb/compute_server.h"
#include "bench/ycsb/coordinator.h"
#include "bench/ycsb/core_workload.h"
#include "bench/ycsb/plan.h"
#include "bench/ycsb/plot.h"
#include "bench/ycsb/report.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/program/command_line.h"
#include "common/program/file_limit.h"
#include "common/program/rdma_flags.h"

DEFINE_string(fabric, "shm", "transport: shm or verbs");
DEFINE_string(secret_file, "", "file with the cluster's secret (verbs); default: it has none");
DEFINE_string(registry, "",
              "join the memory servers found there; default: start own ones ($PANDO_REGISTRY is "
              "not read)");
DEFINE_int32(memory_servers, 1, "memory servers to start, or to wait for with --registry");
DEFINE_string(memory, "", "memory a server offers, with suffix K, M, G; default: enough");
DEFINE_int32(locks, 32768, "words of a memory server's lock table");
DEFINE_int32(compute_servers, 1, "compute servers, each a process of its own");
DEFINE_int32(all_compute_servers, 0,
             "this is a share of a run of several pando-ycsb: compute servers of all of them; "
             "0: it is the whole run");
DEFINE_int32(first_compute_server, 0, "number of the first compute server here, of all");
DEFINE_bool(in_process, false, "compute servers are threads of this process");
DEFINE_int32(threads, 1, "threads per compute server, each with a session");
DEFINE_int32(coroutines, 8, "operations in flight per thread");
DEFINE_bool(pin, false, "pin each thread to a CPU");

DEFINE_string(workload, "a",
              "a to f, load, update, delete, or a file (JSON, or YCSB's properties)");
DEFINE_uint64(records, 1'000'000, "records loaded before the run");
DEFINE_uint64(operations, 1'000'000,
              "operations of all threads together; workload load: --records; 0: see --duration");
DEFINE_double(duration, 0, "end after this many seconds; without --operations: only then");
DEFINE_double(warmup, 0, "seconds to run before the measurement begins");
DEFINE_double(rate, 0,
              "open loop: operations a second of all threads together, latency from the intended "
              "start; 0: closed loop");
DEFINE_int32(repeat, 1, "repetitions of the run; the median one is shown, and the spread");
DEFINE_string(
    distribution, "",
    "uniform, zipfian, latest, hotspot, sequential, exponential; default: the workload's");
DEFINE_double(theta, 0.99, "of zipfian and latest, between 0 and 1");
DEFINE_double(hotspot_items, 0.2, "share of the records that is hot");
DEFINE_double(hotspot_operations, 0.8, "share of the operations on hot records");
DEFINE_double(start_at, 0, "UNIX time at which the run starts; 0: when everything is ready");
DEFINE_bool(load_only, false, "load, and run nothing");
DEFINE_uint64(seed, 1, "seed of all random choices");

DEFINE_string(keys, "integer",
              "integer (in random order), ordered, user, user_ordered (YCSB's), words");
DEFINE_uint32(key_bytes, 0, "length of integer keys, limit of others; 0: 8, or as long as needed");
DEFINE_uint32(value_bytes, 8, "length of values, 0 to 65536 bytes");
DEFINE_string(words_file, "/usr/share/dict/american-english-insane", "for --keys=words");
DEFINE_string(tree, "ycsb", "name of the tree");
DEFINE_string(
    mode, "shared",
    "who reads and writes the tree's leaves: shared (every compute server) or owned (one, which "
    "keeps records in memory and a log; the others ask it)");
DEFINE_bool(narrow_reads, pando::TreeOptions().narrow_reads,
            "the tree is laid out so that a get READs only some lines of a leaf, on fabrics that "
            "gain by it");
DEFINE_string(load, "bulk",
              "how records are loaded: bulk (into an empty tree), put (into any), none (they are "
              "there)");
DEFINE_bool(drop, false, "drop the tree first if it exists");

DEFINE_string(preset, "everything", "techniques: everything, sherman (as published), fgplus");
DEFINE_bool(command_combining, true, "write-back and release in one chain");
DEFINE_bool(on_chip_locks, true, "global locks in NIC memory if there is any");
DEFINE_bool(local_locks, true, "local lock tables before the global locks");
DEFINE_bool(wait_queue, true, "local waiters are served in order");
DEFINE_bool(handover, true, "a held lock goes to the next local waiter");
DEFINE_bool(operation_combining, true, "the holder applies waiting operations");
DEFINE_bool(lock_and_read, true, "lock and read in one chain");
DEFINE_bool(handover_image, true, "the leaf travels with a handed-over lock");
DEFINE_bool(lock_back_off, true, "pauses between attempts at a global lock");
DEFINE_bool(two_level_versions, true, "an update writes back a line, not the node");
DEFINE_bool(narrow_anywhere, false,
            "with --narrow_reads: also on fabrics that gain nothing by it, to measure that");
DEFINE_bool(narrow_writes, false,
            "with --narrow_reads: writes READ some lines of a leaf, too, where gets do");
DEFINE_string(index_cache, "64M", "bound of a compute server's index cache");
DEFINE_string(value_places, "32M",
              "bound on a compute server's memory of where values outside leaves are");
DEFINE_string(hot_bytes, "64M", "--mode=owned: memory of an owner for records");
DEFINE_string(log_bytes, "16M", "--mode=owned: an owner's log on a memory server");
DEFINE_string(route, "any",
              "--mode=owned: keys that a compute server uses: any, or owner (those that it owns)");
DEFINE_int32(service_threads, 1,
             "--mode=owned: threads of an owner that execute what other compute servers ask for");
DEFINE_int32(flush_threads, 1, "--mode=owned: threads of an owner that bring writes to leaves");
DEFINE_int32(ranges_min, 1, "--mode=owned: an owner divides its keys into so many ranges at least");
DEFINE_int64(lend_after_ms, 250,
             "--mode=owned: others read from leaves what was not written for so long; -1: never");
DEFINE_int32(dirty_percent, 50, "--mode=owned: of --hot_bytes that writes not in leaves may take");
DEFINE_int32(handover_max, 32, "handovers in a row");
DEFINE_int32(combine_max, 64, "operations in a write-back");
DEFINE_int64(timeout_ms, 10'000, "deadline of an operation");

DEFINE_string(json, "", "file for the result");
DEFINE_string(
    plot, "",
    "folder for a picture of throughput and latencies, run.png (needs python3-matplotlib)");
DEFINE_string(histograms, "", "file for the result with whole histograms, to be merged");
DEFINE_string(metrics_address, "",
              "HOST:PORT, or PORT on the loopback interface, for Prometheus to scrape the first "
              "compute server; the others have the next ports; default: none");
DEFINE_string(history, "", "file for the history; FILE.initial and FILE.final hold the state");
DEFINE_bool(progress, true, "a line a second on standard error");
DEFINE_int32(errors_max, 100, "errors in a row after which a thread gives up");

DEFINE_string(plan_file, "", "used by pando-ycsb itself");
DEFINE_int32(compute_server, 0, "used by pando-ycsb itself");

namespace pando::bench {
namespace {

const ProgramInfo kProgram = {
    .name = "pando-ycsb",
    .summary =
        "pando-ycsb --workload=a --memory_servers=2 --compute_servers=4 --threads=2\n\n"
        "Runs a YCSB workload: starts memory servers and compute servers, loads records, "
        "runs, and shows what it cost. Ctrl-C ends the run and shows what was measured until "
        "then.\n\n"
        "--workload takes YCSB's own property files too. As in YCSB:\n"
        "  -P FILE        the same; may be repeated, later values win\n"
        "  -p NAME=VALUE  sets a property; flags win over both",
    .source = __FILE__,
    .shared_source = kRdmaFlagsSource};

constexpr int kFailed = 1;

bool IsGiven(const char* flag) {
  gflags::CommandLineFlagInfo info;
  return gflags::GetCommandLineFlagInfo(flag, &info) && !info.is_default;
}

absl::StatusOr<uint64_t> BytesFromFlag(const char* flag, const std::string& text) {
  const absl::StatusOr<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return Annotate(bytes.status(), absl::StrCat("--", flag));
  return bytes;
}

// A preset, and over it what was said about single techniques.
absl::StatusOr<Techniques> TechniquesFromFlags() {
  Techniques techniques;
  if (FLAGS_preset == "sherman") {
    techniques = Techniques::Sherman();
  } else if (FLAGS_preset == "fgplus") {
    techniques = Techniques::FgPlus();
  } else if (FLAGS_preset != "everything") {
    return absl::InvalidArgumentError(
        absl::StrCat("--preset is everything, sherman or fgplus, not '", FLAGS_preset, "'"));
  }
  for (const auto& [name, field] : kTechniqueFlags) {
    std::string value;
    if (IsGiven(name) && gflags::GetCommandLineOption(name, &value)) {
      techniques.*field = value == "true";
    }
  }
  return techniques;
}

absl::Status CheckStart(const Plan& plan) {
  if (FLAGS_start_at == 0) return absl::OkStatus();
  constexpr double kDay = 86'400;
  const double left = FLAGS_start_at - absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  if (!(left > 0 && left < kDay)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--start_at is a UNIX time within a day from now, not %.3f s from now", left));
  }
  if (plan.repeat != 1) return absl::InvalidArgumentError("--start_at is of one run: no --repeat");
  return absl::OkStatus();
}

// What the command line said of property files, in its order.
struct PropertyWords {
  std::vector<std::string> files, assignments;
};

// Takes -P FILE and -p NAME=VALUE out of the command line: as flags, all but the last would be
// lost.
PropertyWords TakePropertyWords(int* argc, char** argv) {
  PropertyWords words;
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    const std::string word = argv[i];
    if (word != "-P" && word != "-p") {
      argv[kept++] = argv[i];
      continue;
    }
    if (i + 1 == *argc) {
      ExitWithUsageError(kProgram, absl::StrCat(word, word == "-P" ? " FILE" : " NAME=VALUE"));
    }
    (word == "-P" ? words.files : words.assignments).push_back(argv[++i]);
  }
  argv[*argc = kept] = nullptr;
  return words;
}

absl::StatusOr<Properties> ReadProperties(const WorkloadFile& file) {
  absl::StatusOr<Properties> properties = ParseProperties(file.text);
  if (!properties.ok()) return Annotate(properties.status(), file.path);
  return properties;
}

// The workload, and what else its file and the command line's properties set of the plan.
absl::Status ReadWorkload(const PropertyWords& words, Plan* plan) {
  if (!words.files.empty() && IsGiven("workload")) {
    return absl::InvalidArgumentError("--workload and -P are the same: give one of them");
  }
  Properties properties;
  std::vector<std::string> in_files;  // names of properties
  std::string first_file;             // of properties
  const auto merge = [&properties](Properties more) {
    for (auto& [name, value] : more) properties.insert_or_assign(name, std::move(value));
  };
  std::vector<std::string> names = words.files;
  for (std::string& name : names) {
    if (name.find('/') == std::string::npos) name = "./" + name;  // it is a file in any case
  }
  if (names.empty()) names.push_back(FLAGS_workload);
  for (const std::string& name : names) {
    PANDO_ASSIGN_OR_RETURN(const WorkloadFile file, ReadWorkloadFile(name));
    if (file.is_json()) {
      if (!words.files.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(file.path, " is no property file: give it by --workload"));
      }
      PANDO_ASSIGN_OR_RETURN(plan->workload, ParseWorkload(file));
      continue;
    }
    PANDO_ASSIGN_OR_RETURN(Properties said, ReadProperties(file));
    for (const auto& [name, value] : said) in_files.push_back(name);
    if (properties.empty()) {
      properties = CoreWorkloadDefaults();
      plan->workload.name = file.name;
      first_file = file.path;
    }
    merge(std::move(said));
  }
  for (const std::string& assignment : words.assignments) {
    PANDO_RETURN_IF_ERROR(AddProperty(assignment, &properties));
  }
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> unknown,
                         ApplyCoreWorkload(properties, IsGiven, plan));
  // Any text is a property file to its reader, and what it does not say has a default.
  const bool none_known = std::all_of(in_files.begin(), in_files.end(), [&](const auto& property) {
    return std::find(unknown.begin(), unknown.end(), property) != unknown.end();
  });
  if (!first_file.empty() && none_known) {
    return absl::InvalidArgumentError(absl::StrCat(
        first_file, " is no workload: it does not begin with { as those in JSON do, and has none ",
        "of the properties of YCSB's CoreWorkload, such as recordcount"));
  }
  if (!unknown.empty()) {
    std::fprintf(stderr, "pando-ycsb: without a meaning here: %s\n",
                 absl::StrJoin(unknown, ", ").c_str());
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> PlanFromFlags(const PropertyWords& words) {
  const RdmaPath path = RdmaPathFromFlags(kProgram);
  Plan plan;
  plan.fabric = FLAGS_fabric;
  plan.rdma = {path.device,        path.port,          path.gid_index, path.mtu_bytes,
               path.traffic_class, path.service_level, path.pkey_index};
  plan.secret_file = FLAGS_secret_file;
  plan.registry = FLAGS_registry;
  plan.memory_servers = FLAGS_memory_servers;
  if (!FLAGS_memory.empty()) {
    PANDO_ASSIGN_OR_RETURN(plan.memory_bytes, BytesFromFlag("memory", FLAGS_memory));
  }
  plan.lock_words = FLAGS_locks;
  plan.compute_servers = FLAGS_compute_servers;
  plan.compute_servers_all = FLAGS_all_compute_servers;
  plan.compute_server_first = FLAGS_first_compute_server;
  plan.in_process = FLAGS_in_process;
  plan.threads = FLAGS_threads;
  plan.coroutines = FLAGS_coroutines;
  plan.pin = FLAGS_pin;
  plan.records = FLAGS_records;
  plan.operations = FLAGS_operations;
  plan.duration_s = FLAGS_duration;
  plan.warmup_s = FLAGS_warmup;
  plan.rate = FLAGS_rate;
  plan.repeat = FLAGS_repeat;
  plan.distribution.name = FLAGS_distribution;
  plan.distribution.theta = FLAGS_theta;
  plan.distribution.hotspot_items = FLAGS_hotspot_items;
  plan.distribution.hotspot_operations = FLAGS_hotspot_operations;
  plan.seed = FLAGS_seed;
  plan.keys.kind = FLAGS_keys;
  plan.keys.key_bytes = FLAGS_key_bytes;
  plan.keys.words_file = FLAGS_words_file;
  plan.value_bytes = FLAGS_value_bytes;
  plan.tree = FLAGS_tree;
  PANDO_RETURN_IF_ERROR(ReadWorkload(words, &plan));
  if (!IsGiven("operations")) {
    if (!plan.workload.preload) plan.operations = plan.records;
    if (FLAGS_duration > 0) plan.operations = 0;
  }
  plan.mode = FLAGS_mode;
  plan.narrow_reads = FLAGS_narrow_reads;
  PANDO_ASSIGN_OR_RETURN(plan.hot_bytes, BytesFromFlag("hot_bytes", FLAGS_hot_bytes));
  PANDO_ASSIGN_OR_RETURN(plan.log_bytes, BytesFromFlag("log_bytes", FLAGS_log_bytes));
  plan.route = FLAGS_route;
  plan.service_threads = FLAGS_service_threads;
  plan.flush_threads = FLAGS_flush_threads;
  plan.ranges_min = FLAGS_ranges_min;
  plan.dirty_percent = FLAGS_dirty_percent;
  plan.lend_after_ms = FLAGS_lend_after_ms;
  plan.load = FLAGS_load;
  plan.drop = FLAGS_drop;
  PANDO_ASSIGN_OR_RETURN(plan.techniques, TechniquesFromFlags());
  PANDO_ASSIGN_OR_RETURN(plan.index_cache_bytes, BytesFromFlag("index_cache", FLAGS_index_cache));
  PANDO_ASSIGN_OR_RETURN(plan.value_places_bytes,
                         BytesFromFlag("value_places", FLAGS_value_places));
  plan.handover_max = FLAGS_handover_max;
  plan.combine_max = FLAGS_combine_max;
  plan.timeout_ms = FLAGS_timeout_ms;
  plan.errors_max = FLAGS_errors_max;
  plan.metrics_address = FLAGS_metrics_address;
  plan.history = !FLAGS_history.empty();
  if (!FLAGS_plot.empty() && FLAGS_load_only) {
    return absl::InvalidArgumentError("--plot shows a run, and --load_only has none");
  }
  PANDO_RETURN_IF_ERROR(CheckPlan(&plan));
  std::error_code error;  // a compute server writes it, and is told where
  if (plan.history && !IsUtf8(std::filesystem::absolute(FLAGS_history, error))) {
    return absl::InvalidArgumentError("--history: its path is not UTF-8: give it another one");
  }
  PANDO_RETURN_IF_ERROR(CheckStart(plan));
  return plan;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "pando-ycsb: %s\n", std::string(status.message()).c_str());
  return kFailed;
}

// So that a run of an hour does not end with a file that cannot be written.
absl::Status CheckWritable(const std::string& file) {
  if (file.empty() || std::ofstream(file, std::ios::app)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", file));
}

absl::Status WriteJson(const std::string& file, const nlohmann::json& json, int indent) {
  return file.empty() ? absl::OkStatus() : WriteJsonFile(file, json, indent);
}

int Coordinate(Plan plan) {
  const int stop_fd = CatchStopSignals();
  for (const std::string& file : {FLAGS_json, FLAGS_histograms, FLAGS_history}) {
    if (const absl::Status status = CheckWritable(file); !status.ok()) return Fail(status);
  }
  if (!FLAGS_plot.empty()) {
    if (const absl::Status status = PreparePlot(FLAGS_plot); !status.ok()) return Fail(status);
  }
  const absl::StatusOr<TemporaryFolder> folder = TemporaryFolder::Create();
  if (!folder.ok()) return Fail(folder.status());
  plan.folder = folder->path();
  if (plan.registry.empty()) plan.registry = absl::StrCat(plan.folder, "/registry");

  absl::StatusOr<YcsbResult> result = absl::UnknownError("");
  {
    Coordinator coordinator(plan, {.stop_fd = stop_fd,
                                   .progress = FLAGS_progress,
                                   .history_file = FLAGS_history,
                                   .start_at_s = FLAGS_start_at,
                                   .load_only = FLAGS_load_only});
    result = coordinator.Run();
  }
  if (absl::IsCancelled(result.status())) return 128 + StopSignal();
  if (!result.ok()) return Fail(result.status());
  absl::Status written = Print(ResultTable(plan, *result));
  written.Update(WriteJson(FLAGS_json, ResultJson(plan, *result), 2));
  written.Update(WriteJson(FLAGS_histograms, HistogramJson(plan, *result), -1));
  if (!FLAGS_plot.empty() && !result->runs.empty()) {
    written.Update(WritePlot(FLAGS_plot, plan, *result));
  }
  if (!written.ok()) return Fail(written);
  if (!result->final_state.ok()) return Fail(result->final_state);
  // A table over a tree that has lost a memory server is no success, however few operations met it.
  const bool failed = !result->runs.empty() &&
                      (result->runs.back().gave_up || !result->runs.back().tree_error.empty());
  if (result->stopped) return 128 + StopSignal();
  return failed ? kFailed : 0;
}

}  // namespace
}  // namespace pando::bench

int main(int argc, char** argv) {
  using namespace pando::bench;
  const PropertyWords properties = TakePropertyWords(&argc, argv);
  pando::ParseCommandLine(argc, argv, kProgram);
  pando::RaiseFileLimit();  // some hundred compute servers are as many processes with their pipes
  if (!FLAGS_plan_file.empty())
    return RunComputeServerProcess(FLAGS_plan_file, FLAGS_compute_server);
  absl::StatusOr<Plan> plan = PlanFromFlags(properties);
  if (!plan.ok()) pando::ExitWithUsageError(kProgram, std::string(plan.status().message()));
  return Coordinate(*std::move(plan));
}
