#include "common/wire/slot.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/wire/test_images.h"

namespace pando::wire {
namespace {

// What stands from the key of a slot on, in the payloads of the image: `count` bytes.
std::string BytesFrom(const TestImage& image, const NodeLayout& layout, uint32_t slot,
                      uint32_t count) {
  const SlotPlace place = PlaceOf(layout, slot);
  std::string bytes(count, '\0');
  ReadStream(image.data(), place.line, place.offset + layout.slot_meta_bytes(), count,
             bytes.data());
  return bytes;
}

uint32_t BytesToTheEnd(const NodeLayout& layout, uint32_t slot) {
  const SlotPlace place = PlaceOf(layout, slot);
  return (layout.lines() - place.line) * kLinePayloadBytes - place.offset -
         layout.slot_meta_bytes();
}

void SetLength(TestImage* image, const NodeLayout& layout, uint32_t slot, uint32_t key_bytes) {
  std::byte* const start = SlotStart(image->data(), PlaceOf(layout, slot));
  SlotMeta meta = LoadMeta(start, layout);
  meta.key_bytes = key_bytes;
  StoreMeta(start, layout, meta);
}

// A length that was damaged, and a search for the bytes that stand there: over the slot's end they
// are not its key, and over the image's end they are not even there.
TEST(SlotScanTest, ASlotIsNotReadPastItsEnd) {
  for (const NodeLayout& layout : TestLayouts()) {
    const uint32_t longest = layout.slot_meta_bytes() == 2 ? 15 : 255;
    if (layout.key_bytes_max() == longest) continue;  // no length can say more
    const TestImage sound = TestLeaf(layout, TestHeader(), std::vector<LeafEntry>(1, {"k", ""}));
    for (const uint32_t slot : {0u, layout.slot_count() - 1}) {
      for (const uint32_t length : {layout.key_bytes_max() + 1, longest}) {
        TestImage image(sound);
        StoreMeta(SlotStart(image.data(), PlaceOf(layout, slot)), layout, {1, 0, kSlotUsed});
        SetLength(&image, layout, slot, length);
        std::string key =
            BytesFrom(image, layout, slot, std::min(length, BytesToTheEnd(layout, slot)));
        key.resize(length);
        const SlotScan scan = ScanSlots(image.data(), layout, key);
        EXPECT_EQ(scan.slot, -1) << layout.key_bytes_max() << " " << slot << " " << length;
        EXPECT_EQ(scan.matches, 0u);
        EXPECT_EQ(scan.erased, -1);
        EXPECT_TRUE(scan.malformed);
      }
    }
    EXPECT_FALSE(ScanSlots(sound.data(), layout, std::string(longest, 'k')).malformed);
  }
}

TEST(SlotScanTest, AnEmptyKeyMatchesNothing) {
  for (const NodeLayout& layout : TestLayouts()) {
    TestImage image = TestLeaf(layout, TestHeader(), {{"k", ""}});
    SlotScan scan = ScanSlots(image.data(), layout, "");
    EXPECT_EQ(scan.slot, -1);
    EXPECT_EQ(scan.erased, -1) << "an empty slot is nobody's";
    EXPECT_FALSE(scan.malformed);
    SetLength(&image, layout, static_cast<uint32_t>(ScanSlots(image.data(), layout, "k").slot), 0);
    scan = ScanSlots(image.data(), layout, "");
    EXPECT_EQ(scan.slot, -1);
    EXPECT_TRUE(scan.malformed);
  }
}

}  // namespace
}  // namespace pando::wire
