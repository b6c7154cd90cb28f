// pando-figures: the figures of the Sherman paper, and some beyond it, on a simulated network.
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/figures/parts.h"
#include "bench/figures/runner.h"
#include "bench/nic/nic_bench.h"
#include "common/program/command_line.h"

DEFINE_string(figure, "",
              "breakdown, range, scalability, internals, key_size, cache, locks, beyond, narrow, "
              "peers, owned, owned_cache, buffered, deletes, servers, or all");
DEFINE_string(profile, "connectx5-100g",
              "timing of the network: a profile that comes with Pando, or a file");
DEFINE_string(
    fabric, "sim",
    "sim: the simulator; shm, verbs: a reduced grid, measured by pando-ycsb on this host");
DEFINE_string(device, "", "RDMA device (verbs); default: the first with an active port");
DEFINE_string(secret_file, "", "file with the cluster's secret (verbs); default: it has none");
DEFINE_double(seconds, 2, "measured of each case, on shm and verbs");
DEFINE_string(out, "", "folder for FIGURE.csv, FIGURE.json, FIGURE.png and index.md");
DEFINE_bool(quick, false, "a small tree, short runs, few values of x");
DEFINE_uint64(
    records, 0,
    "records in the tree; default: 20,000,000, with --quick and on shm and verbs 200,000");
DEFINE_int32(memory_servers, 0, "default: 8, on shm and verbs 1 (figure servers: as it says)");
DEFINE_int32(compute_servers, 0, "default: 8, on shm and verbs 2 (figure servers: as it says)");
DEFINE_int32(threads, 0, "of a compute server; default: 22, on shm and verbs 1");
DEFINE_int32(coroutines, 0, "coroutines of a thread; 0: as the figure says");
DEFINE_uint64(operations, 0,
              "measured operations of a case, at least; default: 100,000, with --quick 10,000");
DEFINE_string(
    cases, "",
    "only cases that have this in \"SERIES: X\", with what limits them instead of what the "
    "figure compares");
DEFINE_uint64(seed, 1, "of everything that is drawn: same seed, same numbers");
DEFINE_int32(jobs, 0, "cases at once, each a process; default: one for each core");

namespace pando::bench {
namespace {

const ProgramInfo kProgram = {
    .name = "pando-figures",
    .summary =
        "pando-figures --figure=breakdown --profile=connectx5-100g --out=DIR\n\n"
        "Makes figures of the Sherman paper on a simulated cluster, in virtual time, and a "
        "page that lists\npaper and simulated values side by side.",
    .source = __FILE__,
    .logs_info = false};

int FromFlag(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    ExitWithUsageError(kProgram,
                       absl::StrCat("--", flag, " is ", low, " to ", high, ", not ", value));
  }
  return static_cast<int>(value);
}

bool IsReal() { return FLAGS_fabric != "sim"; }

Grid GridFromFlags() {
  Grid grid;
  if (IsReal()) {
    grid.memory_servers = 1;
    grid.compute_servers = 2;
    grid.threads = 1;
  }
  grid.quick = FLAGS_quick || IsReal();
  grid.records = FLAGS_records != 0 ? FLAGS_records : grid.quick ? 200'000 : grid.records;
  FromFlag("records", static_cast<int64_t>(std::min<uint64_t>(FLAGS_records, INT64_MAX)), 0,
           4'000'000'000);
  const auto set = [](int* field, const char* flag, int value, int most) {
    if (FromFlag(flag, value, 0, most) != 0) *field = value;
  };
  set(&grid.memory_servers, "memory_servers", FLAGS_memory_servers, 64);
  set(&grid.compute_servers, "compute_servers", FLAGS_compute_servers, 256);
  set(&grid.threads, "threads", FLAGS_threads, 256);
  grid.coroutines = FromFlag("coroutines", FLAGS_coroutines, 0, 256);
  grid.seed = FLAGS_seed;
  if (FLAGS_quick) {
    grid.span.warmup_operations = 2'000;
    grid.span.warmup_ns = 200 * kMicrosecondNs;
    grid.span.operations = 10'000;
    grid.span.measured_ns = 1 * kMillisecondNs;
    grid.span.events_max = 4'000'000;
  }
  if (FLAGS_operations != 0) grid.span.operations = FLAGS_operations;
  return grid;
}

void SetFabric(RunnerOptions* options) {
  if (IsReal()) {
    if (FLAGS_fabric != "shm" && FLAGS_fabric != "verbs") {
      ExitWithUsageError(kProgram,
                         absl::StrCat("--fabric is sim, shm or verbs, not '", FLAGS_fabric, "'"));
    }
    if (!(FLAGS_seconds > 0)) ExitWithUsageError(kProgram, "--seconds is more than 0");
    options->real = {FLAGS_fabric, FLAGS_device, FLAGS_secret_file, FLAGS_seconds};
    return;
  }
  absl::StatusOr<NicProfile> profile = LoadNicProfile(FLAGS_profile);
  if (!profile.ok()) ExitWithUsageError(kProgram, std::string(profile.status().message()));
  options->grid.nic = std::make_shared<const NicProfile>(*std::move(profile));
  options->profile = options->grid.nic->name;
}

// For who works at a few of them.
void Select(const std::string& part, Figure* figure) {
  std::erase_if(figure->cases, [&part](const FigureCase& one) {
    return !absl::StrContains(absl::StrCat(one.series, ": ", FormatX(one.x)), part);
  });
  for (FigureCase& one : figure->cases) one.against.clear();
  figure->extra = &AddLimits;  // the figure's own knows them by their places
}

std::vector<Figure> FiguresFromFlag(const Grid& grid) {
  std::vector<Figure> figures;
  const bool all = FLAGS_figure == "all";
  for (const std::string& name : all ? FigureNames() : std::vector{FLAGS_figure}) {
    absl::StatusOr<Figure> figure = MakeFigure(name, grid);
    if (!figure.ok()) ExitWithUsageError(kProgram, std::string(figure.status().message()));
    if (!FLAGS_cases.empty()) Select(FLAGS_cases, &*figure);
    if (!IsReal() || RunsForReal(name)) {
      figures.push_back(*std::move(figure));
    } else if (!all) {
      ExitWithUsageError(kProgram, absl::StrCat("figure '", name, "' is simulated only"));
    }
  }
  if (std::ranges::all_of(figures, [](const Figure& figure) { return figure.cases.empty(); })) {
    ExitWithUsageError(kProgram,
                       absl::StrCat("--cases=", FLAGS_cases, ": no figure has such a case"));
  }
  return figures;
}

int Main() {
  RunnerOptions options;
  options.grid = GridFromFlags();
  SetFabric(&options);
  options.jobs = FLAGS_jobs == 0 ? static_cast<int>(std::thread::hardware_concurrency())
                                 : FromFlag("jobs", FLAGS_jobs, 1, 256);
  options.out = FLAGS_out;
  options.progress = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  if (FLAGS_out.empty()) ExitWithUsageError(kProgram, "--out=DIR is missing");
  const std::vector<Figure> figures = FiguresFromFlag(options.grid);
  absl::Status status = CheckWritable(options.out);
  if (status.ok()) status = MakeFigures(figures, options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "pando-figures: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace pando::bench

int main(int argc, char** argv) {
  pando::ParseCommandLine(argc, argv, pando::bench::kProgram);
  return pando::bench::Main();
}
