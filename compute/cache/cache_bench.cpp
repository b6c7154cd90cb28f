// How fast the way down a cached tree is, how it scales to a second thread, what it costs where
// only a part of the tree fits, and what the cache of a large tree takes.
//
// TwoThreadsOverOne prints the median of 11 interleaved pairs, so that what else the machine does
// meets both sides: `wall_ratio` counts by the clock on the wall, `cpu_ratio` by the time that the
// threads were running (what it would be on idle cores). LookupInALargeTree says what the cache
// takes a leaf: `node_bytes` is counted, `resident_bytes` is what the process grew by.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/wire/leaf.h"
#include "compute/cache/index_cache.h"

namespace pando {
namespace {

constexpr uint32_t kTree = 1;
constexpr uint64_t kParents = 500, kFanOut = 40;
constexpr uint64_t kLeaves = kParents * kFanOut;
constexpr uint64_t kLookups = 400'000;

using Key = std::array<char, 8>;

Key KeyOf(uint64_t n) {
  Key key;
  for (size_t i = 8; i > 0; --i, n >>= 8) key[i - 1] = static_cast<char>(n & 0xff);
  return key;
}
std::string Text(uint64_t n) {
  const Key key = KeyOf(n);
  return {key.data(), key.size()};
}

Reference LeafAt(uint64_t n) { return {RemoteAddress(1, (n + 1) * 1024), 1}; }
Reference ParentAt(uint64_t n) { return {RemoteAddress(2, (n + 1) * 1024), 1}; }
const Reference kRoot{RemoteAddress(3, 1024), 1};

// Leaf n holds the keys from n * 100 on.
InternalNode ParentNode(uint64_t n) {
  InternalNode node;
  node.header.level = 1;
  node.header.low = n == 0 ? "" : Text(n * kFanOut * 100);
  node.header.high = n + 1 == kParents ? "" : Text((n + 1) * kFanOut * 100);
  node.header.leftmost = LeafAt(n * kFanOut);
  for (uint64_t i = n * kFanOut + 1; i < (n + 1) * kFanOut; ++i) {
    node.entries.push_back({Text(i * 100), LeafAt(i)});
  }
  return node;
}

InternalNode RootNode() {
  InternalNode node;
  node.header.level = 2;
  node.header.leftmost = ParentAt(0);
  for (uint64_t n = 1; n < kParents; ++n) {
    node.entries.push_back({Text(n * kFanOut * 100), ParentAt(n)});
  }
  return node;
}

void Fill(IndexCache& cache) {
  cache.Insert(kTree, kRoot, RootNode());
  for (uint64_t n = 0; n < kParents; ++n) cache.Insert(kTree, ParentAt(n), ParentNode(n));
}

// Leaf of a key; null where the parent is not cached, which `parent` is then.
Reference Descend(const IndexCache& cache, EpochDomain& epochs, EpochDomain::Slot* slot,
                  const SearchKey& key, Reference* parent) {
  const EpochDomain::Guard guard(epochs, slot);
  const CachedNode* const root = cache.Find(kRoot);
  *parent = root->Child(root->ChildIndex(key));
  const CachedNode* const node = cache.Find(*parent);
  if (node == nullptr || !node->Covers(key)) return {};
  return node->Child(node->ChildIndex(key));
}

double SecondsOnCpu() { return static_cast<double>(ThreadCpuNs()) / kSecondNs; }

struct Rate {  // lookups a second, of all threads together
  double wall = 0, cpu = 0;
};

Rate LookUp(IndexCache& cache, uint64_t threads) {
  std::barrier start(static_cast<std::ptrdiff_t>(threads));
  std::vector<Rate> rates(threads);
  std::vector<std::thread> running;
  for (uint64_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      EpochDomain::Slot* const slot = cache.epochs().Register();
      Random random(t);
      Reference parent;
      start.arrive_and_wait();
      const auto wall_start = std::chrono::steady_clock::now();
      const double cpu_start = SecondsOnCpu();
      for (uint64_t i = 0; i < kLookups; ++i) {
        const Key key = KeyOf(random.Uniform(kLeaves * 100));
        const SearchKey search({key.data(), key.size()});
        benchmark::DoNotOptimize(Descend(cache, cache.epochs(), slot, search, &parent));
      }
      const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - wall_start;
      rates[t] = {.wall = kLookups / wall.count(), .cpu = kLookups / (SecondsOnCpu() - cpu_start)};
      cache.epochs().Unregister(slot);
    });
  }
  Rate sum;
  for (uint64_t t = 0; t < threads; ++t) {
    running[t].join();
    sum.wall += rates[t].wall;
    sum.cpu += rates[t].cpu;
  }
  return sum;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void TwoThreadsOverOne(benchmark::State& state) {
  constexpr int kPairs = 11;
  IndexCache cache(64 << 20, 1);
  Fill(cache);
  LookUp(cache, 2);  // warm
  std::vector<double> wall, cpu, one;
  for (auto _ : state) {
    for (int pair = 0; pair < kPairs; ++pair) {
      const Rate single = LookUp(cache, 1), both = LookUp(cache, 2);
      wall.push_back(both.wall / single.wall);
      cpu.push_back(both.cpu / single.cpu);
      one.push_back(single.cpu);
    }
  }
  state.counters["wall_ratio"] = Median(wall);
  state.counters["cpu_ratio"] = Median(cpu);
  state.counters["one_thread_per_second"] = Median(one);
}
BENCHMARK(TwoThreadsOverOne)->Iterations(1)->Unit(benchmark::kMillisecond);

void Lookup(benchmark::State& state) {
  IndexCache cache(64 << 20, 1);
  Fill(cache);
  EpochDomain::Slot* const slot = cache.epochs().Register();
  Random random(1);
  Reference parent;
  for (auto _ : state) {
    const Key key = KeyOf(random.Uniform(kLeaves * 100));
    const SearchKey search({key.data(), key.size()});
    benchmark::DoNotOptimize(Descend(cache, cache.epochs(), slot, search, &parent));
  }
  cache.epochs().Unregister(slot);
}
BENCHMARK(Lookup);

// Argument: percent of the level-1 nodes that fit. A miss inserts the node, as a descent does after
// it has READ it.
void LookupInASmallCache(benchmark::State& state) {
  size_t needed_bytes = 0;
  {
    IndexCache all(64 << 20, 1);
    Fill(all);
    needed_bytes = all.level1_bytes();
  }
  IndexCache cache(needed_bytes * static_cast<size_t>(state.range(0)) / 100, 1);
  Fill(cache);
  std::vector<InternalNode> parents;
  for (uint64_t n = 0; n < kParents; ++n) parents.push_back(ParentNode(n));
  EpochDomain::Slot* const slot = cache.epochs().Register();
  Random random(1);
  Reference parent;
  uint64_t misses = 0;
  for (auto _ : state) {
    const Key key = KeyOf(random.Uniform(kLeaves * 100));
    const SearchKey search({key.data(), key.size()});
    if (!Descend(cache, cache.epochs(), slot, search, &parent).is_null()) continue;
    ++misses;
    cache.Insert(kTree, parent, parents[parent.address.offset() / 1024 - 1]);
  }
  state.counters["miss_share"] =
      static_cast<double>(misses) / static_cast<double>(state.iterations());
  state.counters["bound_share"] =
      static_cast<double>(cache.level1_bytes()) / static_cast<double>(needed_bytes);
  cache.epochs().Unregister(slot);
}
BENCHMARK(LookupInASmallCache)->Arg(100)->Arg(50)->Arg(10)->Arg(1);

// A tree whose leaves lie on four servers in turn: of consecutive numbers, or of numbers that are
// spread over all there are.
class LargeTree {
 public:
  LargeTree(uint64_t leaves, bool dense)
      : leaves_(leaves), dense_(dense), step_(dense ? kLeafKeys : UINT64_MAX / leaves) {
    const size_t before_bytes = ResidentBytes();
    for (uint64_t n = 0; n < leaves; n += kLeavesAParent) {
      cache_.Insert(kTree, ParentAt(n), Parent(n));
      retired_bytes_max_ = std::max(retired_bytes_max_, cache_.epochs().retired_bytes());
    }
    resident_bytes_ = ResidentBytes() - before_bytes;
  }

  uint64_t RandomKey(Random* random) const { return random->Uniform(leaves_) * step_ + 3; }
  Reference Leaf(EpochDomain::Slot* slot, const SearchKey& key) const {
    const EpochDomain::Guard guard(cache_.epochs(), slot);
    const CachedNode* const parent = cache_.FindParent(*directory_, key);
    return parent == nullptr ? Reference() : parent->Child(parent->ChildIndex(key));
  }
  IndexCache& cache() { return cache_; }
  void Report(benchmark::State* state) const {
    const auto a_leaf = [&](size_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(leaves_);
    };
    state->counters["node_bytes"] = a_leaf(cache_.level1_bytes());
    state->counters["resident_bytes"] = a_leaf(resident_bytes_);
    state->counters["directory_bytes"] = a_leaf(directory_->bytes());
    state->counters["retired_bytes_max"] = a_leaf(retired_bytes_max_);
  }

 private:
  static constexpr uint64_t kLeavesAParent = 32, kLeafKeys = 37, kServers = 4;

  static size_t ResidentBytes() {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages * 4096;
  }
  uint64_t FirstKey(uint64_t leaf) const {
    uint64_t mixed = leaf;
    return leaf * step_ + (dense_ ? 0 : SplitMix64(&mixed) % step_);
  }
  std::string Fence(uint64_t leaf) const {
    if (leaf == 0 || leaf >= leaves_) return "";
    const uint64_t key = FirstKey(leaf), before = key - 1 - (dense_ ? 0 : step_ / kLeafKeys);
    return ShortestSeparator(Text(before), Text(key));
  }
  static Reference ChildAt(uint64_t n) {
    return {RemoteAddress(static_cast<ServerId>(1 + n % kServers), (n / kServers + 64) * 1024), 1};
  }
  InternalNode Parent(uint64_t first) const {
    const uint64_t end = std::min(first + kLeavesAParent, leaves_);
    InternalNode node;
    node.header.level = 1;
    node.header.low = Fence(first);
    node.header.high = Fence(end);
    node.header.leftmost = ChildAt(first);
    for (uint64_t n = first + 1; n < end; ++n) node.entries.push_back({Fence(n), ChildAt(n)});
    return node;
  }

  const uint64_t leaves_;
  const bool dense_;
  const uint64_t step_;
  mutable IndexCache cache_{size_t{4} << 30, 1};
  const std::shared_ptr<const ParentDirectory> directory_ = cache_.DirectoryOf(kTree);
  size_t retired_bytes_max_ = 0, resident_bytes_ = 0;
};

// Arguments: leaves, and whether keys are dense.
void LookupInALargeTree(benchmark::State& state) {
  static std::vector<int64_t> made_for;  // made once, not in each of the library's attempts
  static std::unique_ptr<LargeTree> made;
  if (const std::vector<int64_t> wanted = {state.range(0), state.range(1)}; made_for != wanted) {
    made.reset();
    made = std::make_unique<LargeTree>(static_cast<uint64_t>(wanted[0]), wanted[1] != 0);
    made_for = wanted;
  }
  LargeTree& tree = *made;
  EpochDomain::Slot* const slot = tree.cache().epochs().Register();
  Random random(1);
  uint64_t missed = 0;
  for (auto _ : state) {
    const Key key = KeyOf(tree.RandomKey(&random));
    missed += tree.Leaf(slot, SearchKey({key.data(), key.size()})).is_null() ? 1 : 0;
  }
  tree.cache().epochs().Unregister(slot);
  tree.Report(&state);
  state.counters["missed_share"] =
      static_cast<double>(missed) / static_cast<double>(state.iterations());
}
BENCHMARK(LookupInALargeTree)->Args({10'000'000, 1})->Args({30'000'000, 0});
// For callgrind: a million lookups are what the second runs more than the first.
BENCHMARK(LookupInALargeTree)->Args({100'000, 0})->Iterations(100'000);
BENCHMARK(LookupInALargeTree)->Args({100'000, 0})->Iterations(1'100'000);

}  // namespace
}  // namespace pando

BENCHMARK_MAIN();
