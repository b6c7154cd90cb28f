#include "compute/index/read_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/wire/node_image.h"
#include "common/wire/test_images.h"
#include "common/wire/window.h"

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

// Whether a READ of those lines has a group in two packets.
bool CutsAGroup(const NodeLayout& layout, uint32_t first, uint32_t end, uint32_t packet_bytes) {
  const uint32_t together = layout.lines_per_group();
  for (uint32_t group = 0; group < layout.group_count(); ++group) {
    const uint32_t line = layout.FirstLineOfGroup(group);
    if (line < first || line + together > end) continue;
    const uint32_t from = (line - first) * kLineBytes;
    const uint32_t last = from + together * kLineBytes - 1;
    if (from / packet_bytes != last / packet_bytes) return true;
  }
  return false;
}

// Rule N2: READs that begin within the leaf have other packets than that of the whole leaf.
TEST(ReadLimits, AGroupInTwoPacketsOfANarrowReadIsHeldTogetherByTheEntryVersion) {
  const std::pair<uint32_t, uint32_t> sizes[] = {{24, 8},   {60, 8},  {8, 100}, {32, 64},
                                                 {32, 128}, {8, 150}, {16, 16}, {8, 8}};
  Random random(1);
  int cut_windows = 0, cut_rests = 0;
  for (const auto& [key, value] : sizes) {
    const NodeLayout layout = *NodeLayout::Create(key, value, 0, true);
    if (layout.window_groups() == 0) continue;
    for (const uint32_t mtu : {1024u, 2048u, 4096u}) {
      const ReadLimits limits = ReadLimits::Of(Nic(mtu), layout, false);
      bool window_is_cut = false, rest_is_cut = false;
      std::set<uint32_t> homes;
      while (homes.size() < layout.group_count()) {
        const std::string text = TestBytes(&random, 8);
        if (!homes.insert(wire::HomeOf(layout, text)).second) continue;
        for (const WindowPart part : {WindowPart::kAll, WindowPart::kNear}) {
          const WindowRuns window = WindowOf(layout, text, part);
          const WindowReads reads = ReadsOf(window);
          for (uint32_t i = 0; i < reads.count; ++i) {
            const auto& run = reads.runs[i];
            window_is_cut |=
                CutsAGroup(layout, run.first_line, run.first_line + run.line_count, mtu);
          }
          std::vector<bool> is_read(layout.lines() + 1);
          is_read[0] = is_read[layout.lines()] = true;
          for (uint32_t i = 0; i < window.count; ++i) {
            const auto& run = window.runs[i];
            for (uint32_t l = 0; l < run.line_count; ++l) is_read[run.first_line + l] = true;
          }
          for (uint32_t first = 1, line = 1; line <= layout.lines(); ++line) {
            if (!is_read[line]) continue;
            rest_is_cut |= CutsAGroup(layout, first, line, mtu);
            first = line + 1;
          }
        }
      }
      const std::string what = absl::StrCat(key, "/", value, ", MTU ", mtu);
      if (window_is_cut) {
        EXPECT_EQ(limits.window_ns, kEntryLimit) << what;
      }
      if (rest_is_cut) {
        EXPECT_EQ(std::min(limits.window_ns, limits.rest_ns), kEntryLimit) << what;
      }
      cut_windows += window_is_cut;
      cut_rests += rest_is_cut;
    }
  }
  EXPECT_GT(cut_windows, 0);
  EXPECT_GT(cut_rests, 0);
  // Nothing is lost where no group is of several lines, or one packet takes all.
  const NodeLayout eights = *NodeLayout::Create(8, 8, 0, true);
  EXPECT_EQ(ReadLimits::Of(Nic(4096), eights, false).rest_ns, kNodeLimit);
  EXPECT_EQ(ReadLimits::Of(Nic(0), *NodeLayout::Create(60, 8, 0, true), true).rest_ns, kNodeLimit);
}

}  // namespace
}  // namespace pando
