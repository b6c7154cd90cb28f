// What a partition takes from the heap, byte by byte.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "compute/hot/partition.h"
#include "compute/hot/test_keys.h"

namespace {

// Of this thread: what operator new has given, with the allocator's word, and how often.
thread_local int64_t heap_bytes = 0, allocations = 0;

void* Take(size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  heap_bytes += static_cast<int64_t>(malloc_usable_size(memory) + 8);
  ++allocations;
  return memory;
}

void* TakeAligned(size_t bytes, std::align_val_t alignment) {
  void* const memory = std::aligned_alloc(static_cast<size_t>(alignment), bytes);
  if (memory == nullptr) std::abort();
  heap_bytes += static_cast<int64_t>(malloc_usable_size(memory) + 8);
  ++allocations;
  return memory;
}

void Give(void* memory) {
  if (memory == nullptr) return;
  heap_bytes -= static_cast<int64_t>(malloc_usable_size(memory) + 8);
  std::free(memory);
}

}  // namespace

// The front's, which nobody gives back.
extern "C" void* calloc(size_t count, size_t bytes) noexcept {
  void* const memory = Take(count * bytes);
  std::memset(memory, 0, count * bytes);
  return memory;
}
void* operator new(size_t bytes) { return Take(bytes); }
void* operator new[](size_t bytes) { return Take(bytes); }
// What sorts takes its buffer with these.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Take(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return Take(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return TakeAligned(bytes, alignment);
}
void operator delete(void* memory, std::align_val_t) noexcept { Give(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Give(memory); }
void operator delete(void* memory) noexcept { Give(memory); }
void operator delete[](void* memory) noexcept { Give(memory); }
void operator delete(void* memory, size_t) noexcept { Give(memory); }
void operator delete[](void* memory, size_t) noexcept { Give(memory); }

namespace pando {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kRecords = 100'000;
#else
constexpr size_t kRecords = 1'000'000;
#endif
// Of a few the parts that a partition has once weigh too much.
constexpr size_t kRecordsMin = 100'000;
constexpr size_t kSlackBytes = 64 << 10;

// A key of that many bytes, and beginnings like those of a real one.
std::string Key(size_t n, size_t bytes) {
  std::string key(bytes, '0');
  if (bytes > 8) key.replace(0, 4, "user");
  uint64_t state = n;
  const uint64_t hash = SplitMix64(&state);
  for (size_t i = 0; i < 8; ++i) key[bytes - 8 + i] = static_cast<char>(hash >> (56 - 8 * i));
  return key;
}

// Fills a partition with dirty or clean records and returns the heap that each takes.
double HeapOf(size_t key_bytes, size_t value_bytes, bool dirty, Partition* partition,
              size_t records = kRecords) {
  const int64_t before = heap_bytes;
  {
    const std::string value(value_bytes, 'v');
    for (size_t i = 0; i < records; ++i) {
      const std::string key = Key(i, key_bytes);
      if (dirty) {
        partition->Put(key, value, i + 1);
      } else {
        partition->EndLoad(key, partition->BeginLoad(key), value, true);
      }
    }
  }
  const int64_t taken = heap_bytes - before;
  EXPECT_EQ(partition->records(), records);
  EXPECT_GE(taken, static_cast<int64_t>(partition->heap_bytes()));
  EXPECT_LE(taken, static_cast<int64_t>(partition->heap_bytes() * 101 / 100)) << "all is accounted";
  // Little partitions have more room than they need.
  EXPECT_LE(partition->heap_bytes(), partition->bytes() * 102 / 100 + kSlackBytes);
  return static_cast<double>(taken) / static_cast<double>(records);
}

TEST(HeapTest, ARecordOf8And8) {
  Partition clean, dirty;
  EXPECT_LE(HeapOf(8, 8, false, &clean), 28);
  EXPECT_LE(HeapOf(8, 8, true, &dirty), 40);
}

TEST(HeapTest, RecordsOfOtherSizes) {
  for (const auto& [key_bytes, value_bytes] :
       {std::pair<size_t, size_t>{24, 8}, {16, 0}, {13, 7}, {9, 250}, {240, 1}}) {
    SCOPED_TRACE(testing::Message() << key_bytes << "/" << value_bytes);
    const size_t bytes = key_bytes + value_bytes;
    {
      Partition clean;
      EXPECT_LE(HeapOf(key_bytes, value_bytes, false, &clean, kRecordsMin), bytes + 16);
    }
    Partition dirty;
    EXPECT_LE(HeapOf(key_bytes, value_bytes, true, &dirty, kRecordsMin), bytes + 38);
  }
}

// As it grows with the records, and leaves arrays to others.
TEST(HeapTest, AFrontTakesAnEighth) {
  const int64_t before = heap_bytes;
  Partition partition;
  for (size_t i = 0; i < kRecords; ++i) {
    const std::string key = Key(i, 8);
    partition.EndLoad(key, partition.BeginLoad(key), "12345678", true);
    if (i % 8 == 0) partition.Show(partition.Find(key));
  }
  const auto each = [](size_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(kRecords);
  };
  EXPECT_LE(each(partition.heap_bytes()), 28 + 3.5);
  EXPECT_LE(each(static_cast<size_t>(heap_bytes - before)), 28 + 2 * 3.5);
  EXPECT_GT(each(partition.heap_bytes()), 27 + 1.6) << "it has at least a half of that";
}

TEST(HeapTest, AHitAllocatesNothing) {
  Partition partition;
  HeapOf(24, 8, false, &partition);
  const std::string key = Key(kRecords / 2, 24), absent = Key(kRecords * 2, 24);
  partition.Show(partition.Find(key));
  std::string value;
  Lsn lsn;
  const int64_t before = allocations;
  EXPECT_TRUE(partition.FindShown(key, HashOf(key), &value, &lsn));
  EXPECT_FALSE(partition.FindShown(absent, HashOf(absent), &value, &lsn));
  const Partition::View hit = partition.Find(key);
  partition.Touch(hit.record);
  const Partition::View miss = partition.Find(absent);
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(hit.value, "vvvvvvvv");
  EXPECT_EQ(miss.state, RecordState::kAbsent);
}

TEST(HeapTest, AWaitAllocatesNothing) {
  Partition partition;
  const Load load = partition.BeginLoad("key");
  LoadWaiter first{.wake = [](LoadWaiter*) {}}, second{.wake = [](LoadWaiter*) {}};
  const int64_t before = allocations;
  partition.Wait(partition.Find("key").record, &first);
  partition.Wait(partition.Find("key").record, &second);
  EXPECT_TRUE(partition.StopWaiting("key", &first));
  EXPECT_EQ(allocations, before);
  EXPECT_TRUE(partition.AbandonLoad("key", load));
}

TEST(HeapTest, SizesThatChangeStrandNoMemory) {
  Partition partition;
  Random random(1);
  Lsn lsn = 0;
  const size_t budget = kRecords * 4;
  std::vector<FlushItem> items;
  // Half of each size's records go, and the next size comes.
  for (size_t value_bytes = 8; value_bytes <= 248; value_bytes += 24) {
    const std::string value(value_bytes, 'v');
    for (size_t i = 0; i < budget / (value_bytes + 16); ++i) {
      partition.Put(Key(random.Uniform(kRecords), 8), value, ++lsn);
      if (i % 64 != 0) continue;
      partition.CollectDirty("", "", lsn, false, SIZE_MAX, &items);
      for (const FlushItem& item : items) partition.EndFlush(item, FlushResult::kDone);
      items.clear();
      if (partition.bytes() > budget) partition.Evict(partition.bytes() - budget);
      ASSERT_LE(partition.bytes(), budget);
      ASSERT_LE(partition.heap_bytes(), budget * 3 / 2);
    }
  }
  partition.Check();
  EXPECT_GT(partition.bytes(), budget * 9 / 10);
}

TEST(HeapTest, NothingIsLeft) {
  const int64_t before = heap_bytes;
  {
    Partition partition;
    HeapOf(8, 8, true, &partition);
    EXPECT_GT(heap_bytes, before + 1000);
    partition.Drop();
    EXPECT_LT(heap_bytes, before + 100'000);
    partition.Put("key", "value", kRecords + 1);
  }
  EXPECT_EQ(heap_bytes, before);
}

}  // namespace
}  // namespace pando
