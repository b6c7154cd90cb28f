// The byte tables of node_layout.h, number by number: a change here is a change of the format.
#include "common/wire/node_layout.h"

#include <gtest/gtest.h>

#include "common/wire/node_format.h"
#include "common/wire/slot.h"

namespace pando {
namespace {

NodeLayout Layout(uint32_t key_bytes_max, uint32_t value_bytes_max, uint32_t node_bytes = 0) {
  auto layout = NodeLayout::Create(key_bytes_max, value_bytes_max, node_bytes);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *layout;
}

TEST(NodeLayoutTest, HeaderBytes) {
  // Line 0.
  static_assert(wire::kMagicOffset == 1);
  static_assert(wire::kLevelOffset == 3);
  static_assert(wire::kStateOffset == 4);
  static_assert(wire::kTreeOffset == 5);
  static_assert(wire::kLifeOffset == 9);
  static_assert(wire::kRightOffset == 13);
  static_assert(wire::kPeerOffset == 25);
  static_assert(wire::kHighLengthOffset == 37);
  static_assert(wire::kHighOffset == 38);
  // Line 1.
  static_assert(wire::kLeftmostOffset == 65);
  static_assert(wire::kReserveOffset == 77);
  static_assert(wire::kLowLengthOffset == 109);
  static_assert(wire::kLowOffset == 110);
  // Every line.
  static_assert(wire::kFrontEvOffset == 0);
  static_assert(kLinePayloadOffset == 1 && kLinePayloadBytes == 56);
  static_assert(wire::kCrcOffset == 57);
  static_assert(wire::kNvOffset == 61);
  static_assert(wire::kRearEvOffset == 63);
}

TEST(NodeLayoutTest, Table8And8) {
  const NodeLayout layout = Layout(8, 8);
  EXPECT_EQ(layout.node_bytes(), 1024u);
  EXPECT_EQ(layout.lines(), 16u);
  EXPECT_EQ(layout.low_lines(), 0u);
  EXPECT_EQ(layout.high_lines(), 0u);
  EXPECT_EQ(layout.header_lines(), 2u);
  EXPECT_EQ(layout.body_lines(), 14u);
  EXPECT_EQ(layout.slot_meta_bytes(), 2u);
  EXPECT_EQ(layout.slot_bytes(), 18u);
  EXPECT_EQ(layout.slots_per_group(), 3u);
  EXPECT_EQ(layout.lines_per_group(), 1u);
  EXPECT_EQ(layout.slot_count(), 42u);
  EXPECT_EQ(layout.group_count(), 14u);
  EXPECT_EQ(layout.internal_payload_bytes(), 784u);
  EXPECT_EQ(layout.FirstLineOfGroup(0), 2u);
  EXPECT_EQ(layout.FirstLineOfGroup(13), 15u);
  EXPECT_EQ(layout.SharedSlotOffset(0), 129u);
  EXPECT_EQ(layout.SharedSlotOffset(1), 147u);
  EXPECT_EQ(layout.SharedSlotOffset(2), 165u);
  EXPECT_EQ(layout.SharedSlotOffset(3), 193u);
  EXPECT_EQ(layout.SharedSlotOffset(41), 15 * 64 + 1 + 36u);
}

TEST(NodeLayoutTest, Table60And8) {
  const NodeLayout layout = Layout(60, 8);
  EXPECT_EQ(layout.node_bytes(), 4096u);
  EXPECT_EQ(layout.lines(), 64u);
  EXPECT_EQ(layout.low_lines(), 1u);   // 49 bytes
  EXPECT_EQ(layout.high_lines(), 1u);  // 41 bytes
  EXPECT_EQ(layout.header_lines(), 4u);
  EXPECT_EQ(layout.slot_meta_bytes(), 3u);
  EXPECT_EQ(layout.slot_bytes(), 71u);
  EXPECT_EQ(layout.slots_per_group(), 1u);
  EXPECT_EQ(layout.lines_per_group(), 2u);
  EXPECT_EQ(layout.slot_count(), 30u);
  EXPECT_EQ(layout.group_count(), 30u);
  EXPECT_EQ(layout.internal_payload_bytes(), 3360u);
  EXPECT_EQ(layout.FirstLineOfGroup(0), 4u);
  EXPECT_EQ(layout.FirstLineOfGroup(29), 62u);
  EXPECT_EQ(wire::LowField(layout).rest_line, 2u);
  EXPECT_EQ(wire::HighField(layout).rest_line, 3u);
}

TEST(NodeLayoutTest, Table255And255) {
  const NodeLayout layout = Layout(255, 255);
  EXPECT_EQ(layout.node_bytes(), 21248u);
  EXPECT_EQ(layout.lines(), 332u);
  EXPECT_EQ(layout.low_lines(), 5u);   // 244 bytes
  EXPECT_EQ(layout.high_lines(), 5u);  // 236 bytes
  EXPECT_EQ(layout.header_lines(), 12u);
  EXPECT_EQ(layout.slot_meta_bytes(), 3u);
  EXPECT_EQ(layout.slot_bytes(), 513u);
  EXPECT_EQ(layout.slots_per_group(), 1u);
  EXPECT_EQ(layout.lines_per_group(), 10u);
  EXPECT_EQ(layout.slot_count(), 32u);
  EXPECT_EQ(layout.internal_payload_bytes(), 17920u);
  EXPECT_EQ(layout.FirstLineOfGroup(0), 12u);
  EXPECT_EQ(layout.FirstLineOfGroup(31), 322u);
  EXPECT_EQ(wire::LowField(layout).rest_line, 2u);
  EXPECT_EQ(wire::HighField(layout).rest_line, 7u);
}

TEST(NodeLayoutTest, EveryCombinationHolds) {
  for (uint32_t key = 1; key <= kKeyBytesLimit; ++key) {
    for (uint32_t value = 0; value <= kValueBytesLimit; ++value) {
      const NodeLayout layout = Layout(key, value);
      const uint32_t bytes = layout.node_bytes();
      const bool packet = bytes == 1024 || bytes == 2048 || bytes == 4096;
      ASSERT_GE(layout.slot_count(), packet ? kLeafSlotsInPacket : kLeafSlotsMin);
      ASSERT_LE(layout.node_bytes(), kNodeBytesMax);
      ASSERT_EQ(layout.slot_count() % layout.slots_per_group(), 0u);
      ASSERT_LE(layout.FirstLineOfGroup(layout.group_count()), layout.lines());
      // No slot straddles lines that it shares; a larger one has all it needs.
      if (layout.lines_per_group() == 1) {
        ASSERT_LE(layout.slots_per_group() * layout.slot_bytes(), kLinePayloadBytes);
        const uint32_t last =
            layout.SharedSlotOffset(layout.slot_count() - 1) + layout.slot_bytes();
        ASSERT_LE(last % kLineBytes, wire::kCrcOffset);
      } else {
        ASSERT_EQ(layout.slots_per_group(), 1u);
        ASSERT_LE(layout.slot_bytes(), layout.lines_per_group() * kLinePayloadBytes);
        ASSERT_GT(layout.slot_bytes(), (layout.lines_per_group() - 1) * kLinePayloadBytes);
      }
      // Both fences fit.
      ASSERT_GE(kLowInLine1 + layout.low_lines() * kLinePayloadBytes, key);
      ASSERT_GE(kHighInLine0 + layout.high_lines() * kLinePayloadBytes, key);
      // It is the smallest such node.
      if (layout.node_bytes() > kNodeBytesMin) {
        auto smaller = NodeLayout::Create(key, value, layout.node_bytes() - kLineBytes);
        ASSERT_TRUE(!smaller.ok() || smaller->slot_count() < kLeafSlotsMin);
      }
      // Nor does one that is a little larger than a packet have so many slots in a packet.
      for (const uint32_t in_packet : {1024, 2048, 4096}) {
        if (bytes <= in_packet) continue;
        auto fitting = NodeLayout::Create(key, value, in_packet);
        ASSERT_TRUE(!fitting.ok() || fitting->slot_count() < kLeafSlotsInPacket);
      }
      // The same size said aloud is the same layout.
      ASSERT_EQ(Layout(key, value, layout.node_bytes()), layout);
    }
  }
}

// Trees from before nodes were made to fit packets: the catalog says how large theirs are.
TEST(NodeLayoutTest, OlderSizesStayWhatTheyWere) {
  const NodeLayout layout = Layout(60, 8, 4352);
  EXPECT_EQ(layout.slot_count(), 32u);
  EXPECT_EQ(layout.FirstLineOfGroup(31), 66u);
}

TEST(NodeLayoutTest, RefusesWhatDoesNotFit) {
  const auto refused = [](uint32_t key, uint32_t value, uint32_t node) {
    return NodeLayout::Create(key, value, node).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(0, 8, 0));
  EXPECT_TRUE(refused(256, 8, 0));
  EXPECT_TRUE(refused(UINT32_MAX, 8, 0));
  EXPECT_TRUE(refused(8, 256, 0));
  EXPECT_TRUE(refused(8, 8, 1023));
  EXPECT_TRUE(refused(8, 8, 960));
  EXPECT_TRUE(refused(8, 8, 1025));
  EXPECT_TRUE(refused(8, 8, kNodeBytesMax + kLineBytes));
  EXPECT_TRUE(refused(255, 255, 1024));  // no line left behind the header and one slot
  EXPECT_TRUE(refused(200, 200, 2048));
  EXPECT_FALSE(refused(60, 8, 1024));  // 6 slots: small, for tests of deep trees
  EXPECT_FALSE(refused(8, 8, kNodeBytesMax));
}

}  // namespace
}  // namespace pando
