#include "memory/chunk_pool.h"

#include <array>
#include <cstring>

#include "common/wire/node_glance.h"
#include "gtest/gtest.h"
#include "memory/test_support.h"

namespace pando::memory {
namespace {

class ChunkPoolTest : public testing::Test {
 protected:
  // As if a node with this life had lived there.
  void WriteLife(uint32_t chunk, uint64_t at, uint32_t life) {
    std::array<std::byte, 64> line;
    WriteLifeStamp(line.data(), life, false);
    region_.Write(region_.ChunkOffset(chunk) + at, line.data(), line.size());
  }
  uint32_t LifeAt(uint32_t chunk, uint64_t at) {
    return GlanceAtNode(memory_.main() + region_.ChunkOffset(chunk) + at).life;
  }

  PlainMemory memory_;
  ManualClock clock_;
  Region region_ = *Region::Format(memory_.memory(), {});
  ChunkPool pool_{&region_, &clock_, kSecondNs};
  const uint64_t chunk_count_ = region_.superblock().chunk_count;
  const uint64_t chunk_bytes_ = region_.superblock().chunk_bytes;
};

TEST_F(ChunkPoolTest, FreshChunksAreZeroAndThereIsAnEnd) {
  for (uint64_t i = 0; i < chunk_count_; ++i) {
    EXPECT_EQ(pool_.free_chunks(), chunk_count_ - i);
    const auto taken = pool_.Take(1024);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(taken->chunk, i);
    EXPECT_EQ(taken->life, 0u);
  }
  const absl::Status full = pool_.Take(1024).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("--memory"), absl::string_view::npos) << full;
  EXPECT_EQ(pool_.exhausted(), 1u);
}

TEST_F(ChunkPoolTest, AWrittenChunkRestsIsZeroedAndStampedWithItsHighestLife) {
  for (uint64_t i = 0; i < chunk_count_; ++i) ASSERT_TRUE(pool_.Take(1024).ok());
  std::memset(memory_.main() + region_.ChunkOffset(3), 0, chunk_bytes_);
  std::memset(memory_.main() + region_.ChunkOffset(3) + 64, 0x5a, 1024 - 64);
  WriteLife(3, 0, 7);
  WriteLife(3, 5 * 1024, 40);
  WriteLife(3, 6 * 1024, 12);
  pool_.GiveBack(3, true, 0);
  const absl::Status early = pool_.Take(2048).status();
  EXPECT_EQ(early.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(early.message().find("again within"), absl::string_view::npos) << early;
  clock_.now_ns += kSecondNs;
  const auto taken = pool_.Take(2048);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->chunk, 3u);
  EXPECT_EQ(taken->life, 40u);
  EXPECT_EQ(pool_.zeroed_bytes(), chunk_bytes_);
  for (uint64_t at = 0; at < chunk_bytes_; ++at) {
    const bool stamp = at % 2048 >= 9 && at % 2048 < 13;
    ASSERT_TRUE(stamp || memory_.main()[region_.ChunkOffset(3) + at] == std::byte{0}) << at;
  }
  for (uint64_t at = 0; at < chunk_bytes_; at += 2048) ASSERT_EQ(LifeAt(3, at), 40u);

  // Its life is kept even if what wrote there since is gone (a tree dropped by its last client).
  std::memset(memory_.main() + region_.ChunkOffset(3), 0, chunk_bytes_);
  pool_.GiveBack(3, true, 0);
  clock_.now_ns += kSecondNs;
  EXPECT_EQ(pool_.Take(1024)->life, 40u);
}

TEST_F(ChunkPoolTest, AnUnwrittenChunkIsThereAtOnceWhateverTheNextNodeSize) {
  for (uint64_t i = 0; i < chunk_count_; ++i) ASSERT_TRUE(pool_.Take(1024).ok());
  pool_.GiveBack(2, false, 0);
  EXPECT_EQ(pool_.Take(2048)->chunk, 2u);
  WriteLife(2, 0, 9);
  pool_.GiveBack(2, true, 0);
  clock_.now_ns += kSecondNs;
  EXPECT_EQ(pool_.Take(1024)->life, 9u);
  EXPECT_EQ(LifeAt(2, 1024), 9u);
  pool_.GiveBack(2, false, 0);
  const auto taken = pool_.Take(4096);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->life, 9u);
  EXPECT_EQ(LifeAt(2, 0), 9u);
  EXPECT_EQ(LifeAt(2, 1024), 0u) << "the stamps of other node sizes are gone";
}

TEST_F(ChunkPoolTest, RestedMemoryIsUsedBeforeFreshMemory) {
  ASSERT_TRUE(pool_.Take(1024).ok());
  pool_.GiveBack(0, true, 0);
  EXPECT_EQ(pool_.Take(1024)->chunk, 1u) << "the first one rests";
  clock_.now_ns += kSecondNs;
  EXPECT_EQ(pool_.Take(1024)->chunk, 0u);
}

}  // namespace
}  // namespace pando::memory
