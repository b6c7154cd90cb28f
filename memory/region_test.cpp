#include "memory/region.h"

#include <cstring>

#include "gtest/gtest.h"
#include "memory/test_support.h"

namespace pando::memory {
namespace {

TEST(RegionTest, FormatsASuperblockThatDescribesTheRegion) {
  const PlainMemory memory(8 << 20);
  const auto region =
      Region::Format(memory.memory(), {.server_id = 7, .packet_bytes = 2048, .needs_crc = true});
  ASSERT_TRUE(region.ok()) << region.status();
  Superblock stored;
  std::memcpy(&stored, memory.main(), sizeof(stored));
  EXPECT_TRUE(ValidateSuperblock(stored).ok());
  EXPECT_EQ(stored.server_id, 7);
  EXPECT_EQ(stored.packet_bytes, 2048u);
  EXPECT_EQ(stored.features.incompatible, kIncompatibleLineCrc);
  EXPECT_TRUE(region->crc());
  EXPECT_EQ(stored.region_bytes, uint64_t{8} << 20);
  EXPECT_EQ(stored.lock_words, 1024u);
  EXPECT_GE(stored.root_offset, sizeof(Superblock));
  EXPECT_GE(stored.chunk_offset, stored.root_offset + kRootRecordsMax * 64);
  EXPECT_LE(stored.chunk_offset + uint64_t{stored.chunk_count} * stored.chunk_bytes,
            stored.region_bytes);
}

TEST(RegionTest, SmallRegionsGetSmallChunksAndLargeOnesWhatWasAskedFor) {
  for (const auto& [bytes, chunk_bytes] : {std::pair<uint64_t, uint32_t>{1 << 20, 64 << 10},
                                           {16 << 20, 128 << 10},
                                           {512 << 20, 4 << 20}}) {
    const PlainMemory memory(bytes);
    const auto region = Region::Format(memory.memory(), {});
    ASSERT_TRUE(region.ok()) << region.status();
    EXPECT_EQ(region->superblock().chunk_bytes, chunk_bytes) << bytes;
  }
}

TEST(RegionTest, RefusesSizesThatCannotWork) {
  const PlainMemory memory(1 << 20);
  const auto code = [&](const PlainMemory& m, RegionOptions options) {
    return Region::Format(m.memory(), options).status().code();
  };
  EXPECT_EQ(code(PlainMemory(64 << 10), {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(PlainMemory(1 << 20, 8 * 256), {}), absl::StatusCode::kInvalidArgument)
      << "no lock for nodes";
  EXPECT_EQ(code(memory, {.chunk_bytes = 3 << 20}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(memory, {.chunk_bytes = 4096}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(memory, {.packet_bytes = 1000}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(memory, {.packet_bytes = 512}), absl::StatusCode::kInvalidArgument);
}

TEST(RegionTest, FindsWhereTheUsedPartOfAChunkEnds) {
  const PlainMemory memory;
  auto region = Region::Format(memory.memory(), {});
  ASSERT_TRUE(region.ok());
  const uint64_t offset = region->ChunkOffset(1);
  EXPECT_EQ(region->UsedPrefix(offset, 4096), 0u);
  memory.main()[offset + 1000] = std::byte{1};
  EXPECT_EQ(region->UsedPrefix(offset, 4096), 1000u / 8 * 8 + 8);
  region->Zero(offset, 4096);
  EXPECT_EQ(memory.main()[offset + 1000], std::byte{0});
  EXPECT_EQ(region->UsedPrefix(offset, 4096), 0u);
}

}  // namespace
}  // namespace pando::memory
