// Headers, fences and versions. What an image is: node_classify_test.cpp.
#include "common/wire/node_image.h"

#include <gtest/gtest.h>

#include "common/wire/line.h"
#include "common/wire/node_format.h"
#include "common/wire/test_images.h"

namespace pando {
namespace {

using wire::FrontEv;
using wire::Nv;
using wire::RearEv;

void ExpectSameHeader(const NodeHeader& a, const NodeHeader& b) {
  EXPECT_EQ(a.tree_id, b.tree_id);
  EXPECT_EQ(a.level, b.level);
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.life, b.life);
  EXPECT_EQ(a.right, b.right);
  EXPECT_EQ(a.peer, b.peer);
  EXPECT_EQ(a.leftmost, b.leftmost);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_EQ(a.reserve, b.reserve);
}

TEST(NodeHeaderTest, RoundTripsForEveryFenceLength) {
  Random random(1);
  for (const NodeLayout& layout : TestLayouts()) {
    TestImage image(layout);
    for (uint32_t i = 0; i < layout.lines(); ++i) wire::SealLine(image.line(i), 17, 4711, false);
    for (uint32_t length = 0; length <= layout.key_bytes_max(); ++length) {
      NodeHeader header;
      header.tree_id = static_cast<uint32_t>(random.Next());
      header.level = static_cast<uint8_t>(random.Next());
      header.state = static_cast<NodeState>(random.Uniform(4));
      header.life = static_cast<uint32_t>(random.Next());
      header.right = {RemoteAddress(65535, RemoteAddress::kOffsetMask), UINT32_MAX};
      header.peer = {RemoteAddress(1, 64), 2};
      header.leftmost = {RemoteAddress(3, 128), 4};
      header.low = TestBytes(&random, length);
      header.high = TestBytes(&random, layout.key_bytes_max() - length);
      header.reserve = TestBytes(&random, NodeHeader::kReserveBytes);
      WriteHeader(image.data(), layout, header);
      ExpectSameHeader(ReadHeader(image.data(), layout), header);

      FenceScratch low, high;
      EXPECT_EQ(LowFence(image.data(), layout, &low), header.low);
      EXPECT_EQ(HighFence(image.data(), layout, &high), header.high);
      EXPECT_EQ(RightOf(image.data()), header.right);
      EXPECT_EQ(LifeOf(image.data()), header.life);
    }
    for (uint32_t i = 0; i < layout.lines(); ++i) {  // no version was touched
      EXPECT_EQ(FrontEv(image.line(i)), 17);
      EXPECT_EQ(RearEv(image.line(i)), 17);
      EXPECT_EQ(Nv(image.line(i)), 4711);
    }
  }
}

TEST(NodeHeaderTest, SetHighAndSetRightChangeNothingElse) {
  const NodeLayout layout = TestLayout(255, 255);
  TestImage image(layout);
  NodeHeader header = TestHeader(0, std::string(200, 'l'), std::string(255, 'z'));
  header.reserve = std::string(NodeHeader::kReserveBytes, 'r');
  WriteHeader(image.data(), layout, header);
  for (const std::string& high :
       {std::string(255, 'y'), std::string("m"), std::string(20, 'n'), std::string()}) {
    header.high = high;
    header.right = {RemoteAddress(4, high.size() * 64 + 64), 9};
    SetHigh(image.data(), layout, header.high);
    SetRight(image.data(), header.right);
    ExpectSameHeader(ReadHeader(image.data(), layout), header);
    TestImage fresh(layout);  // and leaves nothing of the longer key behind
    WriteHeader(fresh.data(), layout, header);
    EXPECT_EQ(std::memcmp(image.data(), fresh.data(), layout.node_bytes()), 0);
  }
}

TEST(NodeHeaderTest, MissingReserveIsZeros) {
  const NodeLayout layout = TestLayout(8, 8);
  TestImage image(layout);
  NodeHeader header = TestHeader();
  header.reserve = "owner";
  WriteHeader(image.data(), layout, header);
  header.reserve.resize(NodeHeader::kReserveBytes, '\0');
  EXPECT_EQ(ReadHeader(image.data(), layout).reserve, header.reserve);
  header.reserve.clear();
  WriteHeader(image.data(), layout, header);
  EXPECT_EQ(ReadHeader(image.data(), layout).reserve, std::string(NodeHeader::kReserveBytes, '\0'));
}

TEST(SealTest, FirstVersionsOverFreshMemory) {
  const NodeLayout layout = TestLayout(60, 8);
  TestImage image(layout);
  SealNodeLevel(image.data(), image.data(), layout, false);
  for (uint32_t i = 0; i < layout.lines(); ++i) {
    EXPECT_EQ(Nv(image.line(i)), 1);
    EXPECT_EQ(FrontEv(image.line(i)), 1);
    EXPECT_EQ(RearEv(image.line(i)), 1);
  }
}

// Rule F2 over any old image: one EV a group, unlike all old EVs of the group; one NV.
void ExpectSucceeds(const TestImage& image, const TestImage& old_image, const NodeLayout& layout) {
  const uint16_t nv = Nv(image.line(0));
  for (uint32_t line = 0; line < layout.lines();) {
    const uint32_t count = layout.LinesTogether(line);
    const uint8_t ev = FrontEv(image.line(line));
    for (uint32_t i = 0; i < count; ++i, ++line) {
      ASSERT_EQ(FrontEv(image.line(line)), ev);
      ASSERT_EQ(RearEv(image.line(line)), ev);
      ASSERT_EQ(Nv(image.line(line)), nv);
      ASSERT_NE(Nv(old_image.line(line)), nv);
      for (uint32_t j = line - i; j < line - i + count; ++j) {
        ASSERT_NE(FrontEv(old_image.line(j)), ev);
        ASSERT_NE(RearEv(old_image.line(j)), ev);
      }
    }
  }
}

TEST(SealTest, NodeLevelSucceedsAnyOldImage) {
  Random random(2);
  for (const NodeLayout& layout : TestLayouts()) {
    for (int round = 0; round < 50; ++round) {
      TestImage old_image(layout);
      for (uint32_t i = 0; i < layout.lines(); ++i) {
        const auto ev = static_cast<uint8_t>(random.Next());
        const auto nv = static_cast<uint16_t>(random.Next());
        wire::SealLine(old_image.line(i), ev, nv, false);
        if (random.Chance(0.5)) {  // torn inside the line
          wire::StoreAs(old_image.line(i) + wire::kRearEvOffset, static_cast<uint8_t>(ev + 1));
        }
      }
      const bool crc = random.Chance(0.5);
      TestImage image(layout);
      SealNodeLevel(image.data(), old_image.data(), layout, crc);
      ExpectSucceeds(image, old_image, layout);
      EXPECT_TRUE(LinesConsistent(image.data(), layout, crc));
      TestImage in_place(old_image);
      SealNodeLevel(in_place.data(), in_place.data(), layout, crc);
      ExpectSucceeds(in_place, old_image, layout);
    }
  }
}

TEST(SealTest, NvIsSeriallyNewerThanEveryLineOfATornImage) {
  const NodeLayout layout = TestLayout(8, 8);
  for (const uint32_t start : {0u, 1u, 32766u, 32767u, 32768u, 65533u, 65534u, 65535u}) {
    for (uint32_t newer_lines = 0; newer_lines <= layout.lines(); ++newer_lines) {
      TestImage image(layout);  // `newer_lines` of a write of start + 1 had arrived
      for (uint32_t i = 0; i < layout.lines(); ++i) {
        wire::SealLine(image.line(i), 5, static_cast<uint16_t>(start + (i < newer_lines ? 1 : 0)),
                       false);
      }
      const TestImage old_image(image);
      SealNodeLevel(image.data(), image.data(), layout, false);
      EXPECT_EQ(Nv(image.line(0)), static_cast<uint16_t>(start + (newer_lines > 0 ? 2 : 1)));
      for (uint32_t i = 0; i < layout.lines(); ++i) {
        EXPECT_TRUE(wire::SeriallyNewer(Nv(image.line(0)), Nv(old_image.line(i))));
      }
    }
  }
}

TEST(SealTest, VersionsRunAroundAndEachDiffersFromTheLast) {
  const NodeLayout layout = TestLayout(60, 8, 1088);
  TestImage image(layout);
  for (uint32_t write = 1; write <= 70'000; ++write) {
    const uint8_t ev = FrontEv(image.line(5));
    SealNodeLevel(image.data(), image.data(), layout, false);
    ASSERT_EQ(Nv(image.line(5)), static_cast<uint16_t>(write));
    ASSERT_NE(FrontEv(image.line(5)), ev);
  }
}

TEST(SealTest, EntryLevelChangesEvOfItsGroupOnly) {
  for (const NodeLayout& layout : TestLayouts()) {
    TestImage image(layout);
    SealNodeLevel(image.data(), image.data(), layout, true);
    for (uint32_t group = 0; group < layout.group_count(); ++group) {
      for (int round = 0; round < 3; ++round) {
        const TestImage old_image(image);
        const uint32_t first = layout.FirstLineOfGroup(group), count = layout.lines_per_group();
        wire::StoreAs(image.line(first) + 5, static_cast<uint8_t>(round + 1));
        SealEntryLevel(image.data(), first, count, true);
        for (uint32_t i = 0; i < layout.lines(); ++i) {
          const bool in_group = i >= first && i < first + count;
          ASSERT_NE(image.SameLine(old_image, i), in_group);
          ASSERT_EQ(Nv(image.line(i)), Nv(old_image.line(i)));
          ASSERT_EQ(FrontEv(image.line(i)) != FrontEv(old_image.line(i)), in_group);
        }
        ASSERT_TRUE(LinesConsistent(image.data(), layout, true));
      }
    }
  }
}

TEST(SealTest, EntryLevelEvDiffersFromBothEndsOfATornLine) {
  for (uint32_t front = 0; front < 256; ++front) {
    for (uint32_t rear = 0; rear < 256; ++rear) {
      std::byte line[kLineBytes] = {};
      line[wire::kFrontEvOffset] = static_cast<std::byte>(front);
      line[wire::kRearEvOffset] = static_cast<std::byte>(rear);
      SealEntryLevel(line, 0, 1, false);
      ASSERT_NE(FrontEv(line), front);
      ASSERT_NE(FrontEv(line), rear);
      ASSERT_EQ(FrontEv(line), RearEv(line));
    }
  }
}

TEST(LifeTest, NextLifeIsNeverZero) {
  const NodeLayout layout = TestLayout(8, 8);
  TestImage image(layout);
  EXPECT_EQ(NextLife(image.data()), 1u);
  NodeHeader header = TestHeader();
  WriteHeader(image.data(), layout, header);
  EXPECT_EQ(NextLife(image.data()), header.life + 1);
  header.life = UINT32_MAX;
  WriteHeader(image.data(), layout, header);
  EXPECT_EQ(NextLife(image.data()), 1u);
}

}  // namespace
}  // namespace pando
