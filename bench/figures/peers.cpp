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
// Owners' memory, as a share of what the leaves take; half of it may be dirty, or almost all.
constexpr double kHotShare = 0.25, kHotShareSmall = 0.05, kHotShareLarge = 0.5;
constexpr int kDirtyPercent = ClientOptions().dirty_percent, kDirtyPercentMost = 90;
// Writes a record before the span begins: a leaf that waits for its flush has gathered as much as
// any does by then, when all have been flushed twice. Until it is the first leaf's turn again they
// get half of that. And writes of the span.
constexpr double kWarmUp = 0.7, kWarmUpPopular = 1, kMeasured = 0.15;
// Where more may be dirty than half of a quarter, both are as much longer.
double TimesAsLong(const Owners& owners) {
  return std::max(1.0, owners.hot_share / kHotShare * owners.dirty_percent / kDirtyPercent);
}
// Of an owner with 72 threads of clients, beside them; one of service for each other owner.
constexpr int kFlushThreads = 10, kServiceThreads = 5;

// Sherman's nodes are those of its public code.
std::vector<Peer> Systems() {
  System narrow = OurSystem();
  narrow.techniques.narrow_writes = true;
  const auto owned = [](const char* name, const System& system, bool routed, double hot_share,
                        int flush_threads = kFlushThreads, int dirty_percent = kDirtyPercent) {
    return Peer{.name = name,
                .system = system,
                .key_bytes = 24,
                .node_bytes = 0,
                .narrow = true,
                .owners = Owners{.routed = routed,
                                 .hot_share = hot_share,
                                 .service_threads = kServiceThreads,
                                 .flush_threads = flush_threads,
                                 .dirty_percent = dirty_percent}};
  };
  return {
      {.name = "Sherman, 24/8",
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
      owned("Pando, 24/8, owned, routed", OurSystem(), true, kHotShare),
      owned("Pando, 24/8, owned, routed, one flush thread", OurSystem(), true, kHotShare, 1),
      owned("Pando, 24/8, owned, routed, more of it dirty", OurSystem(), true, kHotShare,
            kFlushThreads, kDirtyPercentMost),
      owned("Pando, 24/8, owned, routed, half of the leaves in memory", OurSystem(), true,
            kHotShareLarge),
      owned("Pando, 24/8, owned, routed, less memory", OurSystem(), true, kHotShareSmall),
      owned("Pando, 24/8, owned, routed, less memory, narrow writes", narrow, true, kHotShareSmall),
      owned("Pando, 24/8, owned, any", OurSystem(), false, kHotShare)};
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
        const double long_as = TimesAsLong(*peer.owners);
        const bool popular = tree.distribution.name == "zipfian";
        WarmUp(sized, long_as * (popular ? kWarmUpPopular : kWarmUp), &one);
        tree.span.operations = std::max(
            grid.span.operations,
            static_cast<uint64_t>(long_as * kMeasured * static_cast<double>(sized.records)));
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
