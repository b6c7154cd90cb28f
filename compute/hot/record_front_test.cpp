// What is read without the mutex (rule T9): of this thread alone, then with a writer beside.
#include "compute/hot/record_front.h"

#include <gtest/gtest.h>

#include <atomic>
#include <charconv>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "compute/hot/partition.h"

namespace pando {
namespace {

constexpr size_t kMuch = 1 << 20;

// What Find() says: "value LSN", or nothing.
std::string Found(const RecordFront& front, std::string_view key) {
  std::string value;
  Lsn lsn = 0;
  return front.Find(key, HashOf(key), &value, &lsn) ? value + " " + std::to_string(lsn) : "";
}
bool Show(RecordFront& front, std::string_view key, std::string_view value, Lsn lsn,
          size_t bytes_max = kMuch) {
  return front.Show(key, HashOf(key), value, lsn, bytes_max);
}
// Often enough that the place is had, if nobody uses it.
bool Insist(RecordFront& front, std::string_view key, std::string_view value, Lsn lsn) {
  for (int i = 0; i < 8; ++i) {
    if (Show(front, key, value, lsn, 0)) return true;
  }
  return false;
}
// Two keys of one slot, in a front of the least size.
std::string Rival(std::string_view key) {
  for (int i = 0;; ++i) {
    std::string other = "rival" + std::to_string(i);
    if (((HashOf(other) ^ HashOf(key)) >> 32) % 8 == 0) return other;
  }
}

TEST(RecordFrontTest, WhatIsShownIsFoundAsItWasLastSaid) {
  RecordFront front;
  EXPECT_EQ(Found(front, "key"), "");
  EXPECT_FALSE(front.Change("key", HashOf("key"), "value", 1));
  EXPECT_TRUE(Show(front, "key", "value", 7));
  EXPECT_EQ(Found(front, "key"), "value 7");
  EXPECT_EQ(Found(front, "kez"), "");
  EXPECT_TRUE(front.Change("key", HashOf("key"), "", 8));
  EXPECT_EQ(Found(front, "key"), " 8");
  EXPECT_FALSE(front.Change("kez", HashOf("kez"), "other", 9));
  front.Hide("key", HashOf("key"));
  EXPECT_EQ(Found(front, "key"), "");
  EXPECT_FALSE(front.Change("key", HashOf("key"), "value", 9));
}

TEST(RecordFrontTest, NothingIsFoundAfterItWasClosed) {
  RecordFront front;
  ASSERT_TRUE(Show(front, "a", "1", 1));
  ASSERT_TRUE(Show(front, "b", "2", 2));
  front.Close();
  EXPECT_EQ(Found(front, "a"), "");
  EXPECT_FALSE(front.Change("a", HashOf("a"), "3", 3)) << "it may change, and nobody hears of it";
  ASSERT_TRUE(Show(front, "b", "4", 4));
  EXPECT_EQ(Found(front, "a"), "") << "of another generation";
  EXPECT_EQ(Found(front, "b"), "4 4");
  front.Clear();
  EXPECT_EQ(Found(front, "b"), "");
  EXPECT_EQ(front.bytes(), 0u);
}

// The place's record stays as long as it is found between two that would like to have the place.
TEST(RecordFrontTest, WhatIsFoundKeepsItsPlace) {
  RecordFront front;
  const std::string rival = Rival("key");
  ASSERT_TRUE(Show(front, "key", "1", 1, 0));
  EXPECT_FALSE(front.TakeUsed("key", HashOf("key")));
  EXPECT_EQ(Found(front, "key"), "1 1");
  EXPECT_FALSE(Insist(front, rival, "2", 2));
  EXPECT_EQ(Found(front, "key"), "1 1");
  EXPECT_TRUE(front.TakeUsed("key", HashOf("key")));
  EXPECT_FALSE(front.TakeUsed("key", HashOf("key")));
  EXPECT_FALSE(Show(front, rival, "2", 2, 0)) << "not each time";
  EXPECT_TRUE(Insist(front, rival, "2", 2));
  EXPECT_EQ(Found(front, "key"), "");
  EXPECT_EQ(Found(front, rival), "2 2");
}

TEST(RecordFrontTest, ItTakesNoMoreThanItMay) {
  RecordFront front;
  ASSERT_TRUE(Show(front, "key", "value", 1, 0));
  EXPECT_EQ(front.bytes(), 64u * 10) << "eight slots are always there";
  for (size_t bytes_max = 1000; bytes_max < kMuch; bytes_max = bytes_max * 5 / 4) {
    ASSERT_TRUE(Show(front, "key", "value", 1, bytes_max));
    EXPECT_LE(front.bytes(), bytes_max);
    EXPECT_GE(front.bytes() * 2 + 128, bytes_max);
    EXPECT_EQ(Found(front, "key"), "value 1");
  }
  front.Shrink();
  EXPECT_EQ(front.bytes(), 0u);
  EXPECT_EQ(Found(front, "key"), "");
}

TEST(RecordFrontTest, LongRecords) {
  RecordFront front;
  ASSERT_TRUE(Show(front, "key", "short", 1, 0));
  const std::string value(RecordFront::kRecordBytesMax - 3, 'v');
  // One is not worth it, many are.
  EXPECT_FALSE(Show(front, "key", value, 2, 0));
  EXPECT_FALSE(front.Change("key", HashOf("key"), value, 2));
  EXPECT_EQ(Found(front, "key"), "") << "what it was is not said any more";
  for (int i = 0; i < 100; ++i) Show(front, "key", value, 2, 0);
  EXPECT_EQ(Found(front, "key"), value + " 2");
  EXPECT_FALSE(Show(front, "key", value + "v", 3, kMuch));
  for (size_t bytes = 1; bytes <= RecordFront::kRecordBytesMax; ++bytes) {
    const std::string key(std::min<size_t>(bytes, 200), 'k'), rest(bytes - key.size(), 'r');
    ASSERT_TRUE(Show(front, key, rest, bytes));
    EXPECT_EQ(Found(front, key), rest + " " + std::to_string(bytes));
    front.Hide(key, HashOf(key));
  }
}

// --- With threads. A value proves itself: its key, a counter, and what belongs to both.

constexpr int kReaders = 2;
constexpr uint64_t kKeys = 24;

std::string KeyOf(uint64_t n) { return "key" + std::to_string(100 + n); }
std::string ValueOf(uint64_t key, uint64_t count) {
  uint64_t state = key * 1'000'003 + count;
  return std::to_string(count) + "/" + std::to_string(SplitMix64(&state) >> (count % 60));
}
uint64_t CountOf(std::string_view value) {
  uint64_t count = 0;
  std::from_chars(value.data(), value.data() + value.size(), count);
  return count;
}

struct Shared {
  Partition partition;
  // Of each key: the count that its record has had, at least, before now; an LSN is a count.
  std::atomic<uint64_t> counts[kKeys] = {};
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> found{0};
  // The writer's.
  uint64_t count = 0;
  std::vector<FlushItem> items;  // in flight
  Random random{7};
};

void Read(Shared* shared, uint64_t seed) {
  Random random(seed);
  std::string value;
  std::vector<uint64_t> seen(kKeys);
  while (!shared->ends.load()) {
    const uint64_t n = random.Uniform(kKeys);
    const std::string key = KeyOf(n);
    const uint64_t before = std::max(seen[n], shared->counts[n].load());
    Lsn lsn = 0;
    if (!shared->partition.FindShown(key, HashOf(key), &value, &lsn)) continue;
    shared->found.fetch_add(1, std::memory_order_relaxed);
    seen[n] = CountOf(value);
    ASSERT_EQ(value, ValueOf(n, seen[n])) << key;
    ASSERT_GE(seen[n], before) << "it was so before this has begun";
    ASSERT_LE(lsn, seen[n]);
  }
}

// Everything that happens to records, and to fronts.
void Change(Shared* shared, int steps) {
  Random& random = shared->random;
  Partition& partition = shared->partition;
  uint64_t& count = shared->count;
  std::vector<FlushItem>& items = shared->items;
  for (int i = 0; i < steps; ++i) {
    const uint64_t n = random.Uniform(kKeys);
    const std::string key = KeyOf(n);
    const std::lock_guard lock(partition.mutex());
    switch (random.Uniform(12)) {
      case 0:
        partition.Erase(key, ++count);
        break;
      case 1:
        partition.CollectDirty("", "", count, false, 8, &items);
        break;
      case 2:
        for (const FlushItem& item : items) partition.EndFlush(item, FlushResult::kDone);
        items.clear();
        break;
      case 3:
        partition.Evict(random.Uniform(500));
        break;
      case 4:
        if (random.Chance(0.1)) partition.StopShowing();
        break;
      case 5:
        if (!random.Chance(0.01)) break;
        partition.Drop();
        items.clear();
        break;
      case 6:
      case 7: {
        const Partition::View view = partition.Find(key);
        if (view.record != nullptr && view.state != RecordState::kTombstone) partition.Show(view);
        break;
      }
      default:
        partition.Put(key, ValueOf(n, count + 1), count + 1);
        ++count;
        // Of an answer that somebody has got.
        shared->counts[n].store(count);
    }
  }
  partition.Check();
}

TEST(RecordFrontThreadsTest, ReadersSeeWhatWasThereSinceTheyBegan) {
#ifdef __SANITIZE_THREAD__
  constexpr int kSteps = 200'000;
#else
  constexpr int kSteps = 1'000'000;
#endif
  Shared shared;
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) readers.emplace_back(Read, &shared, i + 1);
  // On a busy machine they may not have come to much by then.
  do {
    Change(&shared, kSteps);
  } while (shared.found.load() < 1000 && !HasFailure());
  shared.ends = true;
  for (std::thread& reader : readers) reader.join();
}

// Arrays go from one front to the other, and readers are in them.
TEST(RecordFrontThreadsTest, ArraysAreUsedAgainUnderReaders) {
  RecordFront fronts[2];
  std::mutex mutex;
  std::atomic<bool> ends{false};
  std::atomic<uint64_t> found{0};
  const auto read = [&](uint64_t seed) {
    Random random(seed);
    std::string value;
    while (!ends.load()) {
      const uint64_t front = random.Uniform(2), n = random.Uniform(kKeys);
      const std::string key = KeyOf(n);
      Lsn lsn = 0;
      if (!fronts[front].Find(key, HashOf(key), &value, &lsn)) continue;
      ASSERT_EQ(value, ValueOf(n, lsn));
      ASSERT_EQ(lsn % 2, front) << "it is another front's";
      ++found;
    }
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) readers.emplace_back(read, i + 1);
  Random random(9);
  for (uint64_t i = 0; i < 100'000 || (found.load() < 1000 && !HasFailure()); ++i) {
    const uint64_t n = random.Uniform(kKeys), front = i % 2;
    Show(fronts[front], KeyOf(n), ValueOf(n, i), i, 600 << random.Uniform(6));
    if (random.Chance(0.05)) fronts[front].Clear();
  }
  ends = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace pando
