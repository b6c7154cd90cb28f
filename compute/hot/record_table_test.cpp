#include "compute/hot/record_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compute/hot/test_keys.h"

namespace pando {
namespace {

// A table, its records, and what it should hold.
class TabledRecords {
 public:
  void Insert(const std::string& key) {
    RecordHandle* const place = table_.Find(key, HashOf(key));
    ASSERT_EQ(place != nullptr, records_.contains(key));
    if (place != nullptr) return;
    const RecordHandle handle = NewRecord(key);
    ASSERT_EQ(*table_.Insert(HashOf(key), handle), handle);
    records_[key] = handle;
  }
  void Erase(const std::string& key) {
    RecordHandle* const place = table_.Find(key, HashOf(key));
    ASSERT_EQ(place != nullptr, records_.contains(key));
    if (place == nullptr) return;
    ASSERT_EQ(*place, records_[key]);
    ASSERT_EQ(table_.Find(*place, HashOf(key)), place);
    pool_.Free(*place);
    table_.Erase(place, HashOf(key));
    ASSERT_EQ(table_.Find(key, HashOf(key)), nullptr);
    records_.erase(key);
  }
  // The record goes to another slot.
  void Move(const std::string& key) {
    RecordHandle* const place = table_.Find(key, HashOf(key));
    if (place == nullptr) return;
    const RecordHandle old = *place;
    *place = records_[key] = NewRecord(key);
    pool_.Free(old);
  }
  void CheckAll() const {
    ASSERT_EQ(table_.Check(), records_.size());
    for (const auto& [key, handle] : records_) {
      const RecordHandle* const place = table_.Find(key, HashOf(key));
      ASSERT_TRUE(place != nullptr && *place == handle);
    }
  }
  size_t bytes() const { return table_.bytes(); }
  size_t size() const { return records_.size(); }
  std::string First() const { return records_.begin()->first; }
  void Clear() {
    table_.Clear();
    pool_.Clear();
    records_.clear();
  }

 private:
  RecordHandle NewRecord(const std::string& key) {
    const RecordHandle handle =
        pool_.Allocate(HotRecord::BytesOf(RecordState::kClean, key.size(), 0));
    pool_.At(handle)->Write(RecordState::kClean, 0, key, {});
    return handle;
  }

  RecordPool pool_;
  RecordTable table_{&pool_};
  std::map<std::string, RecordHandle> records_;
};

class RecordTableTest : public testing::TestWithParam<KeyKind> {};

TEST_P(RecordTableTest, IsAMap) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    TabledRecords records;
    const uint64_t keys = 1 + random.Uniform(seed % 5 == 0 ? 20'000 : 1000);
    // Grows first, shrinks then, several times.
    for (int turn = 0; turn < 4; ++turn) {
      for (uint64_t i = 0; i < keys; ++i) {
        const std::string key = TestKey(GetParam(), keys, random);
        if (random.Chance(turn % 2 == 0 ? 0.8 : 0.15)) {
          records.Insert(key);
        } else {
          records.Erase(key);
        }
        if (random.Chance(0.1)) records.Move(TestKey(GetParam(), keys, random));
        if (HasFatalFailure()) return;
      }
      records.CheckAll();
      if (HasFatalFailure()) return;
    }
    while (records.size() > 0) records.Erase(records.First());
    records.CheckAll();
    records.Insert("again");
    records.Clear();
    records.CheckAll();
  }
}

INSTANTIATE_TEST_SUITE_P(Keys, RecordTableTest,
                         testing::Values(KeyKind::kRandom8, KeyKind::kDense8, KeyKind::kDecimal,
                                         KeyKind::kFewBytes, KeyKind::kDeep, KeyKind::kManyRanges));

// Keys whose hashes are as `is` wants them.
std::vector<std::string> KeysWhere(size_t count, const std::function<bool(uint64_t)>& is) {
  std::vector<std::string> keys;
  for (uint64_t i = 0; keys.size() < count; ++i) {
    std::string key(8, '\0');
    for (size_t byte = 0; byte < 8; ++byte) key[byte] = static_cast<char>(i >> (8 * byte));
    if (is(HashOf(key))) keys.push_back(std::move(key));
  }
  return keys;
}

// Pages that cannot be divided become larger instead, and the directory stays small.
TEST(RecordTableTest, KeysOfOnePlaceInTheDirectory) {
  TabledRecords records;
  const auto keys = KeysWhere(3000, [](uint64_t hash) { return hash >> 52 == 0; });
  for (const std::string& key : keys) records.Insert(key);
  records.CheckAll();
  EXPECT_LT(records.bytes(), 100'000u);
  for (const std::string& key : keys) records.Erase(key);
  records.CheckAll();
}

// All want one bucket of their page, with one tag.
TEST(RecordTableTest, KeysOfOneBucketAndOneTag) {
  TabledRecords records;
  const auto keys =
      KeysWhere(300, [](uint64_t hash) { return (hash >> 32 & 0xff) == 7 && (hash & 0x3f) == 1; });
  for (const std::string& key : keys) records.Insert(key);
  records.CheckAll();
  for (size_t i = 0; i < keys.size(); i += 2) records.Erase(keys[i]);
  records.CheckAll();
  for (size_t i = 0; i < keys.size(); i += 2) records.Insert(keys[i]);
  records.CheckAll();
}

TEST(RecordTableTest, ThereIsLittleMoreRoomThanIsUsed) {
  Random random(1);
  TabledRecords records;
  for (size_t n = 1; n <= 300'000; ++n) {
    records.Insert(TestKey(KeyKind::kRandom8, 1 << 30, random));
    if (n % 25'000 == 0) {
      EXPECT_LT(records.bytes(), records.size() * 8);
    }
  }
  const size_t full_bytes = records.bytes();
  while (records.size() > 10'000) records.Erase(records.First());
  records.CheckAll();
  EXPECT_LT(records.bytes(), full_bytes / 6);
}

TEST(RecordTableTest, OneThatWasClearedCountsAsANewOne) {
  Random random(2);
  TabledRecords records;
  const size_t new_bytes = records.bytes();
  for (int round = 0; round < 3; ++round) {
    for (int n = 0; n < 50'000; ++n) records.Insert(TestKey(KeyKind::kRandom8, 1 << 30, random));
    records.CheckAll();
    EXPECT_GT(records.bytes(), 50'000u);
    records.Clear();
    records.CheckAll();
    EXPECT_EQ(records.bytes(), new_bytes);
  }
}

}  // namespace
}  // namespace pando
