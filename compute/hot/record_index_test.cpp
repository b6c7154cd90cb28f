#include "compute/hot/record_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "compute/hot/test_keys.h"

namespace pando {
namespace {

// An index, its records, and what it should hold.
class IndexedRecords {
 public:
  void Insert(const std::string& key) {
    RecordIndex::Path path;
    const bool found = index_.Find(key, &path);
    ASSERT_EQ(found, records_.contains(key));
    if (found) return;
    const RecordHandle handle =
        pool_.Allocate(HotRecord::BytesOf(RecordState::kDirty, key.size(), 0));
    pool_.At(handle)->Write(RecordState::kClean, 0, key, {});
    index_.Insert(&path, key, handle);
    ASSERT_EQ(index_.At(path), handle);
    records_[key] = handle;
  }

  void Erase(const std::string& key) {
    RecordIndex::Path path;
    const bool found = index_.Find(key, &path);
    ASSERT_EQ(found, records_.contains(key));
    if (!found) return;
    index_.Erase(&path);
    pool_.Free(records_[key]);
    records_.erase(key);
  }

  // Everything that can be asked about a place.
  void Look(const std::string& key) const {
    RecordIndex::Path path;
    const auto at = records_.lower_bound(key);
    ASSERT_EQ(index_.Find(key, &path), at != records_.end() && at->first == key);

    RecordIndex::Path next = path;
    ASSERT_EQ(index_.ToRecord(&next), at != records_.end());
    if (at != records_.end()) {
      ASSERT_EQ(index_.At(next), at->second);
      ASSERT_EQ(index_.Next(&next), std::next(at) != records_.end());
      if (std::next(at) != records_.end()) {
        ASSERT_EQ(index_.At(next), std::next(at)->second);
      }
    }
    RecordIndex::Path previous = path;
    ASSERT_EQ(index_.Previous(&previous), at != records_.begin());
    if (at != records_.begin()) {
      ASSERT_EQ(index_.At(previous), std::prev(at)->second);
    }

    ASSERT_EQ(index_.RecordsBefore(path), static_cast<size_t>(std::distance(records_.begin(), at)));
  }

  void CheckAll() const {
    ASSERT_EQ(index_.Check(), records_.size());
    RecordIndex::Path path;
    index_.Find("", &path);
    bool more = index_.ToRecord(&path);
    for (const auto& [key, record] : records_) {
      ASSERT_TRUE(more);
      ASSERT_EQ(index_.At(path), record);
      more = index_.Next(&path);
    }
    ASSERT_FALSE(more);
    index_.ToEnd(&path);
    for (auto i = records_.rbegin(); i != records_.rend(); ++i) {
      ASSERT_TRUE(index_.Previous(&path));
      ASSERT_EQ(index_.At(path), i->second);
    }
    ASSERT_FALSE(index_.Previous(&path));
  }

  size_t size() const { return records_.size(); }
  const RecordIndex& index() const { return index_; }
  std::string AnyKey(Random& random) const {
    auto at = records_.begin();
    std::advance(at, random.Uniform(records_.size()));
    return at->first;
  }

 private:
  RecordPool pool_;
  RecordIndex index_{&pool_};
  std::map<std::string, RecordHandle> records_;
};

class RecordIndexTest : public testing::TestWithParam<KeyKind> {};

TEST_P(RecordIndexTest, IsAnOrderedMap) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    IndexedRecords records;
    const uint64_t keys = 1 + random.Uniform(3000);
    // Grows first, shrinks then, several times.
    for (int turn = 0; turn < 4; ++turn) {
      for (uint64_t i = 0; i < keys; ++i) {
        const std::string key = TestKey(GetParam(), keys, random);
        if (random.Chance(turn % 2 == 0 ? 0.8 : 0.15)) {
          records.Insert(key);
        } else {
          records.Erase(key);
        }
        if (random.Chance(0.02)) records.Look(TestKey(GetParam(), keys, random));
        if (HasFatalFailure()) return;
      }
      records.CheckAll();
      if (HasFatalFailure()) return;
    }
    while (records.size() > 0) records.Erase(records.AnyKey(random));
    records.CheckAll();
  }
}

TEST_P(RecordIndexTest, InOrderBothWays) {
  for (const bool descending : {false, true}) {
    std::map<std::string, int> sorted;
    Random random(1);
    for (int i = 0; i < 5000; ++i) sorted[TestKey(GetParam(), 5000, random)] = i;
    std::vector<std::string> keys;
    for (const auto& [key, unused] : sorted) keys.push_back(key);
    if (descending) std::reverse(keys.begin(), keys.end());
    IndexedRecords records;
    for (const std::string& key : keys) records.Insert(key);
    records.CheckAll();
    // Nodes are left nearly full: about eight bytes an entry, and the prefix.
    if (keys.size() > 1000) {
      EXPECT_LT(records.index().bytes(), keys.size() * 16);
    }
    for (const std::string& key : keys) records.Erase(key);
    records.CheckAll();
  }
}

INSTANTIATE_TEST_SUITE_P(Keys, RecordIndexTest,
                         testing::Values(KeyKind::kRandom8, KeyKind::kDense8, KeyKind::kDecimal,
                                         KeyKind::kFewBytes, KeyKind::kDeep, KeyKind::kManyRanges));

std::string Digits(const char* before, size_t number) {
  const std::string digits = std::to_string(number);
  return before + std::string(8 - digits.size(), '0') + digits;
}

// What ascending inserts leave in a leaf, and what makes one full.
constexpr size_t kLeafRecords = 60, kFullLeaf = 64;

// The first key of a leaf goes, others make the leaf full, and one comes that is above the first,
// and so belongs there, but below all that is left. So the leaf is divided, and its parent where
// that is full, whose upper half may begin with the leaf.
TEST(RecordIndexTest, AKeyComesBelowTheFirstOfAFullLeaf) {
  for (size_t leaf = 1; leaf < 62; ++leaf) {
    SCOPED_TRACE(leaf);
    IndexedRecords records;
    // As many as one inner node has leaves.
    for (size_t i = 0; i < 63 * kLeafRecords + 20; ++i) records.Insert(Digits("", 10 * i));
    const size_t first = 10 * leaf * kLeafRecords;
    records.Erase(Digits("", first));
    for (size_t i = 1; i <= kFullLeaf - kLeafRecords + 1; ++i) {
      records.Insert(Digits("", first + 100 + i));
    }
    records.Insert(Digits("", first + 1));
    records.Look(Digits("", first + 1));
    records.CheckAll();
    if (HasFatalFailure()) return;
  }
}

// The same, and what the keys of the parent have in common has become longer meanwhile.
TEST(RecordIndexTest, AKeyComesBelowALongerPrefix) {
  for (size_t leaves = 3; leaves < 12; ++leaves) {
    SCOPED_TRACE(leaves);
    IndexedRecords records;
    for (size_t i = 0; i < kLeafRecords; ++i) records.Insert(Digits("a", i));
    records.Insert("b");
    for (size_t i = 0; i < leaves * kLeafRecords; ++i) records.Insert(Digits("c", 10 * i));
    records.Erase("b");
    for (size_t i = 1; i <= kFullLeaf - kLeafRecords + 1; ++i) records.Insert(Digits("c", i));
    records.Insert("bb");
    records.Look("bb");
    records.CheckAll();
    if (HasFatalFailure()) return;
  }
}

TEST(RecordIndexTest, SparseNodesAreMerged) {
  Random random(7);
  IndexedRecords records;
  std::vector<std::string> keys;
  for (int i = 0; i < 20000; ++i) {
    keys.push_back(TestKey(KeyKind::kRandom8, 1 << 30, random));
    records.Insert(keys.back());
  }
  const size_t full_bytes = records.index().bytes();
  keys.resize(19000);
  for (const std::string& key : keys) records.Erase(key);
  records.CheckAll();
  EXPECT_LT(records.index().bytes(), full_bytes / 8);
}

}  // namespace
}  // namespace pando
