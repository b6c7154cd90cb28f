#include "bench/ycsb/plot.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/host/json_file.h"
#include "bench/host/process.h"
#include "bench/ycsb/plot_script.h"
#include "bench/ycsb/report.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/units.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

constexpr int kPlotterMs = 60'000;

// Debian's interpreter: it is the one that has Debian's matplotlib.
absl::Status RunPlotter(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"/usr/bin/python3", "-c", kPlotScript});
  absl::StatusOr<Process> plotter = Process::Spawn({.arguments = std::move(arguments)});
  if (!plotter.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--plot needs /usr/bin/python3: ", plotter.status().message()));
  }
  if (!plotter->WaitFor(kPlotterMs)) return absl::UnavailableError("no picture within a minute");
  if (plotter->ended_well()) return absl::OkStatus();
  if (plotter->ending() == "exited with 3") {
    return absl::FailedPreconditionError(
        "--plot needs matplotlib for /usr/bin/python3 (Debian: python3-matplotlib)");
  }
  return absl::UnavailableError(absl::StrCat("no picture: python3 ", *plotter->ending()));
}

// [us, percentage of operations that took longer], ascending, down to the slowest one.
Json LatencyAbove(const Histogram& latency_ns) {
  Json points = Json::array();
  uint64_t seen = 0;
  const std::vector<Histogram::Bucket> buckets = latency_ns.Buckets();
  for (const Histogram::Bucket& bucket : buckets) {
    seen += bucket.count;
    const uint64_t above = latency_ns.count() - seen;
    if (above == 0 && buckets.size() > 1) break;  // a logarithmic axis has no 0
    points.push_back(
        {static_cast<double>(std::max<int64_t>(bucket.value, 1)) / kMicrosecondNs,
         100.0 * static_cast<double>(above) / static_cast<double>(latency_ns.count())});
  }
  return points;
}

}  // namespace

absl::Status PreparePlot(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::filesystem::path file = std::filesystem::path(folder) / "run.json";
  if (error || !std::ofstream(file, std::ios::app)) {
    return absl::UnavailableError(absl::StrCat("cannot write ", file.string()));
  }
  return RunPlotter({});
}

absl::Status WritePlot(const std::string& folder, const Plan& plan, const YcsbResult& result) {
  const PhaseStats& run = MedianRun(result);
  Json latencies = Json::object();
  for (const OperationKind kind : kAllOperationKinds) {
    if (run.of(kind).count == 0) continue;
    latencies[std::string(OperationName(kind))] = LatencyAbove(run.of(kind).latency_ns);
  }
  const Json json = {
      {"title", absl::StrCat(ResultHeader(plan), FormatCount(run.throughput()), " operations/s")},
      {"throughput", run.throughput()},
      {"per_second", run.per_second},
      {"latency_above", std::move(latencies)}};
  const std::filesystem::path data = std::filesystem::path(folder) / "run.json";
  const std::filesystem::path picture = std::filesystem::path(folder) / "run.png";
  PANDO_RETURN_IF_ERROR(WriteJsonFile(data, json));
  std::error_code error;
  std::filesystem::remove(picture, error);  // of an earlier run
  return RunPlotter({data.string(), picture.string()});
}

}  // namespace pando::bench
