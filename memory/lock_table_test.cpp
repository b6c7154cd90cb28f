// The server's lock words behind a LockTable: a NIC's memory, or a NIC's atomics.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "common/wire/lock_word.h"
#include "memory/fencing.h"
#include "memory/region.h"
#include "memory/test_support.h"

namespace pando::memory {
namespace {

constexpr ClientId kDead = {7, 3};

class FakeLockTable final : public LockTable {
 public:
  uint64_t words() const override { return values.size(); }
  absl::Status Read(uint64_t first, std::span<uint64_t> into) override {
    if (broken) return absl::UnavailableError("the device failed");
    for (size_t i = 0; i < into.size(); ++i) into[i] = values.at(first + i);
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> CompareSwap(uint64_t word, uint64_t compare, uint64_t swap) override {
    if (broken) return absl::UnavailableError("the device failed");
    // Somebody else is faster, once.
    const auto faster = overtaken_by.find(word);
    if (faster != overtaken_by.end()) {
      values.at(word) = faster->second;
      overtaken_by.erase(faster);
    }
    const uint64_t found = values.at(word);
    if (found == compare) values.at(word) = swap;
    return found;
  }

  std::vector<uint64_t> values = std::vector<uint64_t>(2000);
  std::map<uint64_t, uint64_t> overtaken_by;
  bool broken = false;
};

class LockTableTest : public testing::Test {
 protected:
  LockTableTest() {
    ServerMemory memory = plain_.memory();
    memory.locks = {};
    memory.lock_table = &table_;
    region_.emplace(*Region::Format(memory, {}));
  }
  PlainMemory plain_;
  FakeLockTable table_;
  std::optional<Region> region_;
};

TEST_F(LockTableTest, ItsSizeIsTheSuperblocks) {
  EXPECT_EQ(region_->superblock().lock_words, 2000u);
}

TEST_F(LockTableTest, WordsOfTheDeadAreFreedAndNoOthers) {
  const uint64_t others = WordOf({8, 3}), later = WordOf({7, 4});
  for (const uint64_t word : {0, 511, 512, 1023, 1999}) table_.values[word] = WordOf(kDead);
  table_.values[1] = others;
  table_.values[513] = later;
  table_.values[1500] = WordOf(kDead);
  table_.overtaken_by[1500] = others;  // who read that it is dead (rule C3)
  EXPECT_EQ(region_->ClearLockWords(kDead, 0, 2000).value(), 5u);
  std::vector<uint64_t> expected(2000);
  expected[1] = expected[1500] = others;
  expected[513] = later;
  EXPECT_EQ(table_.values, expected);
}

TEST_F(LockTableTest, OnlyTheWordsAskedForAreLookedAt) {
  for (uint64_t& word : table_.values) word = WordOf(kDead);
  EXPECT_EQ(region_->ClearLockWords(kDead, 100, 700).value(), 700u);
  EXPECT_EQ(table_.values[99], WordOf(kDead));
  EXPECT_EQ(table_.values[100], 0u);
  EXPECT_EQ(table_.values[799], 0u);
  EXPECT_EQ(table_.values[800], WordOf(kDead));
}

TEST_F(LockTableTest, AWordIsClearedWhateverItHolds) {
  table_.values[5] = WordOf(kDead);
  table_.overtaken_by[5] = WordOf({8, 3});
  EXPECT_TRUE(region_->ClearLockWord(5).ok());
  EXPECT_EQ(table_.values[5], 0u);
}

TEST_F(LockTableTest, ABrokenDeviceLeavesThemTaken) {
  table_.values[5] = WordOf(kDead);
  table_.broken = true;
  EXPECT_TRUE(absl::IsUnavailable(region_->ClearLockWords(kDead, 0, 2000).status()));
  EXPECT_TRUE(absl::IsUnavailable(region_->ClearLockWord(5)));
  EXPECT_EQ(table_.values[5], WordOf(kDead));
}

// The entry in the table of the dead may be overwritten only once no word is left (rule C2).
TEST_F(LockTableTest, FencingGoesOnWhereADeviceBroke) {
  for (const uint64_t word : {5, 1999}) table_.values[word] = WordOf(kDead);
  Fencing fencing(&*region_, 1000);
  fencing.Add(kDead);
  ASSERT_TRUE(fencing.Step().ok());  // published
  ASSERT_TRUE(fencing.Step().ok());  // the first 1000
  EXPECT_EQ(table_.values[5], 0u);
  table_.broken = true;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(absl::IsUnavailable(fencing.Step().status()));
  EXPECT_TRUE(fencing.IsPending(kDead));
  table_.broken = false;
  const auto done = fencing.Step();
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(*done, kDead);
  EXPECT_EQ(table_.values[1999], 0u);
  EXPECT_TRUE(fencing.idle());
}

}  // namespace
}  // namespace pando::memory
