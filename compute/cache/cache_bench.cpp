// How fast the way down a cached tree is, how it scales to a second thread, and what it costs where
// only a part of the tree fits.
//
// TwoThreadsOverOne prints the median of 11 interleaved pairs, so that what else the machine does
// meets both sides: `wall_ratio` counts by the clock on the wall, `cpu_ratio` by the time that the
// threads were running (what it would be on idle cores).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
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

}  // namespace
}  // namespace pando

BENCHMARK_MAIN();
