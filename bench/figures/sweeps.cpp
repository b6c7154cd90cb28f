// The figures that sweep a size: of ranges, of the cluster, of keys, of the index cache.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/figures/parts.h"
#include "common/base/check.h"
#include "common/wire/node_layout.h"

namespace pando::bench {
namespace {

constexpr char kOverFgPlus[] = "_over_fgplus";

// The three systems on one load; the second and the third are compared with the first.
void AddSystems(const std::string& load, const nlohmann::json& x, const FigureCase& like,
                Figure* figure) {
  const size_t first = figure->cases.size();
  for (const NamedSystem& named : ThreeSystems()) {
    FigureCase one = like;
    one.series = absl::StrCat(load, ", ", named.name);
    one.x = x;
    TreeOf(one).system = named.system;
    if (figure->cases.size() > first) one.against = {{first, kOverFgPlus}};
    figure->cases.push_back(std::move(one));
  }
}

// The highest throughput of each series, and of each beside FG+'s on the same load.
void AddPeaks(const Figure& figure, const std::vector<CaseResult>& results,
              std::vector<Point>* points) {
  const auto peak_of = [&](const std::string& series) {
    double peak = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      if (figure.cases[i].series == series) peak = std::max(peak, results[i].mops());
    }
    return peak;
  };
  std::vector<std::string> seen;
  for (const FigureCase& one : figure.cases) {
    if (std::find(seen.begin(), seen.end(), one.series) != seen.end()) continue;
    seen.push_back(one.series);
    const double peak = peak_of(one.series);
    points->push_back({one.series, "peak", "throughput_mops", peak});
    if (one.against.empty()) continue;
    const double base = peak_of(figure.cases[one.against[0].index].series);
    points->push_back({one.series, "peak", absl::StrCat("throughput_gain", kOverFgPlus),
                       base == 0 ? 0 : peak / base});
  }
}

// Records so that their leaves take no more than this.
constexpr double kLeafBytesMax = 1.2e9;
uint64_t RecordsThatFit(uint64_t records, uint32_t key_bytes) {
  const auto layout = NodeLayout::Create(key_bytes, 8);
  PANDO_CHECK_OK(layout.status());
  const double bytes = layout->node_bytes() / (layout->slot_count() * 0.8);
  return std::min(records, static_cast<uint64_t>(kLeafBytesMax / bytes));
}

}  // namespace

Figure MakeRange(const Grid& grid) {
  Figure figure = {.title = "Range queries", .x_name = "records in the range"};
  const std::vector<NamedMix> mixes = {{"range-only", {.scans = 1}},
                                       {"range-write", {.writes = 0.5, .scans = 0.5}}};
  for (const NamedMix& mix : mixes) {
    for (const NamedDistribution& distribution : {Zipfian(0.99), Uniform()}) {
      for (const int rows : Thinned<int>(grid, {10, 100, 1000})) {
        FigureCase one = MakeTreeCase(grid, "", 0, {}, mix.mix, distribution);
        TreeCase& tree = TreeOf(one);
        tree.mix.scan_rows = static_cast<uint32_t>(rows);
        // A scan of 1000 costs as much as 30 gets.
        const auto heavier = static_cast<uint64_t>(1 + rows / 100);
        tree.span.operations /= heavier;
        tree.span.warmup_operations /= heavier;
        AddSystems(absl::StrCat(mix.name, ", ", distribution.name), rows, one, &figure);
      }
    }
  }
  return figure;
}

Figure MakeScalability(const Grid& grid) {
  Figure figure = {.title = "Clients, write-intensive", .x_name = "clients"};
  const std::vector<std::pair<int, int>> steps =
      Thinned<std::pair<int, int>>(grid, {{std::max(1, grid.threads / 8), 1},
                                          {std::max(1, grid.threads / 4), 1},
                                          {std::max(1, grid.threads / 2), 1},
                                          {grid.threads, 1},
                                          {grid.threads, 2},
                                          {grid.threads, 3}});
  for (const NamedDistribution& distribution : {Uniform(), Zipfian(0.9), Zipfian(0.99)}) {
    for (const auto& [threads, coroutines] : steps) {
      FigureCase one = MakeTreeCase(grid, "", 0, {}, WriteIntensive().mix, distribution);
      TreeOf(one).threads = threads;
      TreeOf(one).coroutines = coroutines;
      AddSystems(distribution.name, TreeOf(one).clients(), one, &figure);
    }
  }
  figure.extra = &AddPeaks;
  return figure;
}

Figure MakeServers(const Grid& grid) {
  Figure figure = {.title = "Servers, each both memory and compute server, write-intensive",
                   .x_name = "servers"};
  for (const int servers : Thinned<int>(grid, {1, 2, 4, 8, 16, 32, 64})) {
    for (const NamedDistribution& distribution : {Uniform(), Zipfian(0.99)}) {
      Grid sized = grid;
      sized.memory_servers = sized.compute_servers = servers;
      FigureCase one = MakeTreeCase(sized, "", 0, {}, WriteIntensive().mix, distribution);
      AddSystems(distribution.name, servers, one, &figure);
    }
  }
  return figure;
}

Figure MakeKeySize(const Grid& grid) {
  Figure figure = {.title = "Length of keys, write-intensive, uniform", .x_name = "bytes of a key"};
  for (const int bytes : Thinned<int>(grid, {16, 32, 64, 128, 255})) {
    FigureCase one = MakeTreeCase(grid, "", 0, {}, WriteIntensive().mix, Uniform());
    one.snapshot.key_bytes = static_cast<uint32_t>(bytes);
    one.snapshot.records = RecordsThatFit(grid.records, one.snapshot.key_bytes);
    AddSystems("uniform", bytes, one, &figure);
  }
  return figure;
}

Figure MakeCache(const Grid& grid) {
  Figure figure = {.title = "Index cache, write-intensive",
                   .x_name = "index cache / what all internal nodes need"};
  for (const NamedDistribution& distribution : {Uniform(), Zipfian(0.99)}) {
    for (const double share : Thinned<double>(grid, {0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.2})) {
      FigureCase one = MakeTreeCase(grid, absl::StrCat(distribution.name, ", Sherman"), share,
                                    ShermanSystem(), WriteIntensive().mix, distribution);
      TreeOf(one).cache_share = share;
      figure.cases.push_back(std::move(one));
    }
  }
  figure.extra = [](const Figure& of, const std::vector<CaseResult>& results,
                    std::vector<Point>* points) {
    for (size_t i = 0; i < results.size(); ++i) {
      points->push_back(
          {of.cases[i].series, of.cases[i].x, "cache_hits_percent", results[i].HitPercent()});
    }
  };
  return figure;
}

}  // namespace pando::bench
