// Gets that READ some lines of a leaf, and this library beside what its peers have published.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/figures/parts.h"

namespace pando::bench {
namespace {

struct Peer {
  std::string name;
  System system;
  uint32_t key_bytes;
  uint32_t node_bytes;  // 0: derived
  bool narrow;
  std::optional<Owners> owners = std::nullopt;  // of an owned tree
};
struct PeerLoad {
  std::string name;
  Mix mix;
  NamedDistribution distribution;
};

// The tree with fewer records: a leaf of it is the same, and so is what a get costs whose way is
// cached. What is hot is hotter.
constexpr uint64_t kRecordsDivisor = 10;
// Published ones say that a scan has up to 100 records, not how they are drawn: half of that.
constexpr uint32_t kScanRows = 50;
// Owners' memory, as a share of what the leaves take; half of it may be dirty.
constexpr double kHotShare = 0.25, kHotShareSmall = 0.05;
// Of uniform keys these are more writes than may be dirty; popular ones take more until as many
// are.
constexpr double kWarmUp = 0.3, kWarmUpPopular = 1;

// Sherman's nodes are those of its public code.
std::vector<Peer> Systems() {
  System narrow = OurSystem();
  narrow.techniques.narrow_writes = true;
  const auto owned = [](const char* name, bool routed, double hot_share) {
    return Peer{.name = name,
                .system = OurSystem(),
                .key_bytes = 24,
                .node_bytes = 0,
                .narrow = true,
                .owners = Owners{.routed = routed, .hot_share = hot_share}};
  };
  return {{.name = "Sherman, 24/8",
           .system = ShermanSystem(),
           .key_bytes = 24,
           .node_bytes = 1024,
           .narrow = false},
          {.name = "Pando, 24/8, whole leaves",
           .system = OurSystem(),
           .key_bytes = 24,
           .node_bytes = 0,
           .narrow = false},
          {.name = "Pando, 24/8, narrow",
           .system = OurSystem(),
           .key_bytes = 24,
           .node_bytes = 0,
           .narrow = true},
          {.name = "Pando, 24/8, narrow, 1 KiB",
           .system = OurSystem(),
           .key_bytes = 24,
           .node_bytes = 1024,
           .narrow = true},
          {.name = "Pando, 24/8, narrow, also writes",
           .system = narrow,
           .key_bytes = 24,
           .node_bytes = 0,
           .narrow = true},
          {.name = "Pando, 24/8, narrow, also writes, 1 KiB",
           .system = narrow,
           .key_bytes = 24,
           .node_bytes = 1024,
           .narrow = true},
          {.name = "Pando, 8/8, whole leaves",
           .system = OurSystem(),
           .key_bytes = 8,
           .node_bytes = 0,
           .narrow = false},
          {.name = "Pando, 8/8, narrow",
           .system = OurSystem(),
           .key_bytes = 8,
           .node_bytes = 0,
           .narrow = true},
          {.name = "Pando, 8/8, narrow, also writes",
           .system = narrow,
           .key_bytes = 8,
           .node_bytes = 0,
           .narrow = true},
          owned("Pando, 24/8, owned, routed", true, kHotShare),
          owned("Pando, 24/8, owned, routed, less memory", true, kHotShareSmall),
          owned("Pando, 24/8, owned, any", false, kHotShare)};
}

// Inserts bring keys that nobody has had, in no order: none of them is popular.
std::vector<PeerLoad> PeerLoads() {
  const auto mix = [](double writes, double scans, Mix::Keys keys) {
    return Mix{.writes = writes, .scans = scans, .scan_rows = kScanRows, .keys = keys};
  };
  const Mix read = mix(0, 0, Mix::Keys::kLoaded), update = mix(1, 0, Mix::Keys::kLoaded);
  const Mix scan = mix(0, 1, Mix::Keys::kLoaded);
  return {{.name = "read, uniform", .mix = read, .distribution = Uniform()},
          {.name = "read, zipfian", .mix = read, .distribution = Zipfian(0.99)},
          {.name = "insert", .mix = mix(1, 0, Mix::Keys::kNew), .distribution = Uniform()},
          {.name = "update, uniform", .mix = update, .distribution = Uniform()},
          {.name = "update, zipfian", .mix = update, .distribution = Zipfian(0.99)},
          {.name = "scan, uniform", .mix = scan, .distribution = Uniform()},
          {.name = "scan, zipfian", .mix = scan, .distribution = Zipfian(0.99)}};
}

// What limits each: how busy everything was, and what an operation cost.
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
    // Where it is 100, writers wait until records have come to their leaves.
    add("dirty_percent", 200 * static_cast<double>(result.owned.dirty_bytes) /
                             static_cast<double>(std::max<uint64_t>(1, result.hot_bytes_max)));
    add("hot_megabytes", static_cast<double>(result.hot_bytes_max) / 1e6);
    add("owned_hits_percent", result.OwnedHitPercent());
    add("chains_each", result.Each(result.fabric.chains));
    add("messages_each", result.Each(result.peer_messages));
    add("flushed_each", result.Each(result.owned.flushed));
    add("splits_each", result.Each(result.tree.splits));
  }
}

// Others have published figures and are not simulated.
void AddPeers(const Figure& figure, const std::vector<CaseResult>& results,
              std::vector<Point>* points) {
  AddLimits(figure, results, points);
  for (const char* peer : {"DMTree", "SMART", "CHIME", "dLSM", "ROLEX"}) {
    for (const PeerLoad& load : PeerLoads()) {
      points->push_back(
          {.series = peer, .x = load.name, .metric = "throughput_mops", .simulated = std::nan("")});
    }
  }
}

}  // namespace

Figure MakeNarrow(const Grid& grid) {
  Figure figure = {.title = "Gets that READ some lines of a leaf: read-only, uniform, 8/8",
                   .x_name = "clients"};
  const auto add = [&](const std::string& where, bool apart, const std::vector<int>& steps) {
    for (const int coroutines : Thinned<int>(grid, steps)) {
      const size_t first = figure.cases.size();
      for (const bool narrow : {false, true}) {
        FigureCase one = MakeTreeCase(grid, absl::StrCat(narrow ? "narrow" : "whole leaves", where),
                                      0, OurSystem(), {.keys = Mix::Keys::kLoaded}, Uniform());
        one.snapshot.narrow_reads = narrow;
        TreeOf(one).apart = apart;
        TreeOf(one).coroutines = coroutines;
        one.x = TreeOf(one).clients();
        if (narrow) one.against = {{.index = first, .suffix = "_over_whole"}};
        figure.cases.push_back(std::move(one));
      }
    }
  };
  add("", false, {1, 2, 4, 8, 16});
  // Where a host is not both, requests do not share a link with what is read.
  add(", compute servers on hosts of their own", true, {4, 8, 16});
  figure.extra = &AddLimits;
  return figure;
}

Figure MakePeers(const Grid& grid) {
  Figure figure = {.title = "One memory server, six compute servers, beside published figures",
                   .x_name = "load"};
  Grid sized = grid;
  sized.records = std::max<uint64_t>(grid.records / kRecordsDivisor, 3'000);
  sized.memory_servers = 1;
  if (!grid.quick) {
    sized.compute_servers = 6;
    sized.threads = 72;
  }
  figure.sized = sized;
  const std::vector<PeerLoad> loads = PeerLoads();
  for (const Peer& peer : Systems()) {
    for (size_t i = 0; i < loads.size(); ++i) {
      FigureCase one = MakeTreeCase(sized, peer.name, loads[i].name, peer.system, loads[i].mix,
                                    loads[i].distribution);
      one.snapshot.key_bytes = peer.key_bytes;
      one.snapshot.node_bytes = peer.node_bytes;
      one.snapshot.narrow_reads = peer.narrow;
      TreeCase& tree = TreeOf(one);
      tree.apart = true;
      tree.coroutines = grid.coroutines == 0 ? 4 : grid.coroutines;
      if (tree.mix.scans > 0) tree.span.operations /= 4;
      if (peer.owners.has_value()) MakeOwnedCase(*peer.owners, &one);
      if (peer.owners.has_value() && tree.mix.writes > 0) {
        const bool popular = tree.distribution.name == "zipfian";
        WarmUp(sized, popular ? kWarmUpPopular : kWarmUp, &one);
      }
      if (figure.cases.size() >= loads.size())
        one.against = {{.index = i, .suffix = "_over_sherman"}};
      figure.cases.push_back(std::move(one));
    }
  }
  figure.extra = &AddPeers;
  return figure;
}

}  // namespace pando::bench
