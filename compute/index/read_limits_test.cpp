#include "compute/index/read_limits.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

constexpr int64_t kInterval = 1'000;
constexpr int64_t kEntryLimit = 128 * kInterval, kNodeLimit = 32'768 * kInterval;

NodeLayout LayoutOf(uint32_t key, uint32_t value) { return *NodeLayout::Create(key, value); }

Capabilities Nic(uint32_t read_packet_bytes) {
  Capabilities nic;
  nic.lines_atomic = true;
  nic.min_write_interval_ns = kInterval;
  nic.read_packet_bytes = read_packet_bytes;
  return nic;
}

TEST(ReadLimits, WhoTimesReadsHimselfHasNone) {
  Capabilities shm;
  for (const NodeLayout& layout : {LayoutOf(8, 8), LayoutOf(255, 255)}) {
    EXPECT_EQ(ReadLimits::Of(shm, layout, false).node_ns, kNeverNs);
    EXPECT_EQ(ReadLimits::Of(shm, layout, false).line_ns, kNeverNs);
  }
}

TEST(ReadLimits, ANodeInOnePacketIsTakenInOneGo) {
  EXPECT_EQ(ReadLimits::Of(Nic(4096), LayoutOf(64, 8), false).node_ns, kNeverNs);
  EXPECT_EQ(ReadLimits::Of(Nic(1024), LayoutOf(8, 8), false).node_ns, kNeverNs);
}

TEST(ReadLimits, SlotsInOnePacketLeaveTheNodeVersion) {
  // Two lines each, from line 4 on: none crosses a packet.
  EXPECT_EQ(ReadLimits::Of(Nic(1024), LayoutOf(64, 8), false).node_ns, kNodeLimit);
  EXPECT_EQ(ReadLimits::Of(Nic(256), LayoutOf(8, 8), false).node_ns, kNodeLimit);
  EXPECT_EQ(ReadLimits::Of(Nic(1024), LayoutOf(64, 8), false).line_ns, kNeverNs);
}

TEST(ReadLimits, SlotsThatCrossPacketsAreHeldTogetherByTheEntryVersion) {
  EXPECT_EQ(ReadLimits::Of(Nic(4096), LayoutOf(255, 255), false).node_ns, kEntryLimit);
  EXPECT_EQ(ReadLimits::Of(Nic(0), LayoutOf(64, 8), false).node_ns, kEntryLimit);
  EXPECT_EQ(ReadLimits::Of(Nic(0), LayoutOf(8, 8), false).node_ns, kNodeLimit) << "one line each";
}

TEST(ReadLimits, ChecksumsHoldSlotsTogether) {
  Capabilities software = Nic(0);
  software.lines_atomic = false;
  for (const NodeLayout& layout : {LayoutOf(8, 8), LayoutOf(64, 8), LayoutOf(255, 255)}) {
    EXPECT_EQ(ReadLimits::Of(software, layout, true).node_ns, kNodeLimit);
    EXPECT_EQ(ReadLimits::Of(software, layout, true).line_ns, kNeverNs);
    // Without them not even lines are.
    EXPECT_EQ(ReadLimits::Of(software, layout, false).node_ns, kEntryLimit);
    EXPECT_EQ(ReadLimits::Of(software, layout, false).line_ns, kEntryLimit);
  }
}

// Rule N2: several READs, which no packet holds together.
TEST(ReadLimits, AWindowIsHeldTogetherByTheNodeVersionWhateverThePackets) {
  const auto with_windows = [](uint32_t key, uint32_t value) {
    return *NodeLayout::Create(key, value, 0, true);
  };
  EXPECT_EQ(ReadLimits::Of(Nic(4096), with_windows(8, 8), false).window_ns, kNodeLimit);
  EXPECT_EQ(ReadLimits::Of(Nic(4096), with_windows(60, 8), false).window_ns, kNodeLimit);
  // A group's lines may be of two packets.
  EXPECT_EQ(ReadLimits::Of(Nic(256), with_windows(60, 8), false).window_ns, kEntryLimit);
  EXPECT_EQ(ReadLimits::Of(Nic(0), with_windows(60, 8), false).window_ns, kEntryLimit);
  EXPECT_EQ(ReadLimits::Of(Nic(0), with_windows(60, 8), true).window_ns, kNodeLimit);
  EXPECT_EQ(ReadLimits::Of(Nic(0), with_windows(8, 8), false).window_ns, kNodeLimit);
  Capabilities software = Nic(0);
  software.lines_atomic = false;
  EXPECT_EQ(ReadLimits::Of(software, with_windows(8, 8), false).window_ns, kEntryLimit);
}

}  // namespace
}  // namespace pando
