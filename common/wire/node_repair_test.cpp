#include "common/wire/node_repair.h"

#include <string>

#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "common/wire/test_images.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::UnorderedElementsAre;

constexpr bool kNoCrc = false;

// A leaf [low, high) with these keys, sealed twice so that no version is the first.
TestImage Leaf(const NodeLayout& layout, const std::string& low, const std::string& high,
               const std::vector<std::string>& keys) {
  TestImage image(layout);
  NodeHeader header = TestHeader(0, low, high);
  WriteHeader(image.data(), layout, header);
  std::vector<LeafEntry> entries;
  for (const std::string& key : keys) entries.push_back({key, ""});
  FillLeaf(image.data(), layout, entries);
  SealNodeLevel(image.data(), image.data(), layout, kNoCrc);
  return image;
}

std::vector<std::string> KeysOf(const TestImage& image, const NodeLayout& layout) {
  std::vector<LeafEntry> entries;
  EXPECT_TRUE(ReadLeafEntries(image.data(), layout, &entries));
  std::vector<std::string> keys;
  for (const LeafEntry& entry : entries) keys.push_back(entry.key);
  return keys;
}

NodeExpectation Meant(const TestImage& image, const NodeLayout& layout, std::string_view key) {
  const NodeHeader header = ReadHeader(image.data(), layout);
  return {header.tree_id, header.level, header.life, key};
}

TEST(NodeRepairTest, LinesOfTwoWritesAreWholeEachButTornTogether) {
  for (const NodeLayout& layout : TestLayouts()) {
    const TestImage before = Leaf(layout, "", "", {"a", "b"});
    TestImage after = before;
    SealNodeLevel(after.data(), after.data(), layout, kNoCrc);
    for (uint32_t line = 0; line < layout.lines(); ++line) {
      if (line > 0 && layout.LinesTogether(line) > 1) break;  // packets end at slots
      TestImage mixed = after;
      for (uint32_t i = line + 1; i < layout.lines(); ++i) mixed.CopyLine(before, i);
      EXPECT_TRUE(LinesWhole(mixed.data(), layout, kNoCrc));
      EXPECT_TRUE(MayRepair(mixed.data(), Meant(mixed, layout, "a"), kNoCrc));
    }
  }
}

TEST(NodeRepairTest, ALineTornInsideIsNotWhole) {
  const NodeLayout layout = TestLayout(8, 8);
  TestImage image = Leaf(layout, "", "", {"a"});
  const NodeExpectation meant = Meant(image, layout, "a");
  image.line(5)[63] = std::byte{0x77};
  EXPECT_FALSE(LinesWhole(image.data(), layout, kNoCrc));
  EXPECT_TRUE(MayRepair(image.data(), meant, kNoCrc));
  image.line(0)[63] = std::byte{0x77};
  EXPECT_FALSE(MayRepair(image.data(), meant, kNoCrc));
}

TEST(NodeRepairTest, OnlyTheNodeMeantMayBeRepaired) {
  const NodeLayout layout = TestLayout(8, 8);
  TestImage image = Leaf(layout, "", "", {"a"});
  NodeExpectation meant = Meant(image, layout, "a");
  EXPECT_TRUE(MayRepair(image.data(), meant, kNoCrc));
  ++meant.life;
  EXPECT_FALSE(MayRepair(image.data(), meant, kNoCrc));
  --meant.life;
  ++meant.level;
  EXPECT_FALSE(MayRepair(image.data(), meant, kNoCrc));
  --meant.level;
  SetMarker(image.data(), NodeState::kMerging, {});
  EXPECT_TRUE(MayRepair(image.data(), meant, kNoCrc));
  for (const NodeState state : {NodeState::kDead, NodeState::kFree}) {
    SetMarker(image.data(), state, {});
    EXPECT_FALSE(MayRepair(image.data(), meant, kNoCrc));
  }
}

TEST(NodeRepairTest, EdgesAreReadPastATornBody) {
  const NodeLayout layout = TestLayout(60, 8);
  const std::string low(50, 'l'), high(50, 'm');
  TestImage image = Leaf(layout, low, high, {});
  const Reference right{RemoteAddress(2, 4096), 9};
  SetRight(image.data(), right);
  SealNodeLevel(image.data(), image.data(), layout, kNoCrc);
  image.line(layout.lines() - 1)[0] = std::byte{0x77};
  NodeEdges edges;
  ASSERT_TRUE(ReadEdges(image.data(), layout, Meant(image, layout, ""), kNoCrc, &edges));
  EXPECT_EQ(edges.low, low);
  EXPECT_EQ(edges.right, right);
  EXPECT_EQ(edges.state, NodeState::kLive);
  EXPECT_FALSE(HighIsInLine0(image.data()));
  SetHigh(image.data(), layout, high.substr(0, kHighInLine0));
  EXPECT_TRUE(HighIsInLine0(image.data()));
  image.line(1)[0] = std::byte{0x77};
  EXPECT_FALSE(ReadEdges(image.data(), layout, Meant(image, layout, ""), kNoCrc, &edges));
}

TEST(NodeRepairTest, MarkersAreStateAndPeer) {
  const NodeLayout layout = TestLayout(8, 8);
  TestImage image = Leaf(layout, "", "", {"a"});
  EXPECT_FALSE(IsMarked(image.data()));
  const Reference peer{RemoteAddress(3, 8192), 7};
  SetMarker(image.data(), NodeState::kLive, peer);
  EXPECT_TRUE(IsMarked(image.data()));
  EXPECT_EQ(PeerOf(image.data()), peer);
  SetMarker(image.data(), NodeState::kMerging, {});
  EXPECT_TRUE(IsMarked(image.data()));
  EXPECT_EQ(StateOf(image.data()), NodeState::kMerging);
  SetMarker(image.data(), NodeState::kLive, {});
  EXPECT_FALSE(IsMarked(image.data()));
}

TEST(LeafMergeTest, AbsorbsWhatIsInFenceAndNothingElse) {
  for (const NodeLayout& layout : TestLayouts()) {
    if (layout.slot_count() < 8) continue;
    TestImage left = Leaf(layout, "", "", {"a", "b", "y"});
    SetHigh(left.data(), layout, "m");  // y is out of fence now
    TestImage right = Leaf(layout, "", "", {"b", "m", "z"});
    {
      NodeHeader header = ReadHeader(right.data(), layout);
      header.low = "m";
      WriteHeader(right.data(), layout, header);
    }
    LeafEditor editor(left.data(), layout, kNoCrc);
    editor.ClearOutOfFence();
    SetHigh(left.data(), layout, "");
    EXPECT_THAT(KeysOf(left, layout), UnorderedElementsAre("a", "b"));
    editor.Absorb(right.data());
    EXPECT_THAT(KeysOf(left, layout), UnorderedElementsAre("a", "b", "m", "z"));
  }
}

}  // namespace
}  // namespace pando
