// The figures of owned trees: beside shared ones, by memory, what a write costs that is buffered,
// and what it costs to bring erases to their leaves in time. On fewer records than the others: an
// owner's steady state takes as many operations as its memory has records.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/figures/parts.h"

namespace pando::bench {
namespace {

constexpr uint64_t kRecordsMax = 1'000'000;
constexpr uint64_t kBufferedRecordsMax = 200'000;
constexpr uint64_t kDeletesRecordsMax = 100'000;
// Sherman (SIGMOD'22), zipfian 0.99, 528 clients: what a throughput is compared with.
constexpr double kShermanPublishedMops = 9;
constexpr double kDeletesDirtyShare = 0.25;  // of the records
// Of each owner, beside its clients' threads: more of service than clients that ask gain nothing.
constexpr int kServiceThreads = 7, kFlushThreads = 4;
constexpr char kAgainstNone[] = "_against_none";
// Of a dirty record of 8/8 while it counts (compute/owner/member_flush.cpp); half of an owner's
// memory, and of its log, may be dirty.
constexpr double kDirtyRecordBytes = 40;

FigureCase CaseOf(const Grid& grid, uint64_t records_max, const System& system, const Mix& mix,
                  const NamedDistribution& distribution) {
  Grid fewer = grid;
  fewer.records = std::min(grid.records, records_max);
  FigureCase one = MakeTreeCase(fewer, "", 0, system, mix, distribution);
  TreeOf(one).mix.keys = Mix::Keys::kLoaded;
  return one;
}

void AddCosts(const Figure& figure, const std::vector<CaseResult>& results,
              std::vector<Point>* points) {
  for (size_t i = 0; i < results.size(); ++i) {
    const FigureCase& one = figure.cases[i];
    const CaseResult& result = results[i];
    const auto add = [&](const char* metric, double value) {
      points->push_back({one.series, one.x, metric, value});
    };
    add("chains_an_operation", result.Each(result.fabric.chains));
    add("bytes_read_an_operation", result.Each(result.fabric.bytes_read));
    add("bytes_written_an_operation", result.Each(result.fabric.bytes_written));
    if (!one.snapshot.owned) continue;
    add("owned_hits_percent", result.OwnedHitPercent());
    add("messages_an_operation", result.Each(result.peer_messages));
    add("flushed_an_operation", result.Each(result.owned.flushed));
  }
}

}  // namespace

Figure MakeOwned(const Grid& grid) {
  Figure figure = {.title = "Owned and shared trees, zipfian 0.99",
                   .x_name = "operations, clients"};
  const std::vector<NamedMix> mixes = {{"50/50", {.writes = 0.5}}, {"read-only", {}}};
  for (const NamedMix& mix : mixes) {
    for (const int coroutines : {1, 3}) {
      FigureCase like = CaseOf(grid, kRecordsMax, OurSystem(), mix.mix, Zipfian(0.99));
      TreeOf(like).coroutines = coroutines;
      like.x = absl::StrCat(mix.name, ", ", TreeOf(like).clients(), " clients");
      const size_t first = figure.cases.size();
      FigureCase sherman = like;
      sherman.series = "Sherman";
      TreeOf(sherman).system = ShermanSystem();
      figure.cases.push_back(std::move(sherman));
      FigureCase shared = like;
      shared.series = "shared";
      figure.cases.push_back(std::move(shared));
      struct Series {
        const char* name;
        Owners owners;
      };
      const Series all[] = {
          {"owned, routed", {.routed = true, .flush_threads = kFlushThreads}},
          {"owned, routed, one flush thread", {.routed = true}},
          {"owned, any",
           {.routed = false, .service_threads = kServiceThreads, .flush_threads = kFlushThreads}},
          {"owned, any, one of each thread", {.routed = false}}};
      for (const Series& series : all) {
        FigureCase owned = like;
        owned.series = series.name;
        owned.against = {{first, "_over_sherman"}, {first + 1, "_over_shared"}};
        MakeOwnedCase(series.owners, &owned);
        WarmUp(grid, 0.5, &owned);
        figure.cases.push_back(std::move(owned));
      }
    }
  }
  figure.extra = [](const Figure& of, const std::vector<CaseResult>& results,
                    std::vector<Point>* points) {
    AddCosts(of, results, points);
    AddLimits(of, results, points);
    for (size_t i = 0; i < results.size(); ++i) {
      points->push_back({of.cases[i].series, of.cases[i].x, "throughput_over_published_sherman",
                         results[i].mops() / kShermanPublishedMops});
    }
  };
  return figure;
}

Figure MakeOwnedCache(const Grid& grid) {
  Figure figure = {.title = "Owners' memory, zipfian 0.99, operations at the owner",
                   .x_name = "memory of all owners / leaves"};
  const std::vector<NamedMix> mixes = {{"50/50", {.writes = 0.5}}, {"read-only", {}}};
  for (const NamedMix& mix : mixes) {
    for (const double share : Thinned<double>(grid, {0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0})) {
      FigureCase one = CaseOf(grid, kRecordsMax, OurSystem(), mix.mix, Zipfian(0.99));
      one.series = mix.name;
      one.x = share;
      MakeOwnedCase({.hot_share = share}, &one);
      if (mix.mix.writes > 0) WarmUp(grid, 4 * share, &one);
      figure.cases.push_back(std::move(one));
    }
  }
  figure.extra = &AddCosts;
  return figure;
}

// One owner: what a write costs does not depend on how many there are, and keys in ascending order
// are so only to whoever gets all of them.
Figure MakeBuffered(const Grid& grid) {
  Figure figure = {.title = "What a write costs, by how much of the tree may be buffered",
                   .x_name = "records that may be dirty / all records"};
  Grid one_server = grid;
  one_server.compute_servers = 1;
  const std::vector<double> shares =
      Thinned<double>(grid, {0.01, 0.02, 0.04, 0.08, 0.11, 0.16, 0.25});
  const std::vector<NamedDistribution> distributions = {
      Uniform(), Zipfian(0.99), {"ascending", {.name = "sequential"}}};
  for (const NamedDistribution& distribution : distributions) {
    const FigureCase like =
        CaseOf(one_server, kBufferedRecordsMax, OurSystem(), WriteOnly().mix, distribution);
    for (const NamedSystem& named : ThreeSystems()) {
      FigureCase shared = like;
      const char* const name = named.name == "Pando" ? "shared" : named.name.c_str();
      shared.series = absl::StrCat(distribution.name, ", ", name);
      shared.x = shares.front();
      TreeOf(shared).system = named.system;
      figure.cases.push_back(std::move(shared));
    }
    for (const double share : shares) {
      FigureCase owned = like;
      owned.series = absl::StrCat(distribution.name, ", owned");
      owned.x = share;
      const double dirty_bytes =
          share * kDirtyRecordBytes * static_cast<double>(owned.snapshot.records);
      MakeOwnedCase({.hot_bytes = static_cast<size_t>(2 * dirty_bytes)}, &owned);
      // Of popular keys it takes more writes until as many records are dirty.
      const bool popular = distribution.options.name == "zipfian";
      WarmUp(grid, (popular ? 6 : 2) * share + 0.2, &owned);
      figure.cases.push_back(std::move(owned));
    }
  }
  figure.extra = [shares](const Figure& of, const std::vector<CaseResult>& results,
                          std::vector<Point>* points) {
    AddCosts(of, results, points);
    // Those that buffer nothing cost the same whatever may be buffered.
    const std::vector<Point> there = *points;
    for (const Point& point : there) {
      if (point.metric.find("_an_operation") == std::string::npos) continue;
      if (point.series.find("owned") != std::string::npos) continue;
      points->push_back({point.series, shares.back(), point.metric, point.simulated});
    }
  };
  return figure;
}

// As in Lethe (SIGMOD'20): what it costs to bring every tombstone to its leaf in time. Rate and
// records are a tenth of 50,000 a second on a million: in a deadline there are as many writes a
// record.
Figure MakeDeletes(const Grid& grid) {
  Figure figure = {.title = "Deadlines of erases, uniform writes of one owner",
                   .x_name = "deadline, s (0: none)"};
  Grid one_server = grid;
  one_server.compute_servers = 1;
  for (const int percent : Thinned<int>(grid, {2, 5, 10})) {
    const size_t none = figure.cases.size();
    const std::vector<int> deadlines =
        grid.quick ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2, 5, 10, 20, 60};
    for (const int seconds : deadlines) {
      const double erases = percent / 100.0;
      FigureCase one = CaseOf(one_server, kDeletesRecordsMax, OurSystem(),
                              {.writes = 1 - erases, .erases = erases}, Uniform());
      one.series = absl::StrCat(percent, " % erases");
      one.x = seconds;
      one.snapshot.delete_persistence_ms = static_cast<uint32_t>(seconds) * 1'000;
      const double dirty_bytes =
          kDeletesDirtyShare * kDirtyRecordBytes * static_cast<double>(one.snapshot.records);
      MakeOwnedCase({.hot_bytes = static_cast<size_t>(2 * dirty_bytes)}, &one);
      TreeCase& tree = TreeOf(one);
      tree.operations_per_s = static_cast<double>(one.snapshot.records) / 20;
      // Of one without a deadline it is only reported how old they become.
      tree.tombstone_ns = std::max(seconds, 1) * kSecondNs;
      const int64_t shortest_ns = grid.quick ? kSecondNs : 20 * kSecondNs;
      tree.span.warmup_operations = tree.span.operations = 1;
      tree.span.warmup_ns = std::max(shortest_ns, tree.tombstone_ns);
      tree.span.measured_ns = 2 * tree.span.warmup_ns;
      if (seconds > 0) one.against = {{none, kAgainstNone}};
      figure.cases.push_back(std::move(one));
    }
  }
  figure.extra = [](const Figure& of, const std::vector<CaseResult>& results,
                    std::vector<Point>* points) {
    AddCosts(of, results, points);
    for (size_t i = 0; i < results.size(); ++i) {
      const FigureCase& one = of.cases[i];
      const auto add = [&](const char* metric, double value) {
        points->push_back({one.series, one.x, metric, value});
      };
      add("oldest_tombstone_s", static_cast<double>(results[i].oldest_tombstone_ms) / 1'000);
      if (one.against.empty()) continue;
      const double looks = std::max(1.0, static_cast<double>(results[i].looks));
      add("late_looks_percent", 100 * static_cast<double>(results[i].late_looks) / looks);
      const CaseResult& none = results[one.against.front().index];
      const auto add_extra = [&](const char* metric, uint64_t FabricStats::*count) {
        const double without = none.Each(none.fabric.*count);
        const double with = results[i].Each(results[i].fabric.*count);
        add(metric, without == 0 ? 0 : 100 * (with / without - 1));
      };
      add_extra("extra_chains_percent", &FabricStats::chains);
      add_extra("extra_bytes_read_percent", &FabricStats::bytes_read);
      add_extra("extra_bytes_written_percent", &FabricStats::bytes_written);
    }
  };
  return figure;
}

}  // namespace pando::bench
