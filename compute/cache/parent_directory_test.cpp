#include "compute/cache/parent_directory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "compute/cache/index_cache.h"

namespace pando {
namespace {

constexpr uint32_t kOneTree = 1, kOtherTree = 2;
constexpr uint64_t kParents = 300;

Reference ParentAt(uint64_t i) { return {RemoteAddress(1, (i + 1) * 1024), 1}; }

// A level-1 node of [low, high).
InternalNode ParentOf(std::string low, std::string high) {
  InternalNode node;
  node.header.level = 1;
  node.header.low = std::move(low);
  node.header.high = std::move(high);
  node.header.leftmost = {RemoteAddress(1, 1 << 30), 1};
  return node;
}

std::string Number(uint64_t n, size_t bytes = 8) {
  std::string text(bytes, '\0');
  for (size_t i = bytes; i > 0; --i, n >>= 8) text[i - 1] = static_cast<char>(n);
  return text;
}

class ParentDirectoryTest : public testing::Test {
 protected:
  ~ParentDirectoryTest() override { cache_.epochs().Unregister(slot_); }

  // Node i of kParents covers [fence(i), fence(i + 1)).
  template <typename Fence>
  void Insert(uint64_t i, Fence fence, uint32_t tree = kOneTree) {
    cache_.Insert(tree, ParentAt(i),
                  ParentOf(i == 0 ? "" : fence(i), i + 1 == kParents ? "" : fence(i + 1)));
  }
  // Address of the node that covers the key; null: none is known.
  RemoteAddress Find(const std::string& key) {
    const EpochDomain::Guard guard(cache_.epochs(), slot_);
    const SearchKey search(key);
    const CachedNode* const node = cache_.FindParent(*directory_, search);
    if (node == nullptr) return {};
    EXPECT_TRUE(node->Covers(search));
    return node->address();
  }

  IndexCache cache_{64 << 20, 1};
  EpochDomain::Slot* const slot_ = cache_.epochs().Register();
  const std::shared_ptr<const ParentDirectory> directory_ = cache_.DirectoryOf(kOneTree);
};

std::string EvenFence(uint64_t i) { return Number(i * (UINT64_MAX / kParents)); }

TEST_F(ParentDirectoryTest, KnowsNothingAtFirst) { EXPECT_TRUE(Find("key").is_null()); }

TEST_F(ParentDirectoryTest, FindsMostOfWhatIsCached) {
  for (uint64_t i = 0; i < kParents; ++i) Insert(i * 7 % kParents, EvenFence);
  uint64_t found = 0;
  for (uint64_t i = 0; i < kParents; ++i) {
    for (const uint64_t more : {0, 1, 1000}) {
      const RemoteAddress node = Find(Number(i * (UINT64_MAX / kParents) + more));
      if (node.is_null()) continue;
      EXPECT_EQ(node, ParentAt(i).address);
      ++found;
    }
  }
  EXPECT_GT(found, 3 * kParents / 2);
}

TEST_F(ParentDirectoryTest, ForgetsAndTakesBack) {
  for (uint64_t i = 0; i < kParents; ++i) Insert(i, EvenFence);
  const std::string key = EvenFence(5);
  ASSERT_EQ(Find(key), ParentAt(5).address);
  cache_.Invalidate(ParentAt(5));
  EXPECT_TRUE(Find(key).is_null());
  EXPECT_EQ(Find(EvenFence(6)), ParentAt(6).address);
  Insert(5, EvenFence);
  EXPECT_EQ(Find(key), ParentAt(5).address);
  Insert(5, EvenFence);  // replaced
  EXPECT_EQ(Find(key), ParentAt(5).address);
}

TEST_F(ParentDirectoryTest, UnevenKeysAreFoundToo) {
  const auto fence = [](uint64_t i) {
    return i < kParents / 2 ? Number(i) : Number(UINT64_MAX - kParents + i);
  };
  for (uint64_t i = 0; i < kParents; ++i) Insert(i, fence);
  EXPECT_EQ(Find(Number(3)), ParentAt(3).address);
  EXPECT_EQ(Find(Number(kParents / 2 - 2)), ParentAt(kParents / 2 - 2).address);
  EXPECT_EQ(Find(Number(uint64_t{1} << 40)), ParentAt(kParents / 2 - 1).address);
}

TEST_F(ParentDirectoryTest, FencesThatDifferLateAreNeverMistaken) {
  const auto fence = [](uint64_t i) { return "the same first bytes" + Number(i, 2); };
  for (uint64_t i = 0; i < kParents; ++i) Insert(i, fence);
  for (uint64_t i = 0; i < kParents; ++i) {
    const RemoteAddress node = Find(fence(i));
    EXPECT_TRUE(node.is_null() || node == ParentAt(i).address);
  }
}

TEST_F(ParentDirectoryTest, TreesAreApart) {
  for (uint64_t i = 0; i < kParents; ++i) Insert(i, EvenFence, kOtherTree);
  EXPECT_TRUE(Find(EvenFence(5)).is_null());
  for (uint64_t i = 0; i < kParents; ++i) Insert(i, EvenFence);
  ASSERT_EQ(Find(EvenFence(5)), ParentAt(5).address);
  cache_.InvalidateTree(kOtherTree);
  EXPECT_EQ(Find(EvenFence(5)), ParentAt(5).address);
  cache_.InvalidateTree(kOneTree);
  EXPECT_TRUE(Find(EvenFence(5)).is_null());
}

TEST_F(ParentDirectoryTest, FollowsASmallCacheThroughEvictions) {
  size_t bytes = 0;
  {
    IndexCache all(64 << 20, 1);
    all.Insert(kOneTree, ParentAt(0), ParentOf(EvenFence(1), EvenFence(2)));
    bytes = all.level1_bytes();
  }
  IndexCache cache(bytes * 30, 1);
  const std::shared_ptr<const ParentDirectory> directory = cache.DirectoryOf(kOneTree);
  EpochDomain::Slot* const slot = cache.epochs().Register();
  Random random(1);
  uint64_t found = 0;
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t i = 1 + random.Uniform(kParents - 2);
    bool here = false;
    {
      const EpochDomain::Guard guard(cache.epochs(), slot);
      const std::string text = EvenFence(i);
      const CachedNode* const node = cache.FindParent(*directory, SearchKey(text));
      here = node != nullptr;
      if (here) {
        ASSERT_EQ(node->address(), ParentAt(i).address);
      }
    }
    found += here ? 1 : 0;
    if (!here) cache.Insert(kOneTree, ParentAt(i), ParentOf(EvenFence(i), EvenFence(i + 1)));
  }
  EXPECT_GT(found, 0u);
  EXPECT_LE(cache.level1_bytes(), bytes * 30);
  cache.epochs().Unregister(slot);
}

// Node i covers the keys that begin with i. What separators and children are like depends on i, so
// that nodes of every form are searched.
class NodesOfAllForms {
 public:
  static constexpr uint64_t kNodes = 400, kSeparators = 20;

  static std::string Low(uint64_t i) { return Number(i + 1, 4); }
  static InternalNode Node(uint64_t i) {
    InternalNode node = ParentOf(Low(i), Low(i + 1));
    const auto child = [i](uint64_t n) {
      const bool far_apart = i % 6 == 5, old = i % 6 == 4;
      const auto server = static_cast<ServerId>(1 + (far_apart ? n : n % 4));
      return Reference{RemoteAddress(server, (i * 64 + n + 1) * 1024),
                       static_cast<uint32_t>(old ? n + 1 : 1)};
    };
    node.header.leftmost = child(0);
    for (uint64_t n = 1; n <= kSeparators; ++n) {
      node.entries.push_back({Low(i) + Suffix(i % 6, n), child(n)});
    }
    return node;
  }

 private:
  static std::string Suffix(uint64_t form, uint64_t n) {
    const std::string first = Number(n * 10, 1);
    if (form == 1) return first + "abc";
    if (form == 2) return first + "not all in a head";
    if (form == 3) return first + (n % 2 == 0 ? std::string(1, '\0') : "not all in a head");
    return first;
  }
};

// Searches for a key of each form that must lead to the child of the plain node, or nowhere.
class Searcher {
 public:
  Searcher(IndexCache* cache, const ParentDirectory& directory, uint64_t seed)
      : cache_(*cache), directory_(directory), random_(seed), slot_(cache->epochs().Register()) {
    for (uint64_t i = 0; i < NodesOfAllForms::kNodes; ++i) {
      nodes_.push_back(NodesOfAllForms::Node(i));
    }
  }
  ~Searcher() { cache_.epochs().Unregister(slot_); }

  // Whether the parent was found.
  bool Search() {
    const uint64_t i = random_.Uniform(nodes_.size());
    const std::string key =
        NodesOfAllForms::Low(i) + Number(random_.Uniform(256), 1) + Number(random_.Next(), 3);
    const SearchKey search(key);
    const EpochDomain::Guard guard(cache_.epochs(), slot_);
    const CachedNode* const node = cache_.FindParent(directory_, search);
    if (node == nullptr) return false;
    EXPECT_EQ(node->address(), ParentAt(i).address);
    EXPECT_EQ(node->Child(node->ChildIndex(search)), nodes_[i].ChildFor(key));
    return true;
  }

 private:
  IndexCache& cache_;
  const ParentDirectory& directory_;
  Random random_;
  EpochDomain::Slot* const slot_;
  std::vector<InternalNode> nodes_;
};

// Searches while nodes come and go, and while array follows array. ThreadSanitizer reports
// memory that is freed or changed while a reader looks at it.
TEST(ParentDirectory, ThreadsSearchItWhileItIsMadeAnew) {
  constexpr uint64_t kSearchesMin = 1'000, kArraysMin = 50, kInsertionsMin = 4'000;
  IndexCache cache(30'000, 1);  // a quarter of the nodes
  const std::shared_ptr<const ParentDirectory> directory = cache.DirectoryOf(kOneTree);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> found{0};
  std::vector<std::thread> readers;
  for (uint64_t t = 0; t < 2; ++t) {
    readers.emplace_back([&, t] {
      Searcher searcher(&cache, *directory, t);
      for (uint64_t n = 0; n < kSearchesMin || !stop; ++n) found += searcher.Search() ? 1 : 0;
    });
  }
  Random random(9);
  uint64_t arrays = 0;
  size_t array_bytes = 0;
  // A reader that the processor has left holds up the next array.
  for (uint64_t n = 0; n < kInsertionsMin || arrays < kArraysMin; ++n) {
    const uint64_t i = random.Uniform(NodesOfAllForms::kNodes);
    cache.Insert(kOneTree, ParentAt(i), NodesOfAllForms::Node(i));
    if (n % 3 == 0) cache.Invalidate(ParentAt(random.Uniform(NodesOfAllForms::kNodes)));
    arrays += directory->bytes() != array_bytes ? 1 : 0;
    array_bytes = directory->bytes();
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_GT(found, 0u);
}

}  // namespace
}  // namespace pando
