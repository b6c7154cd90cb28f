// pando-chaos: what a cluster does while its compute servers are killed and stopped.
#include <gflags/gflags.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/chaos/compute_server.h"
#include "bench/chaos/coordinator.h"
#include "bench/chaos/plan.h"
#include "bench/chaos/report.h"
#include "bench/chaos/upserts.h"
#include "bench/history/checker.h"
#include "bench/history/history_io.h"
#include "bench/host/json_file.h"
#include "bench/host/paths.h"
#include "bench/host/print.h"
#include "bench/host/stop_signals.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/program/command_line.h"
#include "common/program/rdma_flags.h"

DEFINE_string(fabric, "shm", "transport: shm or verbs");
DEFINE_string(mode, "shared", "of the tree: shared, or owned by one compute server at a time");
DEFINE_uint64(seed, 1,
              "of everything that is drawn: who is killed or stopped when, the operations");
DEFINE_double(duration, 30, "seconds of load");
DEFINE_int32(kills, 5, "kill -9 of a compute server, which is started again");
DEFINE_int32(stops, 2, "SIGSTOP of a compute server for up to 3 seconds, then SIGCONT");
DEFINE_uint64(upserts, 0,
              "instead of the load, so many upserts of the counters of an owned tree, while "
              "--kills of their owners are killed, and not started again; 0: the load");
DEFINE_int32(memory_stops, 0, "SIGSTOP of a memory server, as long as those of compute servers");
DEFINE_int32(leaves, 0,
             "with --mode=owned: times that a compute server gives its ranges to others under "
             "load, ends, and another process comes, whoever is killed or stopped meanwhile");
DEFINE_double(stop_seconds, 0, "length of each stop; 0: drawn, up to 3 seconds");
DEFINE_int32(memory_servers, 2, "memory servers");
DEFINE_string(memory, "", "memory a server offers, with suffix K, M, G; default: enough");
DEFINE_int32(compute_servers, 3, "compute servers, each a process");
DEFINE_int32(threads, 2, "threads a compute server, each with a session");
DEFINE_int32(coroutines, 4, "operations in flight a thread");
DEFINE_uint64(records, 10'000, "records loaded before the run");
DEFINE_uint32(value_bytes, 8, "length of values, 8 to 65536 bytes; upserts add numbers of 8");
DEFINE_uint32(inline_value_bytes, 0,
              "longer values lie outside the leaves; 0: as the library does");
DEFINE_bool(narrow_reads, false, "the tree has windows (rules N), and gets READ them anywhere");
DEFINE_bool(narrow_writes, false, "with --narrow_reads: and so do writes (rule N8)");
DEFINE_double(rate, 3'000, "operations a second of all compute servers together");
DEFINE_int64(timeout_ms, 3'000, "deadline of an operation");
DEFINE_int64(gap_max_ms, 0,
             "how long a kill may hold up the other compute servers; 0: 1000, and the serving "
             "lease of 1000 more where the dead owned keys and verbs cannot say that he is dead");
DEFINE_int64(after_stop_max_ms, 500,
             "how long an operation may take that a server calls after it was stopped");
DEFINE_string(history, "",
              "file for the history; FILE.initial and FILE.final hold the state; default: not "
              "kept; not of --upserts");
DEFINE_string(json, "", "file for the result");
DEFINE_bool(progress, true, "a line for every kill and stop on standard error");

DEFINE_string(plan_file, "", "used by pando-chaos itself");
DEFINE_int32(life, 0, "used by pando-chaos itself");

namespace pando::chaos {
namespace {

const ProgramInfo kProgram = {
    .name = "pando-chaos",
    .summary =
        "pando-chaos --kills=5 --stops=2 --duration=30 --seed=1 --history=FILE --json=FILE\n\n"
        "Starts memory servers and compute servers, puts them under load, kills and stops compute "
        "servers meanwhile,\nand checks that all that was promised held: every answer, the tree, "
        "and that the others went on.\n\n"
        "Exit codes: 0 everything held, 1 it did not, or the run could not be made, 2 wrong "
        "command line,\n128 + signal after Ctrl-C.",
    .source = __FILE__,
    .shared_source = kRdmaFlagsSource};

constexpr int kFailed = 1;

absl::StatusOr<Plan> PlanFromFlags() {
  const RdmaPath path = RdmaPathFromFlags(kProgram);
  Plan plan;
  plan.fabric = FLAGS_fabric;
  plan.rdma = {path.device,        path.port,          path.gid_index, path.mtu_bytes,
               path.traffic_class, path.service_level, path.pkey_index};
  plan.mode = FLAGS_mode;
  plan.seed = FLAGS_seed;
  plan.duration_s = FLAGS_duration;
  plan.kills = FLAGS_kills;
  plan.stops = FLAGS_stops;
  plan.memory_stops = FLAGS_memory_stops;
  plan.leaves = FLAGS_leaves;
  plan.stop_s = FLAGS_stop_seconds;
  plan.upserts = FLAGS_upserts;
  plan.memory_servers = FLAGS_memory_servers;
  if (!FLAGS_memory.empty()) {
    const absl::StatusOr<uint64_t> bytes = ParseBytes(FLAGS_memory);
    if (!bytes.ok()) return Annotate(bytes.status(), "--memory");
    plan.memory_bytes = *bytes;
  }
  plan.compute_servers = FLAGS_compute_servers;
  plan.threads = FLAGS_threads;
  plan.coroutines = FLAGS_coroutines;
  plan.records = FLAGS_records;
  plan.value_bytes = FLAGS_value_bytes;
  plan.inline_value_bytes = FLAGS_inline_value_bytes;
  plan.narrow_reads = FLAGS_narrow_reads;
  plan.narrow_writes = FLAGS_narrow_writes;
  plan.rate = FLAGS_rate;
  plan.timeout_ms = FLAGS_timeout_ms;
  plan.gap_max_ms = FLAGS_gap_max_ms;
  if (plan.gap_max_ms == 0)
    plan.gap_max_ms = plan.owned() && plan.fabric == "verbs" ? 2'000 : 1'000;
  plan.after_stop_max_ms = FLAGS_after_stop_max_ms;
  if (plan.upserts > 0 && !FLAGS_history.empty()) {
    return absl::InvalidArgumentError(
        "--history is not of --upserts, which keeps sums and no history: leave it out");
  }
  PANDO_RETURN_IF_ERROR(CheckPlan(plan));
  return plan;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "pando-chaos: %s\n", std::string(status.message()).c_str());
  return kFailed;
}

// So that a long run does not end with a file that cannot be written.
absl::Status CheckWritable(const std::string& file) {
  if (file.empty() || std::ofstream(file, std::ios::app)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", file));
}

absl::Status WriteJson(const nlohmann::json& json) {
  return FLAGS_json.empty() ? absl::OkStatus() : bench::WriteJsonFile(FLAGS_json, json, 2);
}

absl::StatusOr<history::CheckResult> CheckHistoryFile(const std::string& file, bool has_final) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<history::Operation> operations,
                         history::ReadHistory(file));
  PANDO_ASSIGN_OR_RETURN(const history::State initial, history::ReadState(file + ".initial"));
  history::State final;
  if (has_final) {
    PANDO_ASSIGN_OR_RETURN(final, history::ReadState(file + ".final"));
  }
  return history::CheckHistory(operations, &initial, has_final ? &final : nullptr);
}

absl::StatusOr<Report> Run(const Plan& plan, int stop_fd, const std::string& history_file) {
  Report report;
  {
    Coordinator coordinator(
        plan, {.stop_fd = stop_fd, .progress = FLAGS_progress, .history_file = history_file});
    PANDO_ASSIGN_OR_RETURN(report.outcome, coordinator.Run());
    report.tree = coordinator.tree_report();
  }
  Evaluate(plan, &report.outcome);
  PANDO_ASSIGN_OR_RETURN(report.history,
                         CheckHistoryFile(history_file, report.outcome.final_state_known));
  return report;
}

int Main(Plan plan) {
  const int stop_fd = bench::CatchStopSignals();
  for (const std::string& file : {FLAGS_json, FLAGS_history}) {
    if (const absl::Status status = CheckWritable(file); !status.ok()) return Fail(status);
  }
  const absl::StatusOr<bench::TemporaryFolder> folder = bench::TemporaryFolder::Create();
  if (!folder.ok()) return Fail(folder.status());
  plan.folder = folder->path();
  if (plan.upserts > 0) {
    const absl::StatusOr<UpsertsReport> report = RunUpserts(plan, stop_fd);
    if (absl::IsCancelled(report.status())) return 128 + bench::StopSignal();
    if (!report.ok()) return Fail(report.status());
    absl::Status written = bench::Print(report->Text(plan));
    written.Update(WriteJson(report->Json(plan)));
    if (!written.ok()) return Fail(written);
    return report->ok(plan) ? 0 : kFailed;
  }
  const std::string history_file = FLAGS_history.empty() ? plan.folder + "/history" : FLAGS_history;

  const absl::StatusOr<Report> report = Run(plan, stop_fd, history_file);
  if (absl::IsCancelled(report.status())) return 128 + bench::StopSignal();
  if (!report.ok()) return Fail(report.status());
  absl::Status written = bench::Print(ReportText(*report));
  written.Update(WriteJson(ReportJson(plan, *report)));
  if (!written.ok()) return Fail(written);
  return report->ok() ? 0 : kFailed;
}

}  // namespace
}  // namespace pando::chaos

int main(int argc, char** argv) {
  using namespace pando::chaos;
  pando::ParseCommandLine(argc, argv, kProgram);
  if (!FLAGS_plan_file.empty()) return RunComputeServerProcess(FLAGS_plan_file, FLAGS_life);
  const absl::StatusOr<Plan> plan = PlanFromFlags();
  if (!plan.ok()) pando::ExitWithUsageError(kProgram, std::string(plan.status().message()));
  return Main(*plan);
}
