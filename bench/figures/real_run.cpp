#include "bench/figures/real_run.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/figures/points.h"
#include "bench/host/histogram_json.h"
#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "bench/ycsb/plan.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

constexpr double kWarmUpSeconds = 0.5;
constexpr int kCaseMs = 600'000;

// Two thirds of the writes are updates, as on the simulator.
Json WorkloadOf(const Mix& mix) {
  return {{"description", "a case of a figure"},
          {"operations",
           {{"read", 1 - mix.writes - mix.scans},
            {"update", mix.writes * 2 / 3},
            {"insert", mix.writes / 3},
            {"scan", mix.scans}}},
          {"upsert", true},
          // Lengths are uniform from 1 to this.
          {"scan_length_max", std::max<uint32_t>(1, 2 * mix.scan_rows - 1)}};
}

std::vector<std::string> Arguments(const TreeCase& tree_case, const SnapshotOptions& tree,
                                   const RealFabric& fabric, const std::filesystem::path& folder) {
  std::vector<std::string> arguments = {(ProgramFolder() / "pando-ycsb").string()};
  const auto add = [&arguments](std::string_view flag, const auto& value) {
    arguments.push_back(absl::StrCat("--", std::string(flag), "=", value));
  };
  add("fabric", fabric.name);
  if (!fabric.device.empty()) add("device", fabric.device);
  if (!fabric.secret_file.empty()) add("secret_file", fabric.secret_file);
  add("memory_servers", tree.memory_servers);
  add("compute_servers", tree_case.compute_servers);
  add("threads", tree_case.threads);
  add("coroutines", tree_case.coroutines);
  add("workload", (folder / "workload.json").string());
  add("records", tree.records);
  add("key_bytes", tree.key_bytes);
  add("value_bytes", tree.value_bytes);
  add("distribution", tree_case.distribution.name);
  add("theta", tree_case.distribution.theta);
  add("duration", fabric.seconds);
  add("warmup", kWarmUpSeconds);
  add("seed", tree_case.seed);
  add("handover_max", tree_case.system.handover_max);
  for (const auto& [name, field] : kTechniqueFlags) {
    add(name, tree_case.system.techniques.*field ? "true" : "false");
  }
  add("histograms", (folder / "result.json").string());
  add("progress", "false");
  return arguments;
}

absl::StatusOr<CaseResult> ResultOf(const Json& json) {
  CaseResult result;
  try {
    const Json& run = json.at("run");
    result.span_ns = run.at("end_unix_ns").get<int64_t>() - run.at("start_unix_ns").get<int64_t>();
    result.first_error = run.at("first_error").get<std::string>();
    for (const auto& [name, operation] : run.at("by_operation").items()) {
      result.operations += operation.at("count").get<uint64_t>();
      result.errors += operation.at("errors").get<uint64_t>();
      result.latency_ns.Merge(HistogramFromJson(operation.at("latency_ns")));
      if (name != "update" && name != "insert") continue;
      result.write_trips.Merge(HistogramFromJson(operation.at("round_trips")));
    }
  } catch (const Json::exception& error) {
    return absl::DataLossError(absl::StrCat("no result of pando-ycsb: ", error.what()));
  }
  return result;
}

}  // namespace

bool RunsForReal(const std::string& figure) {
  constexpr std::array<std::string_view, 5> kFigures = {"breakdown", "range", "scalability",
                                                        "key_size", "beyond"};
  return std::find(kFigures.begin(), kFigures.end(), figure) != kFigures.end();
}

absl::StatusOr<CaseResult> RunRealCase(const TreeCase& tree_case, const SnapshotOptions& tree,
                                       const RealFabric& fabric) {
  PANDO_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Create());
  PANDO_RETURN_IF_ERROR(
      WriteFile(folder.path() / "workload.json", WorkloadOf(tree_case.mix).dump()));
  const std::string log = folder.path() / "log";
  PANDO_ASSIGN_OR_RETURN(
      Process ycsb, Process::Spawn({.arguments = Arguments(tree_case, tree, fabric, folder.path()),
                                    .log_file = log}));
  if (!ycsb.WaitFor(kCaseMs) || !ycsb.ended_well()) {
    return absl::UnavailableError(
        absl::StrCat("pando-ycsb ", ycsb.ending().value_or("takes too long"), ": ", Tail(log)));
  }
  PANDO_ASSIGN_OR_RETURN(const Json json, ReadJson(folder.path() / "result.json"));
  return ResultOf(json);
}

}  // namespace pando::bench
