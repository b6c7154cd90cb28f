// What the hot paths of this room cost. Warm: one node again and again; Spread: random nodes of 16
// MiB, as after a READ that left the image in the caches' outer levels.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <span>
#include <vector>

#include "common/wire/test_images.h"

namespace pando {
namespace {

std::string BenchKey(uint64_t i, uint32_t bytes) {
  std::string key(bytes, 'k');
  const uint64_t mixed = __builtin_bswap64(SplitMix64(&i));
  std::memcpy(key.data(), &mixed, std::min<size_t>(bytes, 8));
  return key;
}

// Full leaves, one behind the other.
struct Leaves {
  NodeLayout layout;
  bool crc;
  std::vector<TestImage> images;
  std::vector<std::vector<std::string>> keys;

  Leaves(const NodeLayout& l, bool with_crc, size_t bytes) : layout(l), crc(with_crc) {
    uint64_t next = 0;
    for (size_t done = 0; done < bytes; done += layout.node_bytes()) {
      std::vector<LeafEntry> entries;
      auto& node_keys = keys.emplace_back();
      for (uint32_t i = 0; i < layout.slot_count(); ++i) {
        node_keys.push_back(BenchKey(next++, layout.key_bytes_max()));
        entries.push_back({node_keys.back(), std::string(layout.value_bytes_max(), 'v')});
      }
      images.push_back(TestLeaf(layout, TestHeader(), entries, crc));
    }
  }
};

NodeLayout LayoutOf(const benchmark::State& state) {
  return TestLayout(static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)));
}

void Get(benchmark::State& state, bool crc, size_t bytes) {
  Leaves leaves(LayoutOf(state), crc, bytes);
  Random random(1);
  std::string value;
  for (auto _ : state) {
    const size_t node = random.Uniform(leaves.images.size());
    const std::string& key = leaves.keys[node][random.Uniform(leaves.layout.slot_count())];
    LeafMatch match;
    const NodeVerdict verdict =
        Classify(leaves.images[node].data(), leaves.layout, TestExpectation(key), crc, &match);
    if (verdict != NodeVerdict::kAccepted || match.slot < 0) state.SkipWithError("not found");
    ReadSlotValue(leaves.images[node].data(), leaves.layout, static_cast<uint32_t>(match.slot),
                  &value);
    benchmark::DoNotOptimize(value.data());
  }
}
void BM_GetWarm(benchmark::State& state) { Get(state, false, 1); }
void BM_GetWarmCrc(benchmark::State& state) { Get(state, true, 1); }
void BM_GetSpread(benchmark::State& state) { Get(state, false, 16 << 20); }
BENCHMARK(BM_GetWarm)->Args({8, 8})->Args({7, 8})->Args({60, 8})->Args({255, 255});
BENCHMARK(BM_GetWarmCrc)->Args({8, 8});
BENCHMARK(BM_GetSpread)->Args({8, 8});

// The yardstick: copy a node and look for one 8-byte word in it.
void BM_CopyAndSearch(benchmark::State& state) {
  Leaves leaves(TestLayout(8, 8), false, 16 << 20);
  Random random(1);
  TestImage copy(leaves.layout);
  for (auto _ : state) {
    const size_t node = random.Uniform(leaves.images.size());
    copy = leaves.images[node];
    const std::string& key = leaves.keys[node][random.Uniform(leaves.layout.slot_count())];
    uint64_t want;
    std::memcpy(&want, key.data(), 8);
    int found = -1;
    for (uint32_t slot = 0; slot < leaves.layout.slot_count() && found < 0; ++slot) {
      uint64_t word;
      std::memcpy(&word, copy.data() + leaves.layout.SharedSlotOffset(slot) + 2, 8);
      if (word == want) found = static_cast<int>(slot);
    }
    benchmark::DoNotOptimize(found);
  }
}
BENCHMARK(BM_CopyAndSearch);

void BM_Update(benchmark::State& state) {
  Leaves leaves(LayoutOf(state), false, 1);
  Random random(1);
  const std::string value(leaves.layout.value_bytes_max(), 'w');
  for (auto _ : state) {
    const std::string& key = leaves.keys[0][random.Uniform(leaves.layout.slot_count())];
    LeafEditor editor(leaves.images[0].data(), leaves.layout, false);
    if (!editor.Put(key, value)) state.SkipWithError("no slot");
    benchmark::DoNotOptimize(editor.SealDirty(4096));
  }
}
BENCHMARK(BM_Update)->Args({8, 8})->Args({60, 8})->Args({255, 255});

void BM_EraseAndInsert(benchmark::State& state) {
  Leaves leaves(LayoutOf(state), false, 1);
  Random random(1);
  const std::string value(leaves.layout.value_bytes_max(), 'w');
  for (auto _ : state) {
    std::string& key = leaves.keys[0][random.Uniform(leaves.layout.slot_count())];
    LeafEditor editor(leaves.images[0].data(), leaves.layout, false);
    if (!editor.Erase(key)) state.SkipWithError("absent");
    benchmark::DoNotOptimize(editor.SealDirty(4096));
    key = BenchKey(random.Next(), leaves.layout.key_bytes_max());
    if (!editor.Put(key, value)) state.SkipWithError("no slot");
    benchmark::DoNotOptimize(editor.SealDirty(4096));
  }
}
BENCHMARK(BM_EraseAndInsert)->Args({8, 8});

void BM_ReadLeafEntries(benchmark::State& state) {
  Leaves leaves(LayoutOf(state), false, 1);
  std::vector<LeafEntry> entries;
  for (auto _ : state) {
    if (!ReadLeafEntries(leaves.images[0].data(), leaves.layout, &entries))
      state.SkipWithError("torn");
  }
}
BENCHMARK(BM_ReadLeafEntries)->Args({8, 8})->Args({60, 8});

void BM_Split(benchmark::State& state) {
  Leaves leaves(LayoutOf(state), false, 1);
  TestImage left(leaves.images[0]), right(leaves.layout);
  WriteHeader(right.data(), leaves.layout, TestHeader());
  std::vector<LeafEntry> sorted;
  for (auto _ : state) {
    left = leaves.images[0];
    if (!ReadLeafEntries(left.data(), leaves.layout, &sorted)) state.SkipWithError("torn");
    std::sort(sorted.begin(), sorted.end(),
              [](const auto& a, const auto& b) { return a.key < b.key; });
    const auto slots = static_cast<uint32_t>(sorted.size() - 1);
    const size_t cut = ChooseCuts(sorted, slots, /*ascending=*/false).front();
    LeafEditor editor(left.data(), leaves.layout, false);
    SetHigh(left.data(), leaves.layout, ShortestSeparator(sorted[cut - 1].key, sorted[cut].key));
    editor.ClearOutOfFence();
    FillLeaf(right.data(), leaves.layout, std::span(sorted).subspan(cut));
    SealNodeLevel(left.data(), leaves.images[0].data(), leaves.layout, false);
    SealNodeLevel(right.data(), right.data(), leaves.layout, false);
  }
}
BENCHMARK(BM_Split)->Args({8, 8});

void BM_DecodeInternal(benchmark::State& state) {
  const NodeLayout layout = LayoutOf(state);
  InternalNode node{TestHeader(1), {}};
  for (uint64_t i = 0;; ++i) {
    const std::string key = BenchKey(i, layout.key_bytes_max());
    if (node.StreamBytes() + InternalNode::EntryBytes(key) > layout.internal_payload_bytes()) break;
    node.Insert(key, {RemoteAddress(1, 64 * (i + 1)), 1});
  }
  TestImage image(layout);
  EncodeInternal(node, layout, image.data(), false, image.data());
  for (auto _ : state) {
    if (!DecodeInternal(image.data(), layout, &node).ok()) state.SkipWithError("malformed");
  }
}
BENCHMARK(BM_DecodeInternal)->Args({8, 8})->Args({60, 8});

}  // namespace
}  // namespace pando

BENCHMARK_MAIN();
