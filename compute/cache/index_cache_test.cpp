#include "compute/cache/index_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/random.h"

namespace pando {
namespace {

constexpr uint32_t kTree = 7;

Reference NodeAt(uint64_t i, uint32_t life = 1) {
  return {RemoteAddress(static_cast<ServerId>(1 + i % 3), 4096 + i * 1024), life};
}

// A node whose child tells which node it is.
InternalNode NodeOf(uint64_t i, uint8_t level = 1, uint64_t version = 0) {
  InternalNode node;
  node.header.level = level;
  node.header.tree_id = kTree;
  node.header.leftmost = NodeAt(1'000'000 + i, static_cast<uint32_t>(version + 1));
  for (char c = 'b'; c <= 'i'; ++c) node.entries.push_back({std::string(1, c), NodeAt(i)});
  return node;
}

size_t BytesOfOne() {
  CachedNode* const node = CachedNode::Create(kTree, NodeAt(0), NodeOf(0));
  const size_t bytes = node->bytes();
  CachedNode::Destroy(node);
  return bytes;
}

// A thread's view of a cache.
class Reader {
 public:
  explicit Reader(IndexCache* cache) : cache_(*cache), slot_(cache->epochs().Register()) {}
  ~Reader() { cache_.epochs().Unregister(slot_); }

  // Life of the leftmost child, which NodeOf() made from the version; 0: not cached.
  uint32_t Find(const Reference& reference) const {
    const EpochDomain::Guard guard(cache_.epochs(), slot_);
    const CachedNode* const node = cache_.Find(reference);
    if (node == nullptr) return 0;
    EXPECT_EQ(node->self(), reference);
    return node->Child(0).life;
  }

 private:
  IndexCache& cache_;
  EpochDomain::Slot* const slot_;
};

TEST(IndexCache, FindsWhatWasInserted) {
  IndexCache cache(1 << 20, 1);
  const Reader reader(&cache);
  EXPECT_EQ(reader.Find(NodeAt(1)), 0u);
  for (uint64_t i = 0; i < 500; ++i) cache.Insert(kTree, NodeAt(i), NodeOf(i, 1, i));
  for (uint64_t i = 0; i < 500; ++i) EXPECT_EQ(reader.Find(NodeAt(i)), i + 1);
  EXPECT_EQ(reader.Find(NodeAt(500)), 0u);
  EXPECT_EQ(cache.level1_bytes(), 500 * BytesOfOne());
  EXPECT_EQ(cache.evictions(), 0u);
}

TEST(IndexCache, AReferenceMeansOneLife) {
  IndexCache cache(1 << 20, 1);
  const Reader reader(&cache);
  cache.Insert(kTree, NodeAt(1, 4), NodeOf(1));
  EXPECT_NE(reader.Find(NodeAt(1, 4)), 0u);
  EXPECT_EQ(reader.Find(NodeAt(1, 3)), 0u);
  EXPECT_EQ(reader.Find(NodeAt(1, 5)), 0u);
  // Forgetting another life forgets nothing.
  cache.Invalidate(NodeAt(1, 3));
  EXPECT_NE(reader.Find(NodeAt(1, 4)), 0u);
  // The next life takes the place of the last one.
  cache.Insert(kTree, NodeAt(1, 5), NodeOf(1, 1, 8));
  EXPECT_EQ(reader.Find(NodeAt(1, 4)), 0u);
  EXPECT_EQ(reader.Find(NodeAt(1, 5)), 9u);
  EXPECT_EQ(cache.level1_bytes(), BytesOfOne());
}

TEST(IndexCache, ReplacesAndInvalidates) {
  IndexCache cache(1 << 20, 1);
  const Reader reader(&cache);
  for (uint64_t version = 0; version < 300; ++version) {
    cache.Insert(kTree, NodeAt(5), NodeOf(5, 1, version));
    ASSERT_EQ(reader.Find(NodeAt(5)), version + 1);
    ASSERT_EQ(cache.level1_bytes(), BytesOfOne());
  }
  cache.Invalidate(NodeAt(5));
  cache.Invalidate(NodeAt(5));
  EXPECT_EQ(reader.Find(NodeAt(5)), 0u);
  EXPECT_EQ(cache.level1_bytes(), 0u);
  EXPECT_EQ(cache.evictions(), 0u) << "neither is an eviction";
}

TEST(IndexCache, AParentIsForgottenWhereItStillLeadsAstray) {
  IndexCache cache(1 << 20, 1);
  const Reader reader(&cache);
  const SearchKey key("a");
  const Reference child = NodeOf(1).header.leftmost, next = NodeOf(1, 1, 1).header.leftmost;
  cache.InvalidateIfLeads(NodeAt(1), key, child);  // not cached
  cache.Insert(kTree, NodeAt(1), NodeOf(1));
  cache.InvalidateIfLeads(NodeAt(1, 2), key, child);           // another life
  cache.InvalidateIfLeads(NodeAt(1), SearchKey("bb"), child);  // another child's key
  cache.InvalidateIfLeads(NodeAt(1), key, next);               // another child
  EXPECT_NE(reader.Find(NodeAt(1)), 0u);
  // Somebody has put a newer image there.
  cache.Insert(kTree, NodeAt(1), NodeOf(1, 1, 1));
  cache.InvalidateIfLeads(NodeAt(1), key, child);
  EXPECT_NE(reader.Find(NodeAt(1)), 0u);
  cache.InvalidateIfLeads(NodeAt(1), key, next);
  EXPECT_EQ(reader.Find(NodeAt(1)), 0u);
  // Nor does it lead keys beyond its fences anywhere.
  InternalNode right_part = NodeOf(1);
  right_part.header.low = "b";
  cache.Insert(kTree, NodeAt(1), right_part);
  cache.InvalidateIfLeads(NodeAt(1), key, child);
  EXPECT_NE(reader.Find(NodeAt(1)), 0u);
}

TEST(IndexCache, ANodeMayChangeItsLevel) {
  IndexCache cache(1 << 20, 1);
  const Reader reader(&cache);
  cache.Insert(kTree, NodeAt(5, 1), NodeOf(5, 1));
  cache.Insert(kTree, NodeAt(5, 2), NodeOf(5, 2));
  EXPECT_EQ(cache.level1_bytes(), 0u);
  EXPECT_EQ(cache.upper_bytes(), BytesOfOne());
  cache.Insert(kTree, NodeAt(5, 3), NodeOf(5, 1));
  EXPECT_EQ(cache.level1_bytes(), BytesOfOne());
  EXPECT_EQ(cache.upper_bytes(), 0u);
  EXPECT_NE(reader.Find(NodeAt(5, 3)), 0u);
}

TEST(IndexCache, NeverExceedsItsBound) {
  const size_t bound = 20 * BytesOfOne() + 17;
  IndexCache cache(bound, 3);
  const Reader reader(&cache);
  Random random(1);
  for (uint64_t i = 0; i < 5'000; ++i) {
    InternalNode node = NodeOf(i);
    for (uint64_t more = random.Uniform(40); more > 0; --more) {
      node.entries.push_back({"z" + std::string(more, 'z'), NodeAt(i)});
    }
    std::sort(node.entries.begin(), node.entries.end(),
              [](const Separator& a, const Separator& b) { return a.key < b.key; });
    cache.Insert(kTree, NodeAt(i), node);
    ASSERT_LE(cache.level1_bytes(), bound);
    ASSERT_EQ(reader.Find(NodeAt(i)), 1u) << "the newest is there";
  }
  EXPECT_GT(cache.evictions(), 4'000u);
  EXPECT_GT(cache.level1_bytes(), bound / 4);
}

TEST(IndexCache, ACacheTooSmallForOneNodeHoldsNone) {
  for (const size_t bound : {size_t{0}, BytesOfOne() - 1}) {
    IndexCache cache(bound, 1);
    const Reader reader(&cache);
    for (uint64_t i = 0; i < 50; ++i) cache.Insert(kTree, NodeAt(i), NodeOf(i));
    cache.Insert(kTree, NodeAt(100), NodeOf(100, 2));
    EXPECT_EQ(reader.Find(NodeAt(49)), 0u);
    EXPECT_EQ(reader.Find(NodeAt(100)), 1u);
    EXPECT_EQ(cache.level1_bytes(), 0u);
  }
}

TEST(IndexCache, SomeUpperLevelsAreKeptHoweverSmallTheBound) {
  IndexCache cache(4 * BytesOfOne(), 1);
  const Reader reader(&cache);
  for (uint64_t i = 0; i < 200; ++i) cache.Insert(kTree, NodeAt(i), NodeOf(i, 2 + i % 3));
  for (uint64_t i = 200; i < 1'000; ++i) cache.Insert(kTree, NodeAt(i), NodeOf(i, 1));
  for (uint64_t i = 0; i < 200; ++i) EXPECT_EQ(reader.Find(NodeAt(i)), 1u);
  EXPECT_EQ(cache.upper_bytes(), 200 * BytesOfOne());
  // They leave no room, but for what came last.
  EXPECT_EQ(cache.level1_bytes(), BytesOfOne());
  EXPECT_EQ(reader.Find(NodeAt(999)), 1u);
}

// Those that died were merged away by other clients, and nobody is led to them any more.
TEST(IndexCache, UpperLevelsThatNobodyLooksUpAreEvicted) {
  const size_t bound = 2 * IndexCache::kUpperBytesLeast;
  IndexCache cache(bound, 1);
  const Reader reader(&cache);
  constexpr uint64_t kUsed = 20;
  uint64_t misses = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    cache.Insert(kTree, NodeAt(i), NodeOf(i, i % 2 == 0 || i < kUsed ? 2 : 1));
    ASSERT_LE(cache.bytes(), bound);
    ASSERT_EQ(reader.Find(NodeAt(i)), 1u);
    for (uint64_t used = 0; used < std::min(i, kUsed); ++used) {
      if (reader.Find(NodeAt(used)) != 0) continue;
      ++misses;
      cache.Insert(kTree, NodeAt(used), NodeOf(used, 2));
    }
  }
  EXPECT_GT(cache.level1_bytes(), bound / 3) << "they leave room";
  EXPECT_LT(misses, 200u);
}

TEST(IndexCache, UpperLevelsCountInTheBound) {
  const size_t bound = 10 * BytesOfOne() + 17;
  IndexCache cache(bound, 1);
  const Reader reader(&cache);
  for (uint64_t i = 0; i < 100; ++i) cache.Insert(kTree, NodeAt(i), NodeOf(i));
  EXPECT_EQ(cache.level1_bytes(), 10 * BytesOfOne());
  for (uint64_t i = 100; i < 104; ++i) {
    cache.Insert(kTree, NodeAt(i), NodeOf(i, 2));
    ASSERT_LE(cache.bytes(), bound);
  }
  EXPECT_EQ(cache.level1_bytes(), 6 * BytesOfOne());
  for (uint64_t i = 104; i < 200; ++i) {
    cache.Insert(kTree, NodeAt(i), NodeOf(i));
    ASSERT_LE(cache.bytes(), bound);
    ASSERT_EQ(reader.Find(NodeAt(i)), 1u);
  }
  EXPECT_EQ(cache.level1_bytes(), 6 * BytesOfOne());
  // What they leave when they are gone is used again.
  for (uint64_t i = 100; i < 104; ++i) cache.Invalidate(NodeAt(i));
  for (uint64_t i = 200; i < 300; ++i) cache.Insert(kTree, NodeAt(i), NodeOf(i));
  EXPECT_EQ(cache.level1_bytes(), 10 * BytesOfOne());
}

// A node that starts at a key of its own, so that the directory wants a slot for it.
InternalNode NodeFrom(uint64_t i) {
  InternalNode node = NodeOf(i);
  node.header.low = std::string(4, '\0');
  for (size_t b = 4; b > 0; --b, i >>= 8) node.header.low[b - 1] = static_cast<char>(i);
  node.header.high = node.header.low + '\xff';
  node.entries.clear();
  return node;
}

TEST(IndexCache, WhatIsRetiredIsFreedByItsBytes) {
  IndexCache cache(64 << 20, 1);
  size_t most = 0;
  for (uint64_t i = 0; i < 50'000; ++i) {
    cache.Insert(kTree, NodeAt(i), NodeFrom(i));
    cache.Insert(kTree, NodeAt(i / 2), NodeFrom(i / 2));
    most = std::max(most, cache.epochs().retired_bytes());
  }
  EXPECT_LT(most, EpochDomain::kCollectBytes) << "arrays of up to a million bytes were replaced";
}

// The worst a reader can do: it stands still under its guard.
TEST(IndexCache, AReaderHoldsBackOneArrayAtMost) {
  IndexCache cache(64 << 20, 1);
  const std::shared_ptr<const ParentDirectory> directory = cache.DirectoryOf(kTree);
  const std::shared_ptr<const ParentDirectory> other = cache.DirectoryOf(kTree + 1);
  EpochDomain::Slot* const slot = cache.epochs().Register();
  uint64_t i = 0;
  for (; i < 1'000; ++i) cache.Insert(kTree, NodeAt(i), NodeFrom(i));
  {
    const EpochDomain::Guard guard(cache.epochs(), slot);
    const size_t array_bytes = directory->bytes();
    EXPECT_GT(array_bytes, 900 * 20u);
    for (; i < 20'000; ++i) {
      cache.Insert(kTree + static_cast<uint32_t>(i % 2), NodeAt(i), NodeFrom(i));
      ASSERT_LE(cache.epochs().retired_bytes(), array_bytes);
    }
  }
  for (; i < 21'000; ++i) {  // soon made up for
    cache.Insert(kTree + static_cast<uint32_t>(i % 2), NodeAt(i), NodeFrom(i));
  }
  for (const uint64_t n : {100, 9'998, 19'998, 9'999, 19'999}) {
    const EpochDomain::Guard guard(cache.epochs(), slot);
    const InternalNode node = NodeFrom(n);
    const CachedNode* const found =
        cache.FindParent(n < 1'000 || n % 2 == 0 ? *directory : *other, SearchKey(node.header.low));
    ASSERT_NE(found, nullptr) << n;
    EXPECT_EQ(found->self(), NodeAt(n));
  }
  cache.epochs().Unregister(slot);
}

TEST(IndexCache, EvictionPrefersWhatIsNotUsed) {
  constexpr uint64_t kHot = 50;
  IndexCache cache(100 * BytesOfOne(), 1);
  const Reader reader(&cache);
  for (uint64_t i = 0; i < kHot; ++i) cache.Insert(kTree, NodeAt(i), NodeOf(i));
  uint64_t hits = 0, lookups = 0;
  for (uint64_t i = kHot; i < 10'000; ++i) {
    cache.Insert(kTree, NodeAt(i), NodeOf(i));
    for (uint64_t hot = 0; hot < kHot; ++hot, ++lookups) {
      if (reader.Find(NodeAt(hot)) != 0) {
        ++hits;
      } else {
        cache.Insert(kTree, NodeAt(hot), NodeOf(hot));
      }
    }
  }
  // Half of the cache is hot. Blind eviction takes a hot node every second time, and so does the
  // insertion that brings it back: one miss an insertion. Of two choices both have to be hot: one
  // miss in three insertions.
  const double misses = static_cast<double>(lookups - hits) / static_cast<double>(lookups / kHot);
  EXPECT_LT(misses, 0.45);
}

TEST(IndexCache, AllOfATreeIsForgottenAndNothingElse) {
  IndexCache cache(1 << 20, 1);
  const Reader reader(&cache);
  for (uint64_t i = 0; i < 300; ++i) {
    cache.Insert(kTree + static_cast<uint32_t>(i % 2), NodeAt(i), NodeOf(i, 1 + i % 3));
  }
  cache.InvalidateTree(kTree);
  for (uint64_t i = 0; i < 300; ++i) EXPECT_EQ(reader.Find(NodeAt(i)), i % 2);
  cache.InvalidateTree(kTree + 1);
  EXPECT_EQ(cache.level1_bytes() + cache.upper_bytes(), 0u);
}

TEST(IndexCache, ANodeStaysReadableUnderItsGuard) {
  IndexCache cache(2 * BytesOfOne(), 1);
  EpochDomain::Slot* const slot = cache.epochs().Register();
  cache.Insert(kTree, NodeAt(1), NodeOf(1, 1, 4));
  {
    const EpochDomain::Guard guard(cache.epochs(), slot);
    const CachedNode* const node = cache.Find(NodeAt(1));
    ASSERT_NE(node, nullptr);
    cache.Invalidate(NodeAt(1));
    for (uint64_t i = 2; i < 1'000; ++i) cache.Insert(kTree, NodeAt(i), NodeOf(i));
    EXPECT_EQ(node->Child(0).life, 5u);
    EXPECT_EQ(node->Child(8), NodeAt(1));
  }
  cache.epochs().Unregister(slot);
}

// Lookups, insertions, evictions and invalidations at once. A lookup returns the node that was
// asked for, whole, or none; the bound holds at every moment.
TEST(IndexCache, ThreadsLookUpWhileOthersReplaceAndEvict) {
  constexpr uint64_t kNodes = 200;
  const size_t bound = 60 * BytesOfOne();
  IndexCache cache(bound, 5);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> hits{0}, lookups{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const Reader reader(&cache);
      Random random(t);
      uint64_t own_hits = 0, own_lookups = 0;
      while (!stop || own_lookups < 1'000) {
        own_hits += reader.Find(NodeAt(random.Uniform(kNodes))) != 0;
        ++own_lookups;
      }
      hits += own_hits;
      lookups += own_lookups;
    });
  }
  std::vector<std::thread> writers;
  for (uint64_t w = 0; w < 2; ++w) {
    writers.emplace_back([&, w] {
      Random random(100 + w);
      for (uint64_t i = 0; i < 20'000; ++i) {
        const uint64_t n = random.Uniform(kNodes);
        const uint8_t level = n % 50 == 0 ? 2 : 1;
        cache.Insert(kTree, NodeAt(n), NodeOf(n, level, i));
        EXPECT_LE(cache.level1_bytes(), bound);
        if (i % 7 == 0) cache.Invalidate(NodeAt(random.Uniform(kNodes)));
        if (i % 5'000 == 0) cache.InvalidateTree(kTree);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(hits, 0u);
  EXPECT_LT(hits, lookups);
  EXPECT_GT(cache.evictions(), 0u);
}

}  // namespace
}  // namespace pando
