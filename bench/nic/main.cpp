// pando-nic: the NIC microbenchmarks on the timing model, beside what was published.
#include <gflags/gflags.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/nic/nic_bench.h"
#include "common/program/command_line.h"

DEFINE_string(profile, "connectx5-100g", "a NIC profile that comes with Pando, or a file");
DEFINE_int32(threads, 24, "of the sweeps over sizes and addresses");
DEFINE_int32(batch, 16, "verbs outstanding a thread, of the sweeps");
DEFINE_bool(sweeps, true, "rates by size and by number of addresses, besides what was published");
DEFINE_string(json, "", "file for the result");

namespace pando::bench {
namespace {

using Json = nlohmann::ordered_json;

const ProgramInfo kProgram = {
    .name = "pando-nic",
    .summary =
        "pando-nic --profile=connectx6-100g\n\nSimulates bare verbs on a profile of the timing "
        "model: the published points that it cites, and sweeps.",
    .source = __FILE__};

constexpr double kTolerance = 0.15;  // of a published point

struct Run {
  NicProfile::Published load;
  NicResult result;
};

class Runner {
 public:
  explicit Runner(const NicProfile& profile) : profile_(profile) {}

  NicResult Measure(const NicProfile::Published& load) {
    const auto start = std::chrono::steady_clock::now();
    const NicResult result = RunNicBench(profile_, load);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    verbs_ += result.verbs;
    return result;
  }
  double verbs_per_second() const { return static_cast<double>(verbs_) / seconds_; }

 private:
  const NicProfile& profile_;
  double seconds_ = 0;
  uint64_t verbs_ = 0;
};

Json PublishedPoints(const NicProfile& profile, Runner* runner) {
  Json points = Json::array();
  absl::PrintF("%-44s %10s %10s  %6s\n", "published", "published", "simulated", "ratio");
  for (const NicProfile::Published& load : profile.published) {
    const double simulated = ValueOf(runner->Measure(load), load);
    const double ratio = simulated / load.value;
    absl::PrintF("%-44s %10.4g %10.4g  %6.2f %s%s\n", DescribeLoad(load), load.value, simulated,
                 ratio, load.unit,
                 std::abs(ratio - 1) > kTolerance ? "  (more than 15 % off)" : "");
    points.push_back({{"load", DescribeLoad(load)},
                      {"unit", load.unit},
                      {"published", load.value},
                      {"simulated", simulated},
                      {"ratio", ratio},
                      {"source", load.source}});
  }
  return points;
}

// What a sweep varies, and a name for its axis.
struct Sweep {
  std::string name;
  NicProfile::Published load;
  uint64_t NicProfile::Published::*wide = nullptr;  // the axis, one of the two
  uint32_t NicProfile::Published::*narrow = nullptr;
  std::vector<uint64_t> values;
};

std::vector<Sweep> Sweeps() {
  const NicProfile::Published load = {
      .threads = FLAGS_threads, .batch = FLAGS_batch, .unit = "mops"};
  const std::vector<uint64_t> sizes = {8, 64, 128, 256, 512, 1024, 4096};
  const std::vector<uint64_t> addresses = {1, 4, 16, 64, 256, 1024, 4096};
  std::vector<Sweep> sweeps;
  for (const char* verb : {"read", "write"}) {
    Sweep& sweep = sweeps.emplace_back();
    sweep = {absl::StrCat(verb, " by bytes"), load, nullptr, &NicProfile::Published::bytes, sizes};
    sweep.load.verb = verb;
  }
  for (const bool on_chip : {false, true}) {
    Sweep& sweep = sweeps.emplace_back();
    sweep = {absl::StrCat("cas by addresses, ", on_chip ? "NIC" : "host", " memory"), load,
             &NicProfile::Published::addresses, nullptr, addresses};
    sweep.load.verb = "cas";
    sweep.load.on_chip = on_chip;
  }
  return sweeps;
}

Json RunSweeps(Runner* runner) {
  Json list = Json::array();
  for (const Sweep& sweep : Sweeps()) {
    absl::PrintF("\n%-28s", sweep.name);
    for (const uint64_t value : sweep.values) absl::PrintF(" %8d", value);
    std::string rates, latencies;
    for (const uint64_t value : sweep.values) {
      NicProfile::Published load = sweep.load;
      if (sweep.wide != nullptr) load.*sweep.wide = value;
      if (sweep.narrow != nullptr) load.*sweep.narrow = static_cast<uint32_t>(value);
      const NicResult busy = runner->Measure(load);
      load.threads = load.batch = 1;
      const NicResult idle = runner->Measure(load);
      absl::StrAppendFormat(&rates, " %8.2f", busy.mops);
      absl::StrAppendFormat(&latencies, " %8.2f", idle.mean_us);
      list.push_back(
          {{"sweep", sweep.name}, {"x", value}, {"mops", busy.mops}, {"idle_us", idle.mean_us}});
    }
    absl::PrintF("\n%-28s%s\n%-28s%s\n",
                 absl::StrFormat("  Mops, %d x %d", FLAGS_threads, FLAGS_batch), rates,
                 "  us, 1 x 1", latencies);
  }
  return list;
}

int Main(int argc, char** argv) {
  ParseCommandLine(argc, argv, kProgram);
  for (const auto& [flag, value] : {std::pair{"threads", FLAGS_threads}, {"batch", FLAGS_batch}}) {
    if (value < 1 || value > 1024) {
      ExitWithUsageError(kProgram, absl::StrCat("--", flag, " is 1 to 1024, not ", value));
    }
  }
  const auto profile = LoadNicProfile(FLAGS_profile);
  if (!profile.ok()) {
    absl::FPrintF(stderr, "pando-nic: %s\n", profile.status().message());
    return 1;
  }
  absl::PrintF("simulated: %s (%s)\n\n", profile->name, profile->description);
  Runner runner(*profile);
  Json json = {{"profile", profile->name}, {"simulated", true}};
  json["published"] = PublishedPoints(*profile, &runner);
  if (FLAGS_sweeps) json["sweeps"] = RunSweeps(&runner);
  absl::FPrintF(stderr, "\n%.1f M simulated verbs a second of this machine\n",
                runner.verbs_per_second() / 1e6);
  if (FLAGS_json.empty()) return 0;
  std::ofstream file(FLAGS_json);
  file << json.dump(2) << "\n";
  file.close();
  if (file) return 0;
  absl::FPrintF(stderr, "pando-nic: cannot write %s\n", FLAGS_json);
  return 1;
}

}  // namespace
}  // namespace pando::bench

int main(int argc, char** argv) { return pando::bench::Main(argc, argv); }
