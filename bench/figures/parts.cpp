#include "bench/figures/parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace pando::bench {
namespace {

// With the bound of the published system's public code.
System AsPublished(const Techniques& techniques) {
  return {.techniques = techniques, .handover_max = 8};
}

constexpr uint64_t kEventsEach = 60;  // more than an operation takes

}  // namespace

System FgPlusSystem() { return AsPublished(Techniques::FgPlus()); }
System ShermanSystem() { return AsPublished(Techniques::Sherman()); }
System OurSystem() { return {.techniques = Techniques::Everything()}; }

std::vector<NamedSystem> ThreeSystems() {
  return {{"FG+", FgPlusSystem()}, {"Sherman", ShermanSystem()}, {"Pando", OurSystem()}};
}

std::vector<NamedSystem> PaperSteps() {
  Techniques techniques = Techniques::FgPlus();
  std::vector<NamedSystem> steps = {{"FG+", AsPublished(techniques)}};
  techniques.command_combining = true;
  steps.push_back({"+command combining", AsPublished(techniques)});
  techniques.on_chip_locks = true;
  steps.push_back({"+on-chip locks", AsPublished(techniques)});
  techniques.local_locks = techniques.wait_queue = techniques.handover = true;
  steps.push_back({"+hierarchical locks", AsPublished(techniques)});
  techniques.two_level_versions = true;
  steps.push_back({"+two-level versions", AsPublished(techniques)});
  return steps;
}

std::vector<NamedSystem> StepsBeyond() {
  Techniques techniques = Techniques::Sherman();
  std::vector<NamedSystem> steps = {{"Sherman", AsPublished(techniques)}};
  techniques.lock_and_read = true;
  steps.push_back({"+lock and read", AsPublished(techniques)});
  // Before combining: what is combined is not handed over any more.
  techniques.handover_image = true;
  steps.push_back({"+handover image", AsPublished(techniques)});
  techniques.operation_combining = true;
  steps.push_back({"+operation combining", AsPublished(techniques)});
  System system = AsPublished(techniques);
  system.handover_max = OurSystem().handover_max;
  steps.push_back({"+longer handover", system});
  steps.push_back({"+back-off", OurSystem()});
  return steps;
}

NamedMix WriteOnly() { return {"write-only", {.writes = 1}}; }
NamedMix WriteIntensive() { return {"write-intensive", {.writes = 0.5}}; }
NamedMix ReadIntensive() { return {"read-intensive", {.writes = 0.05}}; }
NamedDistribution Uniform() { return {"uniform", {.name = "uniform"}}; }
NamedDistribution Zipfian(double theta) {
  return {absl::StrCat("zipfian ", theta), {.name = "zipfian", .theta = theta}};
}

SnapshotOptions SnapshotOf(const Grid& grid) {
  return {.records = grid.records,
          .memory_servers = grid.memory_servers,
          .seed = grid.seed,
          .nic = grid.nic};
}

FigureCase MakeTreeCase(const Grid& grid, std::string series, nlohmann::json x,
                        const System& system, const Mix& mix,
                        const NamedDistribution& distribution) {
  TreeCase tree;
  tree.system = system;
  tree.mix = mix;
  tree.distribution = distribution.options;
  tree.compute_servers = grid.compute_servers;
  tree.threads = grid.threads;
  tree.coroutines = grid.coroutines == 0 ? 1 : grid.coroutines;
  tree.span = grid.span;
  tree.seed = grid.seed;
  tree.operation_cpu_ns = grid.nic == nullptr ? 0 : grid.nic->cpu.operation_ns;
  return {.series = std::move(series),
          .x = std::move(x),
          .run = std::move(tree),
          .snapshot = SnapshotOf(grid)};
}

TreeCase& TreeOf(FigureCase& figure_case) { return std::get<TreeCase>(figure_case.run); }

void MakeOwnedCase(const Owners& owners, FigureCase* one) {
  one->snapshot.owned = true;
  TreeOf(*one).owners = owners;
}

void WarmUp(const Grid& grid, double operations_a_record, FigureCase* one) {
  if (grid.quick) return;
  Span& span = TreeOf(*one).span;
  const auto records = static_cast<double>(one->snapshot.records);
  span.warmup_operations =
      std::max(span.warmup_operations, static_cast<uint64_t>(operations_a_record * records));
  span.operations = std::max(span.operations, span.warmup_operations / 2);
  span.events_max = std::max(span.events_max, kEventsEach * span.warmup_operations);
}

}  // namespace pando::bench
