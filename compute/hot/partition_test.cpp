// What a partition promises, one promise a test.
#include "compute/hot/partition.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compute/hot/test_keys.h"

namespace pando {
namespace {

// A clean record, as a READ leaves it.
void Keep(Partition& partition, const std::string& key, const std::string& value) {
  ASSERT_TRUE(partition.EndLoad(key, partition.BeginLoad(key), value, true));
}

FlushItem TakeFlush(Partition& partition, const std::string& key) {
  std::vector<FlushItem> items;
  partition.CollectDirty(key, key + '\0', UINT64_MAX, true, 1, &items);
  EXPECT_EQ(items.size(), 1u);
  return items.empty() ? FlushItem{} : items[0];
}

// Rule B4.
TEST(PartitionTest, WhatIsWrittenAgainIsOwed) {
  Partition partition;
  partition.Put("a", "1", 1);
  partition.Put("b", "1", 2);
  const FlushItem before = TakeFlush(partition, "b");
  partition.Owe();
  EXPECT_EQ(partition.owed(), 2u);
  partition.Put("a", "2", 3);
  partition.Put("b", "2", 4);
  partition.Put("c", "1", 5);
  EXPECT_EQ(partition.owed(), 2u);
  // What was collected before does not count, if it is not the newest.
  partition.EndFlush(before, FlushResult::kDone);
  EXPECT_EQ(partition.owed(), 2u);
  partition.Renew("a", 6);
  EXPECT_EQ(partition.owed(), 2u);
  std::vector<FlushItem> items;
  partition.CollectDirty("", "", UINT64_MAX, false, SIZE_MAX, &items, UINT64_MAX, SIZE_MAX, false,
                         /*owed=*/true);
  ASSERT_EQ(items.size(), 2u);
  partition.Put("a", "3", 7);
  partition.EndFlush(items[0], FlushResult::kDone);
  EXPECT_EQ(partition.Find("a").state, RecordState::kDirty);
  partition.EndFlush(items[1], FlushResult::kDone);
  EXPECT_EQ(partition.owed(), 0u);
  partition.Owe();
  EXPECT_EQ(partition.owed(), 2u);  // a and c
  partition.Check();
}

TEST(PartitionTest, AReadThatAPutOvertookDoesNotCount) {
  Partition partition;
  const Load load = partition.BeginLoad("key");
  partition.Put("key", "new", 1);
  EXPECT_FALSE(partition.EndLoad("key", load, "old", true));
  EXPECT_EQ(partition.Find("key").value, "new");
}

// What pins were for: everything happens to the record while its READ is under way.
TEST(PartitionTest, AReadDoesNotCountAfterItsRecordWasFlushedAndEvictedAndIsReadAgain) {
  Partition partition;
  const Load old_load = partition.BeginLoad("key");
  partition.Put("key", "new", 1);
  partition.EndFlush(TakeFlush(partition, "key"), FlushResult::kDone);
  partition.Evict(SIZE_MAX);
  partition.Evict(SIZE_MAX);
  ASSERT_EQ(partition.Find("key").state, RecordState::kAbsent);
  EXPECT_FALSE(partition.EndLoad("key", old_load, "old", true));

  const Load load = partition.BeginLoad("key");
  EXPECT_FALSE(partition.EndLoad("key", old_load, "old", true));
  EXPECT_TRUE(partition.EndLoad("key", load, "new", true));
  EXPECT_EQ(partition.Find("key").value, "new");
}

TEST(PartitionTest, LoadsOfOnePartitionDoNotCountInAnother) {
  Partition one, other;
  const Load load = one.BeginLoad("key");
  other.BeginLoad("key");
  EXPECT_FALSE(other.EndLoad("key", load, "value", true));
  EXPECT_EQ(other.Find("key").state, RecordState::kLoading);
}

TEST(PartitionTest, AFlushOfAnOlderMessageLeavesTheRecordDirty) {
  Partition partition;
  partition.Put("key", "1", 1);
  const FlushItem first = TakeFlush(partition, "key");
  partition.Put("key", "2", 2);
  // One flush of a record at a time.
  std::vector<FlushItem> items;
  partition.CollectDirty("", "", 2, true, 10, &items);
  partition.CollectDirty("", "", 2, true, 10, &items, 2);
  EXPECT_TRUE(items.empty());

  partition.EndFlush(first, FlushResult::kDone);
  EXPECT_EQ(partition.Find("key").state, RecordState::kDirty);
  EXPECT_GT(partition.LowestDirty(), 0u);
  EXPECT_LE(partition.LowestDirty(), 2u);
  partition.EndFlush(TakeFlush(partition, "key"), FlushResult::kDone);
  EXPECT_EQ(partition.Find("key").state, RecordState::kClean);
  EXPECT_EQ(partition.Find("key").lsn, 0u);
  EXPECT_EQ(partition.LowestDirty(), 0u);
}

TEST(PartitionTest, WhatIsNotDurableIsNotFlushed) {
  Partition partition;
  partition.Put("a", "", 1);
  partition.Erase("b", 2);
  std::vector<FlushItem> items;
  partition.CollectDirty("", "", 1, true, 10, &items);
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].key, "a");
}

// Rule B5.
TEST(PartitionTest, TombstonesAreKnownAndCollectedByThemselves) {
  Partition partition;
  EXPECT_EQ(partition.LowestTombstone(), kNoLsn);
  partition.Put("a", "", 1);
  partition.Erase("b", 2);
  partition.Erase("c", 3);
  partition.Put("c", "again", 4);
  partition.DivideTombstones(5);
  partition.Erase("a", 5);
  EXPECT_EQ(partition.tombstones(), 2u);
  EXPECT_EQ(partition.LowestTombstone(), 2u);
  std::vector<FlushItem> items;
  partition.CollectDirty("", "", UINT64_MAX, true, 10, &items, /*below=*/5, SIZE_MAX,
                         /*tombstones=*/true);
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].key, "b");
  partition.EndFlush(items[0], FlushResult::kFailed);
  EXPECT_EQ(partition.LowestTombstone(), 2u);
  partition.EndFlush(TakeFlush(partition, "b"), FlushResult::kDone);
  EXPECT_EQ(partition.tombstones(), 1u);
  EXPECT_EQ(partition.LowestTombstone(), 5u);
  partition.EndFlush(TakeFlush(partition, "a"), FlushResult::kDone);
  EXPECT_EQ(partition.LowestTombstone(), kNoLsn);
  partition.Erase("d", 6);
  partition.Drop();
  EXPECT_EQ(partition.tombstones(), 0u);
  partition.Check();
}

TEST(PartitionTest, ATombstoneStaysUntilItIsFlushed) {
  Partition partition;
  Keep(partition, "key", "value");
  partition.Erase("key", 1);
  partition.Evict(SIZE_MAX);
  partition.Evict(SIZE_MAX);
  EXPECT_EQ(partition.Find("key").state, RecordState::kTombstone);
  EXPECT_EQ(partition.LowestDirty(), 1u);
  partition.EndFlush(TakeFlush(partition, "key"), FlushResult::kDone);
  EXPECT_EQ(partition.Find("key").state, RecordState::kAbsent);
  EXPECT_EQ(partition.records(), 0u);
}

TEST(PartitionTest, TheClockTakesWhatWasNotUsedAgain) {
  Partition partition;
  for (int i = 0; i < 1000; ++i) Keep(partition, "key" + std::to_string(i), "value");
  partition.Touch(partition.Find("key7").record);
  partition.Put("dirty", "", 1);
  EXPECT_GT(partition.Evict(SIZE_MAX), 0u);
  EXPECT_EQ(partition.records(), 2u);
  EXPECT_EQ(partition.Find("key7").state, RecordState::kClean);
  EXPECT_EQ(partition.Find("dirty").state, RecordState::kDirty);
  // Not used since: it goes the next time.
  partition.Evict(SIZE_MAX);
  EXPECT_EQ(partition.records(), 1u);
}

TEST(PartitionTest, EvictionFreesAsMuchAsItShouldAndLooksNoFurther) {
  Partition partition;
  for (uint64_t i = 0; i < 10000; ++i) Keep(partition, std::to_string(10000000 + i), "12345678");
  const size_t before = partition.bytes();
  EXPECT_GE(partition.Evict(10000), 10000u);
  EXPECT_GE(partition.bytes() + 11000, before);
  const size_t records = partition.records();
  partition.Evict(SIZE_MAX, 100);
  EXPECT_GE(partition.records() + 100, records);
  EXPECT_LT(partition.records(), records);
}

TEST(PartitionTest, WhatIsRefusedCountsApart) {
  Partition partition;
  partition.Put("key", "value", 1);
  partition.EndFlush(TakeFlush(partition, "key"), FlushResult::kRefused);
  EXPECT_EQ(partition.dirty().records, 0u);
  EXPECT_EQ(partition.refused().records, 1u);
  EXPECT_EQ(partition.refused().bytes, 8u);
  EXPECT_EQ(partition.LowestDirty(), 1u) << "it holds the log's base as others do";
  // Another value has no better chance.
  partition.Put("key", "v", 2);
  EXPECT_EQ(partition.refused().bytes, 4u);
  std::vector<FlushItem> items;
  partition.CollectDirty("", "", 2, false, 1, &items);
  EXPECT_TRUE(items.empty());
  partition.EndFlush(TakeFlush(partition, "key"), FlushResult::kDone);
  EXPECT_EQ(partition.refused().records, 0u);
  EXPECT_EQ(partition.records(), 1u);
}

TEST(PartitionTest, AnEraseHasAChanceOfItsOwn) {
  Partition partition;
  partition.Put("key", "value", 1);
  partition.EndFlush(TakeFlush(partition, "key"), FlushResult::kRefused);
  partition.Erase("key", 2);
  EXPECT_EQ(partition.refused().records, 0u);
  EXPECT_EQ(partition.dirty().records, 1u);
  // Of a put that was on its way meanwhile neither.
  partition.Put("key", "value", 3);
  const FlushItem item = TakeFlush(partition, "key");
  partition.Erase("key", 4);
  partition.EndFlush(item, FlushResult::kRefused);
  EXPECT_EQ(partition.refused().records, 0u);
  std::vector<FlushItem> items;
  partition.CollectDirty("", "", 4, /*refused=*/false, 1, &items);
  ASSERT_EQ(items.size(), 1u);
  EXPECT_TRUE(items[0].erased);
  // Its leaf cannot be reached.
  partition.EndFlush(items[0], FlushResult::kRefused);
  EXPECT_EQ(partition.refused().records, 1u);
  EXPECT_EQ(partition.dirty().records, 0u);
  partition.EndFlush(TakeFlush(partition, "key"), FlushResult::kDone);
  EXPECT_EQ(partition.refused().records, 0u);
  EXPECT_EQ(partition.records(), 0u);
  partition.Check();
}

TEST(PartitionTest, ARecordThatIsAppendedAgainNoLongerHoldsTheBase) {
  Partition partition;
  partition.Put("a", "1", 1);
  partition.DivideLsns(2);
  partition.Put("b", "2", 2);
  EXPECT_EQ(partition.LowestDirty(), 1u);
  partition.Renew("a", 3);
  EXPECT_EQ(partition.LowestDirty(), 2u);
  EXPECT_EQ(partition.Find("a").value, "1");
  EXPECT_EQ(partition.Find("a").lsn, 3u);
}

TEST(PartitionTest, ASplitKeepsOrderAndEndsLoads) {
  Partition lower, upper;
  lower.Put("b", "", 1);
  lower.Put("d", "", 2);
  lower.Put("a", "", 3);
  lower.Erase("c", 4);
  Keep(lower, "e", "kept");
  const Load load = lower.BeginLoad("f");
  LoadWaiter waiter{.wake = [](LoadWaiter*) {}};
  lower.Wait(lower.Find("f").record, &waiter);
  const FlushItem flush = TakeFlush(lower, "d");

  lower.MoveDirtyTo("c", "", &upper);
  EXPECT_EQ(lower.records(), 3u);
  EXPECT_EQ(upper.records(), 2u);
  EXPECT_EQ(lower.LowestDirty(), 1u);
  EXPECT_EQ(upper.LowestDirty(), 2u);
  EXPECT_EQ(upper.Find("c").lsn, 4u);
  EXPECT_EQ(upper.Find("e").state, RecordState::kAbsent);
  EXPECT_EQ(waiter.outcome, LoadWaiter::Outcome::kWaiting);
  Partition::Place at;
  EXPECT_FALSE(lower.MoveCleanTo("c", "", SIZE_MAX, &at, &upper));
  EXPECT_EQ(lower.records(), 2u);
  EXPECT_EQ(upper.Find("e").value, "kept");
  EXPECT_EQ(waiter.outcome, LoadWaiter::Outcome::kLook);
  EXPECT_FALSE(upper.EndLoad("f", load, "late", true));
  EXPECT_FALSE(lower.EndLoad("f", load, "late", true));
  upper.EndFlush(flush, FlushResult::kDone);
  EXPECT_EQ(upper.Find("d").state, RecordState::kClean);
  upper.Check();
  lower.Check();
}

TEST(PartitionTest, WhatIsCleanFollowsASplitSomeAtATime) {
  constexpr int kKeys = 100;
  const auto key = [](int i) { return "key" + std::to_string(100 + i); };
  Partition whole, part;
  for (int i = 0; i < kKeys; ++i) Keep(whole, key(i), "old");
  whole.MoveDirtyTo("", key(60), &part);
  EXPECT_EQ(part.records(), 0u);
  // Whatever has come there meanwhile is newer, or as new.
  part.Put(key(59), "new", 1);
  const Load load = part.BeginLoad(key(58));
  // And what has come there, went to its leaf and is gone: of that somebody tells.
  whole.Forget(key(57));
  whole.Forget(key(57));

  Partition::Place at;
  int calls = 1;
  for (size_t before = whole.records(); whole.MoveCleanTo("", key(60), 7, &at, &part); ++calls) {
    EXPECT_LE(before - whole.records(), 7u);
    before = whole.records();
  }
  EXPECT_GE(calls, kKeys / 7);
  EXPECT_EQ(whole.records(), 40u);
  for (int i = 0; i < 57; ++i) EXPECT_EQ(part.Find(key(i)).value, "old") << i;
  EXPECT_EQ(part.Find(key(57)).state, RecordState::kAbsent);
  EXPECT_EQ(part.Find(key(58)).load, load);
  EXPECT_EQ(part.Find(key(59)).value, "new");
  for (int i = 60; i < kKeys; ++i) EXPECT_EQ(whole.Find(key(i)).value, "old") << i;
  whole.Check();
  part.Check();
}

TEST(PartitionTest, WhatIsForgottenIsCleanOrLoading) {
  Partition partition;
  partition.Put("dirty", "", 1);
  Keep(partition, "clean", "");
  const Load load = partition.BeginLoad("loading");
  for (const char* const key : {"dirty", "clean", "loading", "none"}) partition.Forget(key);
  EXPECT_EQ(partition.Find("dirty").lsn, 1u);
  EXPECT_EQ(partition.Find("clean").state, RecordState::kAbsent);
  EXPECT_FALSE(partition.EndLoad("loading", load, "late", true));
  partition.Check();
}

TEST(PartitionTest, KeysAndValuesOfAllSizes) {
  Partition partition;
  Lsn lsn = 0;
  for (size_t key_bytes = 1; key_bytes <= HotRecord::kKeyBytesMax; ++key_bytes) {
    const std::string key(key_bytes, 'k');
    const std::string value((key_bytes * 7) % 256, 'v');
    partition.Put(key, value, ++lsn);
    EXPECT_EQ(partition.Find(key).value, value);
    partition.Put(key, std::string(255, 'w'), ++lsn);
    partition.EndFlush(TakeFlush(partition, key), FlushResult::kDone);
    EXPECT_EQ(partition.Find(key).value, std::string(255, 'w'));
  }
  partition.Check();
  EXPECT_DEATH(partition.Put("", "", ++lsn), "bytes of key");
  EXPECT_DEATH(partition.Put(std::string(241, 'k'), "", ++lsn), "bytes of key");
}

TEST(PartitionTest, MessagesOutOfOrderAreABug) {
  Partition partition;
  partition.Put("a", "", 2);
  EXPECT_DEATH(partition.Put("b", "", 1), "in the order of their LSNs");
}

}  // namespace
}  // namespace pando
