// The figures that switch on one technique after the other.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/figures/parts.h"
#include "bench/locks/lock_bench.h"

namespace pando::bench {
namespace {

// Each step beside the one before it, and beside the first.
void CompareSteps(size_t first, const std::string& with_first, Figure* figure) {
  for (size_t i = first + 1; i < figure->cases.size(); ++i) {
    figure->cases[i].against = {{i - 1, ""}, {first, with_first}};
  }
}

}  // namespace

Figure MakeBreakdown(const Grid& grid) {
  Figure figure = {.title = "What each technique of the paper adds", .x_name = "technique"};
  for (const NamedMix& mix : {WriteOnly(), WriteIntensive(), ReadIntensive()}) {
    for (const NamedDistribution& distribution : {Zipfian(0.99), Uniform()}) {
      const size_t first = figure.cases.size();
      for (const NamedSystem& step : PaperSteps()) {
        figure.cases.push_back(MakeTreeCase(grid, absl::StrCat(mix.name, ", ", distribution.name),
                                            step.name, step.system, mix.mix, distribution));
      }
      CompareSteps(first, "_over_fgplus", &figure);
    }
  }
  return figure;
}

Figure MakeBeyond(const Grid& grid) {
  Figure figure = {.title = "What is added to the system as published", .x_name = "technique"};
  const std::vector<std::pair<NamedMix, NamedDistribution>> loads = {
      {WriteIntensive(), Zipfian(0.99)},
      {WriteOnly(), Zipfian(0.99)},
      {WriteIntensive(), Uniform()}};
  for (const auto& [mix, distribution] : loads) {
    for (const int coroutines : {1, 3}) {
      const size_t first = figure.cases.size();
      const int clients = grid.compute_servers * grid.threads * coroutines;
      for (const NamedSystem& step : StepsBeyond()) {
        FigureCase one = MakeTreeCase(
            grid, absl::StrCat(mix.name, ", ", distribution.name, ", ", clients, " clients"),
            step.name, step.system, mix.mix, distribution);
        TreeOf(one).coroutines = coroutines;
        figure.cases.push_back(std::move(one));
      }
      CompareSteps(first, "_over_sherman", &figure);
    }
  }
  return figure;
}

Figure MakeLocks(const Grid& grid) {
  Figure figure = {.title = "Locks alone", .x_name = "technique"};
  const auto add = [&](const std::string& name, const Techniques& techniques) {
    LockCase locks;
    locks.system = ShermanSystem();
    locks.system.techniques = techniques;
    locks.compute_servers = grid.compute_servers;
    locks.threads = grid.threads;
    locks.coroutines = grid.coroutines == 0 ? 1 : grid.coroutines;
    locks.operations = grid.span.operations;
    locks.seed = grid.seed;
    figure.cases.push_back(
        {.series = absl::StrCat(locks.locks, " locks, zipfian 0.99"), .x = name, .run = locks});
  };
  bool first = true;
  for (const LockTechnique& rung : LockLadder()) {
    Techniques techniques = rung.techniques;
    if (first) add("host memory", techniques);
    techniques.on_chip_locks = true;
    add(first ? "+ on-chip memory" : rung.name, techniques);
    first = false;
  }
  CompareSteps(0, "_over_host_memory", &figure);
  return figure;
}

}  // namespace pando::bench
