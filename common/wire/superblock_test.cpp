#include "common/wire/superblock.h"

#include <gtest/gtest.h>

#include <functional>

#include "common/wire/dead_table.h"
#include "common/wire/node_layout.h"

namespace pando {
namespace {

Superblock Valid() {
  Superblock s;
  s.server_id = 1;
  s.region_bytes = 64 << 20;
  s.root_offset = 4096;
  s.dead_offset = 4096 + kRootRecordsMax * kLineBytes;
  s.chunk_offset = s.dead_offset + kDeadTableBytes;
  s.chunk_bytes = 1 << 20;
  s.chunk_count = 63;
  s.lock_words = 32'768;
  s.packet_bytes = 4096;
  SealSuperblock(&s);
  return s;
}

absl::StatusCode CodeAfter(const std::function<void(Superblock*)>& change, bool seal = true) {
  Superblock s = Valid();
  change(&s);
  if (seal) SealSuperblock(&s);
  return ValidateSuperblock(s).code();
}

TEST(SuperblockTest, SealedOnesAreValid) {
  EXPECT_TRUE(ValidateSuperblock(Valid()).ok());
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->features.compatible = ~0ull; }),
            absl::StatusCode::kOk);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->features.read_compatible = ~0ull; }),
            absl::StatusCode::kOk);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->features.incompatible = kIncompatibleLineCrc; }),
            absl::StatusCode::kOk);
}

TEST(SuperblockTest, OtherFormatsAreRefused) {
  constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->version = 1; }), kRefused);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->version = 3; }, /*seal=*/false), kRefused);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->features.incompatible = 1; }), kRefused)
      << "checksums of single lines (rule F2)";
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->features.incompatible = kIncompatibleOwned; }),
            kRefused)
      << "a feature of trees is none of servers";
}

TEST(SuperblockTest, DamageIsDataLoss) {
  EXPECT_EQ(ValidateSuperblock(Superblock{}).code(), absl::StatusCode::kDataLoss);
  for (size_t i = 12; i < offsetof(Superblock, padding); ++i) {  // behind magic and version
    Superblock s = Valid();
    reinterpret_cast<unsigned char*>(&s)[i] ^= 1;
    EXPECT_EQ(ValidateSuperblock(s).code(), absl::StatusCode::kDataLoss) << i;
  }
  constexpr auto kLoss = absl::StatusCode::kDataLoss;
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->magic = 0; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->chunk_count = 64; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->chunk_count = s->chunk_bytes = UINT32_MAX; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->chunk_offset = s->root_offset; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->chunk_offset = UINT64_MAX - 63; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->dead_offset -= 64; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->dead_offset += 64; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->dead_offset = UINT64_MAX - 63; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->root_offset = 0; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->root_offset = UINT64_MAX - 63; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->root_offset += 8; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->lock_words = 256; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->packet_bytes = 0; }), kLoss);
  EXPECT_EQ(CodeAfter([](Superblock* s) { s->chunk_bytes = 0; }), kLoss);
}

}  // namespace
}  // namespace pando
