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

void AddLimits(const Figure& figure, const std::vector<CaseResult>& results,
               std::vector<Point>* points) {
  for (size_t i = 0; i < results.size(); ++i) {
    const CaseResult& result = results[i];
    const auto add = [&](const char* metric, double value) {
      points->push_back({.series = figure.cases[i].series,
                         .x = figure.cases[i].x,
                         .metric = metric,
                         .simulated = value});
    };
    const auto each = [&](uint64_t count) {
      return static_cast<double>(count) /
             static_cast<double>(std::max<uint64_t>(1, result.operations));
    };
    add("link_busy_percent", 100 * result.busy.link);
    add("engines_busy_percent", 100 * result.busy.engines);
    add("pcie_busy_percent", 100 * result.busy.pcie);
    add("atomics_busy_percent", 100 * result.busy.atomics);
    add("nic_lock_busy_percent", 100 * result.busy.lock);
    add("cpu_busy_percent", 100 * result.busy.cpu);
    add("bytes_read_each", each(result.fabric.bytes_read));
    add("bytes_written_each", each(result.fabric.bytes_written));
    add("verbs_each", each(result.fabric.reads + result.fabric.writes + result.fabric.cas));
    add("lock_failures_each", each(result.tree.lock_failures));
    if (!figure.cases[i].snapshot.owned) continue;
    add("partition_busy_percent", 100 * result.busy.partition);
    add("partition_waits_percent", 100 * result.busy.waits);
    add("flush_busy_percent", 100 * result.busy.flush);
    add("service_busy_percent", 100 * result.busy.service);
    // Where it is 100, writers wait until records have come to their leaves.
    const auto& owners = std::get<TreeCase>(figure.cases[i].run).owners;
    const double may_be_dirty = static_cast<double>(owners.value_or(Owners()).dirty_percent) / 100 *
                                static_cast<double>(std::max<uint64_t>(1, result.hot_bytes_max));
    add("dirty_percent", 100 * static_cast<double>(result.owned.dirty_bytes) / may_be_dirty);
    add("hot_megabytes", static_cast<double>(result.hot_bytes_max) / 1e6);
    add("owned_hits_percent", result.OwnedHitPercent());
    add("chains_each", result.Each(result.fabric.chains));
    add("messages_each", result.Each(result.peer_messages));
    add("flushed_each", result.Each(result.owned.flushed));
    add("flushed_a_leaf",
        static_cast<double>(result.owned.flushed) /
            static_cast<double>(std::max<uint64_t>(1, result.owned.flushed_leaves)));
    add("log_bytes_each", result.Each(result.owned.log_bytes));
    add("splits_each", result.Each(result.tree.splits));
  }
}

}  // namespace pando::bench
