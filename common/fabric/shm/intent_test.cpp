#include "common/fabric/shm/intent.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/fabric/shm/shm_region.h"
#include "common/fabric/shm/slot_table.h"
#include "common/fabric/shm/word_copy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::Each;

class IntentTest : public testing::Test {
 protected:
  IntentTest() {
    auto region = ShmRegion::Create(*ShmGeometry::Create(1 << 20, 4096, 256, 4), false, -1);
    EXPECT_TRUE(region.ok()) << region.status();
    region_ = *std::move(region);
  }

  // A record as a client leaves it that dies after `valid`.
  void LeaveIntent(uint32_t slot, uint64_t offset, uint64_t space, uint32_t bytes,
                   int fill = 0x5a) {
    std::byte* record = region_.intent(slot);
    std::memset(record + IntentSlot::kDataOffset, fill, 256);
    StoreWord(record + IntentSlot::kTargetOffset, offset);
    StoreWord(record + IntentSlot::kLengthOffset, space << 32 | bytes);
    StoreWord(record + IntentSlot::kValidOffset, 1);
  }
  bool Valid(uint32_t slot) { return LoadWord(region_.intent(slot)) != 0; }

  ShmRegion region_;
};

TEST_F(IntentTest, IsExecutedAndCleared) {
  std::array<std::byte, 256> data;
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  Verb verb;
  verb.kind = VerbKind::kWrite;
  verb.space = MemorySpace::kLocks;
  verb.offset = 1024;
  verb.bytes = 256;
  verb.piece_count = 2;
  verb.pieces[0] = {data.data(), 100, 0};
  verb.pieces[1] = {data.data() + 100, 156, 0};
  std::byte* target = region_.space(MemorySpace::kLocks) + 1024;
  ExecuteWithIntent(region_.intent(2), verb, target);
  EXPECT_EQ(std::memcmp(target, data.data(), 256), 0);
  EXPECT_FALSE(Valid(2));
  // Had it died in the middle, this is what the server would have found.
  std::memset(target, 0, 256);
  StoreWord(region_.intent(2), 1);
  EXPECT_EQ(*CompleteIntent(region_, 2), true);
  EXPECT_EQ(std::memcmp(target, data.data(), 256), 0);
  EXPECT_FALSE(Valid(2));
  EXPECT_EQ(*CompleteIntent(region_, 2), false);
}

TEST_F(IntentTest, IsCompletedOnlyInsideTheSpaces) {
  struct Case {
    uint64_t offset, space;
    uint32_t bytes;
  };
  const Case bad[] = {
      {1 << 20, 0, 64},
      {(1 << 20) - 64, 0, 128},
      {UINT64_MAX - 63, 0, 128},
      {4096, 1, 64},
      {4096 - 64, 1, 256},
      {0, 2, 64},
      {0, UINT32_MAX, 64},
      {0, 0, 264},
      {0, 0, UINT32_MAX & ~7u},
      {0, 0, 0},
      {4, 0, 64},
      {0, 0, 63},
      {(1 << 20) + 8192, 0, 256},  // the intents themselves
  };
  for (const Case& c : bad) {
    LeaveIntent(1, c.offset, c.space, c.bytes);
    EXPECT_EQ(CompleteIntent(region_, 1).status().code(), absl::StatusCode::kDataLoss)
        << c.offset << " " << c.space << " " << c.bytes;
    EXPECT_FALSE(Valid(1));
  }
  // Of a mebibyte; Each() would take a second, and ten under a sanitizer.
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  EXPECT_TRUE(std::ranges::all_of(region_.memory().main, is_zero));
  EXPECT_TRUE(std::ranges::all_of(region_.memory().locks, is_zero));
  LeaveIntent(1, (1 << 20) - 256, 0, 256);
  EXPECT_TRUE(CompleteIntent(region_, 1).ok());
  EXPECT_THAT(region_.memory().main.last(256), Each(std::byte{0x5a}));
}

TEST_F(IntentTest, SlotsBelongToWhoGotThem) {
  SlotTable slots(&region_);
  std::vector<uint32_t> mine = {*slots.Assign(1), *slots.Assign(1)};
  const uint32_t other = *slots.Assign(2);
  mine.push_back(*slots.Assign(1));
  EXPECT_EQ(slots.Assign(3).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(slots.Free(1, other).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(slots.Free(1, 4).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(slots.Free(1, UINT32_MAX).code(), absl::StatusCode::kPermissionDenied);

  // The dead one's intents are completed, also beside one that is nonsense; the living one's are
  // not.
  LeaveIntent(mine[0], 0, 0, 64, 0x01);
  LeaveIntent(mine[1], UINT64_MAX, 0, 64, 0x02);
  LeaveIntent(mine[2], 128, 0, 64, 0x03);
  LeaveIntent(other, 256, 0, 64, 0x04);
  EXPECT_EQ(slots.CompleteAndFree(1, mine), 2u);
  EXPECT_THAT(region_.memory().main.subspan(0, 64), Each(std::byte{1}));
  EXPECT_THAT(region_.memory().main.subspan(128, 64), Each(std::byte{3}));
  EXPECT_THAT(region_.memory().main.subspan(256, 64), Each(std::byte{0}));
  EXPECT_TRUE(Valid(other));
  EXPECT_EQ(slots.Free(1, mine[0]).code(), absl::StatusCode::kPermissionDenied);

  // A new owner finds no intent, whatever was left there.
  StoreWord(region_.intent(mine[0]), 1);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Valid(*slots.Assign(4)));
  EXPECT_TRUE(slots.Free(2, other).ok());
}

TEST(ShmGeometryTest, RefusesImpossibleSizes) {
  EXPECT_TRUE(ShmGeometry::Create(4096, 64, 64, 1).ok());
  EXPECT_TRUE(ShmGeometry::Create(uint64_t{1} << 48, 1 << 20, 65536, 65536).ok());
  struct Case {
    uint64_t main, locks;
    uint32_t packet, endpoints;
  };
  const Case bad[] = {
      {0, 64, 64, 1},    {4097, 64, 64, 1},    {(uint64_t{1} << 48) + 4096, 64, 64, 1},
      {4096, 0, 64, 1},  {4096, 63, 64, 1},    {4096, uint64_t{1} << 33, 64, 1},
      {4096, 64, 0, 1},  {4096, 64, 100, 1},   {4096, 64, 65600, 1},
      {4096, 64, 64, 0}, {4096, 64, 64, 65537}};
  for (const Case& c : bad) {
    EXPECT_EQ(ShmGeometry::Create(c.main, c.locks, c.packet, c.endpoints).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(ShmGeometryTest, SpacesDoNotOverlap) {
  const ShmGeometry geometry = *ShmGeometry::Create(12288, 100 * 64, 192, 5);
  EXPECT_GE(geometry.locks_offset(), geometry.main_bytes);
  EXPECT_GE(geometry.intents_offset(), geometry.locks_offset() + geometry.lock_bytes);
  EXPECT_EQ(geometry.IntentOffset(1) - geometry.IntentOffset(0), 64u + 192);
  EXPECT_GE(geometry.total_bytes(), geometry.IntentOffset(5));
}

TEST(ShmRegionTest, IsSparseAndZero) {
  auto region =
      ShmRegion::Create(*ShmGeometry::Create(uint64_t{64} << 30, 1 << 20, 4096, 1024), false, -1);
  ASSERT_TRUE(region.ok()) << region.status();
  struct stat file;
  ASSERT_EQ(fstat(region->fd(), &file), 0);
  EXPECT_EQ(file.st_blocks, 0);
  EXPECT_EQ(LoadWord(region->memory().main.last(8).data()), 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region->memory().main.data()) % 4096, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region->memory().locks.data()) % 64, 0u);
  ASSERT_NE(ftruncate(region->fd(), 0), 0) << "sealed";
}

TEST(ShmRegionTest, TwoMappingsAreOneMemory) {
  const ShmGeometry geometry = *ShmGeometry::Create(1 << 20, 4096, 64, 1);
  auto region = ShmRegion::Create(geometry, true, 0);  // huge pages or not, bound or not
  ASSERT_TRUE(region.ok()) << region.status();
  auto view = ShmRegion::Map(UniqueFd(dup(region->fd())), geometry);
  ASSERT_TRUE(view.ok()) << view.status();
  StoreWord(region->space(MemorySpace::kLocks) + 64, 42);
  EXPECT_EQ(LoadWord(view->space(MemorySpace::kLocks) + 64), 42u);
  ShmRegion moved = *std::move(view);
  EXPECT_EQ(LoadWord(moved.space(MemorySpace::kLocks) + 64), 42u);
}

TEST(ShmRegionTest, RefusesImpossibleNodes) {
  const ShmGeometry geometry = *ShmGeometry::Create(1 << 20, 4096, 64, 1);
  EXPECT_EQ(ShmRegion::Create(geometry, false, 5000).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pando
