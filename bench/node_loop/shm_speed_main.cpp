// pando-shm-speed: rates of gets and updates, through the public interface, as shares of the node
// loop's rate: measured in turns in one process, so that what else the machine does meets all
// three.
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "bench/host/stop_signals.h"
#include "bench/node_loop/node_loop.h"
#include "bench/workload/keys.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/program/command_line.h"
#include "pando/client.h"

DEFINE_uint64(records, 1'000'000, "records of the tree and of the loop");
DEFINE_int32(rounds, 15, "times that loop, gets and updates are measured in turns");
DEFINE_double(duration, 0.4, "seconds of each measurement");
DEFINE_int32(coroutines, 8, "operations in flight of the one thread");
DEFINE_bool(narrow_reads, pando::TreeOptions().narrow_reads,
            "the tree is laid out for gets of some lines of a leaf");
DEFINE_string(json, "", "file for the result");

namespace pando::bench {
namespace {

const ProgramInfo kProgram = {
    .name = "pando-shm-speed",
    .summary =
        "pando-shm-speed --rounds=N\n\nGets and updates of one thread on shm as shares of a "
        "loop that copies and searches random nodes.",
    .source = __FILE__};

constexpr char kTreeName[] = "records";
constexpr int kConnectTimeoutMs = 10'000;
// Operations of a task between two looks at the clock.
constexpr int kBatch = 64;

// One measurement: of the loop, or of operations.
using Run = NodeLoopResult;

// A memory server of its own, a tree with the records, a session.
class Target {
 public:
  static absl::StatusOr<std::unique_ptr<Target>> Create();

  // Operations on uniformly random records from all coroutines of the session.
  Run Gets(double seconds, uint64_t seed);
  Run Updates(double seconds, uint64_t seed);

 private:
  using Operate = std::function<bool(uint64_t record, std::string* key, std::string* value)>;

  explicit Target(TemporaryFolder folder) : folder_(std::move(folder)) {}
  absl::Status Start();
  absl::Status Load();
  Run Measure(double seconds, uint64_t seed, const Operate& operate);

  const TemporaryFolder folder_;
  std::optional<Process> memory_server_;
  std::unique_ptr<Keys> keys_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
};

absl::StatusOr<std::unique_ptr<Target>> Target::Create() {
  PANDO_ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Create());
  std::unique_ptr<Target> target(new Target(std::move(folder)));
  PANDO_RETURN_IF_ERROR(target->Start());
  PANDO_RETURN_IF_ERROR(target->Load());
  return target;
}

absl::Status Target::Start() {
  const std::string registry = folder_.path() / "registry";
  // A leaf of 1 KiB holds some 34 records; as much again for what is above and for chunks.
  const uint64_t memory = std::max<uint64_t>(64 * kMiB, FLAGS_records * 64);
  Process::Options options;
  options.arguments = {ProgramFolder() / "pando-memory", absl::StrCat("--registry=", registry),
                       absl::StrCat("--memory=", memory / kMiB, "M"), "--exit_with_parent"};
  options.log_file = folder_.path() / "log";
  PANDO_ASSIGN_OR_RETURN(memory_server_, Process::Spawn(options));
  ClientOptions client;
  client.registry = registry;
  client.coroutines_per_session = FLAGS_coroutines;
  client.connect_timeout_ms = kConnectTimeoutMs;
  PANDO_ASSIGN_OR_RETURN(client_, Client::Connect(client));
  PANDO_ASSIGN_OR_RETURN(
      tree_, client_->CreateTree(
                 kTreeName,
                 {.key_bytes_max = 8, .value_bytes_max = 8, .narrow_reads = FLAGS_narrow_reads}));
  PANDO_ASSIGN_OR_RETURN(session_, client_->NewSession());
  return absl::OkStatus();
}

absl::Status Target::Load() {
  PANDO_ASSIGN_OR_RETURN(keys_, Keys::Create({.key_bytes = 8}, FLAGS_records));
  std::vector<std::string> sorted(FLAGS_records);
  for (uint64_t i = 0; i < FLAGS_records; ++i) keys_->Make(i, &sorted[i]);
  std::sort(sorted.begin(), sorted.end());
  auto next = sorted.begin();
  return session_->BulkLoad(*tree_, [&](KeyValue* entry) {
    if (next == sorted.end()) return false;
    entry->key = *next++;
    entry->value = entry->key;
    return true;
  });
}

Run Target::Measure(double seconds, uint64_t seed, const Operate& operate) {
  Run run;
  const double cpu_start = ThreadCpuSeconds();
  const int64_t start_ns = RealClock().NowNs();
  const int64_t end_ns = start_ns + static_cast<int64_t>(seconds * kSecondNs);
  for (int i = 0; i < FLAGS_coroutines; ++i) {
    session_->Spawn([&, task_seed = DeriveSeed(seed, static_cast<uint64_t>(i))] {
      Random random(task_seed);
      std::string key, value;
      do {
        for (int n = 0; n < kBatch; ++n)
          run.found += operate(random.Uniform(FLAGS_records), &key, &value) ? 1 : 0;
        run.operations += kBatch;
      } while (RealClock().NowNs() < end_ns);
    });
  }
  session_->Run();
  run.seconds = static_cast<double>(RealClock().NowNs() - start_ns) / kSecondNs;
  run.cpu_seconds = ThreadCpuSeconds() - cpu_start;
  return run;
}

Run Target::Gets(double seconds, uint64_t seed) {
  return Measure(seconds, seed, [this](uint64_t record, std::string* key, std::string* value) {
    keys_->Make(record, key);
    return session_->GetTo(*tree_, *key, value).ok() && *value == *key;
  });
}

// Writes what is there, so that gets can tell right from wrong.
Run Target::Updates(double seconds, uint64_t seed) {
  return Measure(seconds, seed, [this](uint64_t record, std::string* key, std::string*) {
    keys_->Make(record, key);
    return session_->Update(*tree_, *key, *key).ok();
  });
}

struct Series {
  const char* name;
  std::function<Run(uint64_t seed)> measure;
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
  for (int round = 0; round <= FLAGS_rounds; ++round) {
    for (Series& series : *all) {
      if (StopSignal() != 0) return absl::CancelledError("stopped");
      const Run run = series.measure(static_cast<uint64_t>(round) + 1);
      if (run.found != run.operations) {
        return absl::DataLossError(absl::StrCat(series.name, ": ", run.operations - run.found,
                                                " operations of ", run.operations, " failed"));
      }
      if (round == 0) continue;  // warms caches up
      series.rates.push_back(run.rate());
      series.shares.push_back(series.rates.back() / all->front().rates.back());
      series.cpu_rates.push_back(static_cast<double>(run.operations) / run.cpu_seconds);
      series.cpu_shares.push_back(series.cpu_rates.back() / all->front().cpu_rates.back());
    }
  }
  return absl::OkStatus();
}

int Main() {
  CatchStopSignals();
  const absl::StatusOr<std::unique_ptr<Target>> target = Target::Create();
  if (!target.ok()) {
    std::fprintf(stderr, "pando-shm-speed: %s\n", target.status().ToString().c_str());
    return 1;
  }
  NodeArray nodes(FLAGS_records);
  std::vector<Series> all = {
      {.name = "loop",
       .measure = [&](uint64_t seed) { return RunNodeLoop(&nodes, FLAGS_duration, seed); }},
      {.name = "get",
       .measure = [&](uint64_t seed) { return (*target)->Gets(FLAGS_duration, seed); }},
      {.name = "update",
       .measure = [&](uint64_t seed) { return (*target)->Updates(FLAGS_duration, seed); }}};
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
  if (!(FLAGS_duration > 0 && FLAGS_duration <= 1e6)) {
    pando::ExitWithUsageError(pando::bench::kProgram, "--duration is above 0");
  }
  return pando::bench::Main();
}
