// pando-shm-speed: rates of gets and updates as shares of the node loop's rate, measured in turns
// in one run.
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "bench/host/stop_signals.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/program/command_line.h"

DEFINE_uint64(records, 1'000'000, "records of the tree and of the loop");
DEFINE_int32(rounds, 5, "times that loop, gets and updates are measured in turns");
DEFINE_double(duration, 2, "seconds of each measurement");
DEFINE_int32(coroutines, 8, "operations in flight of the one thread");
DEFINE_string(json, "", "file for the result");

namespace pando::bench {
namespace {

const ProgramInfo kProgram = {
    .name = "pando-shm-speed",
    .summary =
        "pando-shm-speed --rounds=N\n\nGets and updates of one thread on shm as shares of a "
        "loop that copies and searches random nodes.",
    .source = __FILE__};

constexpr int kTimeoutMs = 600'000;

// Runs a program beside this one; its `run`.
absl::StatusOr<nlohmann::json> Measure(const std::string& folder,
                                       std::vector<std::string> arguments) {
  const std::string file = absl::StrCat(folder, "/result.json");
  arguments[0] = ProgramFolder() / arguments[0];
  arguments.push_back(absl::StrCat("--json=", file));
  arguments.push_back(absl::StrCat("--duration=", FLAGS_duration));
  arguments.push_back(absl::StrCat("--records=", FLAGS_records));
  const std::string log = absl::StrCat(folder, "/log");
  // SIGTERM: a pando-ycsb that is asked to stop takes its own children along.
  PANDO_ASSIGN_OR_RETURN(
      Process process,
      Process::Spawn({.arguments = arguments, .log_file = log, .death_signal = 15}));
  for (int waited_ms = 0; !process.WaitFor(50); waited_ms += 50) {
    if (StopSignal() == 0 && waited_ms < kTimeoutMs) continue;
    process.Signal(15);
    process.WaitFor(10'000);
    return absl::CancelledError("stopped");
  }
  if (!process.ended_well()) {
    return absl::UnavailableError(
        absl::StrCat(arguments[0], " ", *process.ending(), ":\n", Tail(log)));
  }
  std::ifstream stream(file);
  const nlohmann::json json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!json.contains("run")) return absl::DataLossError(absl::StrCat(file, " has no 'run'"));
  return json["run"];
}

struct Series {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<double> rates;
  std::vector<double> shares;      // of the loop's rate in the same round
  std::vector<double> cpu_rates;   // a second of CPU time
  std::vector<double> cpu_shares;  // the same, undisturbed by others on the machine
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::Status MeasureAll(std::vector<Series>* all) {
  PANDO_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Create());
  for (int round = 0; round < FLAGS_rounds; ++round) {
    for (Series& series : *all) {
      PANDO_ASSIGN_OR_RETURN(const nlohmann::json run, Measure(folder.path(), series.arguments));
      series.rates.push_back(run["throughput"].get<double>());
      series.shares.push_back(series.rates.back() / all->front().rates.back());
      series.cpu_rates.push_back(run["operations"].get<double>() /
                                 run["cpu_seconds"].get<double>());
      series.cpu_shares.push_back(series.cpu_rates.back() / all->front().cpu_rates.back());
    }
  }
  return absl::OkStatus();
}

int Main() {
  CatchStopSignals();
  const auto ycsb = [](const char* workload) {
    return std::vector<std::string>{"pando-ycsb", absl::StrCat("--workload=", workload),
                                    "--distribution=uniform", "--warmup=0.5",
                                    absl::StrCat("--coroutines=", FLAGS_coroutines)};
  };
  std::vector<Series> all = {{.name = "loop", .arguments = {"pando-node-loop"}},
                             {.name = "get", .arguments = ycsb("c")},
                             {.name = "update", .arguments = ycsb("update")}};
  const absl::Status status = MeasureAll(&all);
  if (!status.ok()) {
    std::fprintf(stderr, "pando-shm-speed: %s\n", std::string(status.message()).c_str());
    return absl::IsCancelled(status) ? 128 + std::max(1, StopSignal()) : 1;
  }
  nlohmann::json json = nlohmann::json::object();
  absl::PrintF("%-8s %12s %12s %24s %14s %12s\n", "", "median/s", "of the loop",
               "spread of the share", "per CPU second", "of the loop");
  for (const Series& series : all) {
    const auto [low, high] = std::minmax_element(series.shares.begin(), series.shares.end());
    absl::PrintF("%-8s %12s %12.3f %15.3f to %.3f %14s %12.3f\n", series.name,
                 FormatCount(Median(series.rates)), Median(series.shares), *low, *high,
                 FormatCount(Median(series.cpu_rates)), Median(series.cpu_shares));
    json[series.name] = {{"rates", series.rates},         {"rate", Median(series.rates)},
                         {"shares", series.shares},       {"share", Median(series.shares)},
                         {"cpu_rates", series.cpu_rates}, {"cpu_share", Median(series.cpu_shares)}};
  }
  if (FLAGS_json.empty()) return 0;
  std::ofstream out(FLAGS_json, std::ios::trunc);
  out << json.dump(2) << '\n';
  out.close();
  if (out) return 0;
  std::fprintf(stderr, "pando-shm-speed: cannot write %s\n", FLAGS_json.c_str());
  return 1;
}

}  // namespace
}  // namespace pando::bench

int main(int argc, char** argv) {
  pando::ParseCommandLine(argc, argv, pando::bench::kProgram);
  if (FLAGS_rounds < 1 || FLAGS_rounds > 1'000) {
    pando::ExitWithUsageError(pando::bench::kProgram, "--rounds is 1 to 1000");
  }
  return pando::bench::Main();
}
