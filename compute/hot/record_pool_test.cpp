#include "compute/hot/record_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/base/random.h"

namespace pando {
namespace {

std::string KeyOf(size_t n, size_t bytes) {
  std::string key(bytes, 'k');
  std::memcpy(key.data(), &n, std::min(bytes, sizeof(n)));
  return key;
}

TEST(RecordPoolTest, SlotsHoldWhatTheyShouldAndWasteLittle) {
  for (size_t bytes = 5; bytes <= 515; ++bytes) {
    const size_t slot = RecordPool::SlotBytes(bytes);
    EXPECT_GE(slot, bytes);
    EXPECT_LT(slot - bytes, bytes <= 64 ? 4u : 8u);
  }
}

TEST(RecordPoolTest, RecordsKeepTheirBytes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    RecordPool pool;
    std::map<RecordHandle, std::string> records;
    const size_t sizes = 1 + random.Uniform(20);
    for (size_t i = 0; i < 20000; ++i) {
      if (records.empty() || random.Chance(i % 5000 < 3000 ? 0.8 : 0.1)) {
        const std::string key = KeyOf(i, 1 + 11 * random.Uniform(sizes));
        const size_t bytes = HotRecord::BytesOf(RecordState::kClean, key.size(), 0);
        const RecordHandle handle = pool.Allocate(bytes);
        ASSERT_NE(handle, 0u);
        ASSERT_TRUE(records.emplace(handle, key).second) << "given twice";
        pool.At(handle)->Write(RecordState::kClean, 0, key, {});
      } else {
        auto at = records.lower_bound(static_cast<RecordHandle>(random.Next()));
        if (at == records.end()) at = records.begin();
        ASSERT_EQ(pool.At(at->first)->key(), at->second);
        pool.Free(at->first);
        records.erase(at);
      }
    }
    for (const auto& [handle, key] : records) ASSERT_EQ(pool.At(handle)->key(), key);
    // What the clock sees is what there is.
    size_t seen = 0;
    for (size_t chunk = 1; chunk < pool.chunks(); ++chunk) {
      for (size_t slot = 0; slot < pool.SlotsOf(chunk); ++slot) {
        const RecordHandle handle = pool.HandleOf(chunk, slot);
        if (pool.At(handle)->state() == RecordState::kAbsent) continue;
        ASSERT_TRUE(records.contains(handle));
        ++seen;
      }
    }
    EXPECT_EQ(seen, records.size());
    while (!records.empty()) {
      pool.Free(records.begin()->first);
      records.erase(records.begin());
    }
    EXPECT_LT(pool.heap_bytes(), sizes * (70 << 10)) << "more than a chunk of each size is kept";
  }
}

TEST(RecordPoolTest, AQuarterOfASizeMayBeFree) {
  RecordPool pool;
  std::vector<RecordHandle> handles;
  for (size_t i = 0; i < 100000; ++i) {
    handles.push_back(pool.Allocate(36));
    pool.At(handles.back())->Write(RecordState::kClean, 0, "k", {});
  }
  EXPECT_GE(pool.bytes(), handles.size() * 36);
  EXPECT_LE(pool.heap_bytes(), handles.size() * 36 * 9 / 8);
  for (size_t i = 0; i < handles.size(); i += 2) pool.Free(handles[i]);
  EXPECT_GE(pool.bytes() * 4 + 16, pool.heap_bytes() * 3);
  size_t sparse = 0;
  for (size_t chunk = 1; chunk < pool.chunks(); ++chunk) sparse += pool.IsSparse(chunk) ? 1 : 0;
  EXPECT_GT(sparse, pool.chunks() / 2);
}

}  // namespace
}  // namespace pando
