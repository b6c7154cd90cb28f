#include "common/wire/dead_table.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

TEST(DeadTableTest, AnEntrySpeaksOfOneLifeWhateverTheLocksMode) {
  const uint64_t held =
      LockWord{.owner = 7, .incarnation = 40, .mode = LockWord::kExclusive}.Encode();
  EXPECT_TRUE(SaysDead(DeadEntry(7, 40), held));
  EXPECT_TRUE(
      SaysDead(DeadEntry(7, 40), LockWord{.owner = 7, .incarnation = 40, .mode = 5}.Encode()));
  EXPECT_FALSE(SaysDead(DeadEntry(7, 41), held)) << "a later life";
  EXPECT_FALSE(SaysDead(DeadEntry(8, 40), held));
  EXPECT_FALSE(SaysDead(DeadEntry(7 + kDeadSlots, 40), held)) << "another one of the same slot";
  EXPECT_FALSE(SaysDead(0, held));
  EXPECT_FALSE(SaysDead(0, LockWord::kFree)) << "a free word has no owner";
}

TEST(DeadTableTest, EveryComputeServerHasASlotInsideTheTable) {
  for (uint32_t id = 1; id <= 65535; ++id) {
    const uint64_t offset = DeadEntryOffset(static_cast<uint16_t>(id));
    ASSERT_EQ(offset % 8, 0u);
    ASSERT_LE(offset + 8, kDeadTableBytes);
    ASSERT_NE(DeadEntry(static_cast<uint16_t>(id), 1), 0u);
  }
  EXPECT_EQ(DeadEntryOffset(3), DeadEntryOffset(3 + kDeadSlots));
}

}  // namespace
}  // namespace pando
