#include "common/wire/line_run.h"

#include <gtest/gtest.h>

#include "common/wire/test_images.h"

namespace pando {
namespace {

TEST(LineRunTest, JoinsUpToThePacket) {
  LineRuns runs;
  AppendLines(4, 2, 384, &runs);
  AppendLines(6, 2, 384, &runs);
  AppendLines(8, 2, 384, &runs);   // 6 lines: a packet
  AppendLines(10, 2, 384, &runs);  // full: a new run
  AppendLines(14, 2, 384, &runs);  // a gap: a new run
  EXPECT_EQ(runs, (LineRuns{{4, 6}, {10, 2}, {14, 2}}));
  EXPECT_EQ(runs[0].offset_bytes(), 256u);
  EXPECT_EQ(runs[0].bytes(), 384u);
}

TEST(LineRunTest, WholeNodesInPackets) {
  for (const NodeLayout& layout : TestLayouts()) {
    for (const uint32_t packet_bytes : {1024u, 4096u, 65536u}) {
      for (const uint32_t from : {0u, 1u, layout.header_lines()}) {
        uint32_t next = from;
        for (const LineRun& run : NodeRuns(layout, from, packet_bytes)) {
          ASSERT_EQ(run.first_line, next);
          ASSERT_GT(run.line_count, 0u);
          ASSERT_LE(run.bytes(), packet_bytes);
          next += run.line_count;
          const bool in_slots =
              next > layout.header_lines() && next < layout.FirstLineOfGroup(layout.group_count());
          if (in_slots) {
            ASSERT_EQ((next - layout.header_lines()) % layout.lines_per_group(), 0u);
          }
        }
        ASSERT_EQ(next, layout.lines());
      }
    }
  }
  EXPECT_EQ(NodeRuns(TestLayout(8, 8), 0, 4096), (LineRuns{{0, 16}}));
  // 60/8: 4 header lines and 30 slots of 2 lines fill a packet.
  EXPECT_EQ(NodeRuns(TestLayout(60, 8), 0, 4096), (LineRuns{{0, 64}}));
  EXPECT_EQ(NodeRuns(TestLayout(60, 8, 4352), 0, 4096), (LineRuns{{0, 64}, {64, 4}}));
}

}  // namespace
}  // namespace pando
