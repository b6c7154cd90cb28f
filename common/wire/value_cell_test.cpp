#include "common/wire/value_cell.h"

#include <cstring>
#include <vector>

#include "common/base/random.h"
#include "common/wire/node_glance.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

std::vector<std::byte> CellImage(std::string_view key, std::string_view value,
                                 CellReference* reference, uint32_t life = 7) {
  std::vector<std::byte> image(CellLines(key.size(), value.size()) * kLineBytes, std::byte{0xee});
  reference->cell = {RemoteAddress(1, 4096), life};
  WriteCell(image.data(), /*tree_id=*/3, life, key, value, /*crc=*/true, reference);
  return image;
}

TEST(ValueCellTest, HoldsTheValueOfItsKeyInItsLifeAlone) {
  const std::string value(1000, 'v');
  CellReference reference;
  const std::vector<std::byte> image = CellImage("key", value, &reference);
  EXPECT_EQ(ValueInCell(image.data(), 3, "key", reference), value);
  EXPECT_EQ(ValueInCell(image.data(), 4, "key", reference), std::nullopt);
  EXPECT_EQ(ValueInCell(image.data(), 3, "kez", reference), std::nullopt);
  CellReference other = reference;
  other.cell.life = 8;
  EXPECT_EQ(ValueInCell(image.data(), 3, "key", other), std::nullopt);
  other = reference;
  ++other.checksum;
  EXPECT_EQ(ValueInCell(image.data(), 3, "key", other), std::nullopt);
  EXPECT_EQ(KeyOfCell(image.data(), kCellGlanceBytes, 3, 7), "key");
  EXPECT_EQ(KeyOfCell(image.data(), kCellGlanceBytes, 3, 8), std::nullopt);
}

TEST(ValueCellTest, EachByteThatIsAnotherIsNoticed) {
  CellReference reference;
  std::vector<std::byte> image = CellImage("key", "a value", &reference);
  const size_t used = kCellHeaderBytes + 3 + 7;
  for (size_t i = kCellHeaderBytes; i < used; ++i) {
    image[i] ^= std::byte{1};
    EXPECT_EQ(ValueInCell(image.data(), 3, "key", reference), std::nullopt) << i;
    image[i] ^= std::byte{1};
  }
  EXPECT_TRUE(ValueInCell(image.data(), 3, "key", reference).has_value());
}

TEST(ValueCellTest, AMemoryServerSeesALiveNodeOfTheTree) {
  CellReference reference;
  const std::vector<std::byte> image = CellImage("key", "value", &reference);
  const NodeGlance glance = GlanceAtNode(image.data());
  EXPECT_TRUE(glance.is_node);
  EXPECT_EQ(glance.tree_id, 3u);
  EXPECT_EQ(glance.life, 7u);
  EXPECT_EQ(glance.state, NodeState::kLive);
  EXPECT_FALSE(glance.has_peer);
}

TEST(ValueCellTest, SizesLoseAtMostANinthAndAreFew) {
  uint32_t sizes = 0, last = 0;
  for (uint32_t value_bytes = 1; value_bytes <= kLargeValueBytesMax; ++value_bytes) {
    const uint32_t lines = CellLines(8, value_bytes);
    const uint32_t needed = (kCellHeaderBytes + 8 + value_bytes + kLineBytes - 1) / kLineBytes;
    ASSERT_GE(lines, needed);
    ASSERT_LE(lines * 8, needed * 9 + (needed <= 32 ? 0 : 8)) << value_bytes;
    ASSERT_TRUE(needed > 32 || lines == needed) << value_bytes;
    ASSERT_TRUE(IsCellSize(lines)) << lines;
    ASSERT_LE(lines, kCellLinesMax);
    if (lines != last) ++sizes;
    last = lines;
  }
  EXPECT_LE(sizes, 100u);
  EXPECT_LE(CellLines(kKeyBytesLimit, kLargeValueBytesMax), kCellLinesMax);
  EXPECT_FALSE(IsCellSize(0));
  EXPECT_TRUE(IsCellSize(17));
  EXPECT_FALSE(IsCellSize(33));
  EXPECT_FALSE(IsCellSize(kCellLinesMax + 1));
}

TEST(ValueCellTest, SlotsHoldAValueOrAReference) {
  std::string stored;
  StoreInline("short", &stored);
  std::optional<StoredValue> parsed = ParseStored(stored);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->inlined, "short");
  EXPECT_FALSE(parsed->reference.has_value());
  StoreInline("", &stored);
  EXPECT_EQ(ParseStored(stored)->inlined, "");
  CellReference reference;
  (void)CellImage("key", "value", &reference);
  StoreReference(reference, &stored);
  EXPECT_EQ(stored.size(), kStoredReferenceBytes);
  EXPECT_EQ(ParseStored(stored)->reference, reference);
  for (size_t bytes = 0; bytes < stored.size(); ++bytes) {
    EXPECT_FALSE(ParseStored(std::string_view(stored).substr(0, bytes)).has_value()) << bytes;
  }
  EXPECT_FALSE(ParseStored("\x02").has_value());
}

}  // namespace
}  // namespace pando
