#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/wire/leaf.h"
#include "common/wire/slot.h"
#include "common/wire/test_images.h"

namespace pando {
namespace {

TEST(ShortestSeparatorTest, CutsBehindTheFirstDifference) {
  EXPECT_EQ(ShortestSeparator("apple", "banana"), "b");
  EXPECT_EQ(ShortestSeparator("apple", "apply"), "apply");
  EXPECT_EQ(ShortestSeparator("app", "apple"), "appl");
  EXPECT_EQ(ShortestSeparator("a", std::string("a\0", 2)), std::string("a\0", 2));
  EXPECT_EQ(ShortestSeparator("", "x"), "x");
}

TEST(ShortestSeparatorTest, NoShorterOneExists) {
  Random random(6);
  for (int round = 0; round < 20'000; ++round) {
    std::string left = TestKey(&random, 40), right = TestKey(&random, 40);
    if (left == right) continue;
    if (left > right) std::swap(left, right);
    const std::string separator = ShortestSeparator(left, right);
    ASSERT_LT(left, separator);
    ASSERT_LE(separator, right);
    // A shorter one would be a prefix of `right` that is still above `left`.
    ASSERT_LE(separator.substr(0, separator.size() - 1), left);
  }
}

struct Split {
  TestImage left, right;
  std::string separator;
};

// As a session does it: sibling formatted, entries moved, fences set, both sealed.
Split DoSplit(const TestImage& image, const NodeLayout& layout, std::string_view pending,
              bool crc) {
  Split split{image, TestImage(layout), ""};
  std::memset(split.right.data(), 0x5a, layout.node_bytes());  // what a recycled node held
  const TestImage old_right(split.right);
  LeafEditor editor(split.left.data(), layout, crc);
  split.separator = editor.ChooseSeparator(pending).value();
  NodeHeader header = ReadHeader(image.data(), layout);
  header.low = split.separator;
  header.life = NextLife(old_right.data());
  WriteHeader(split.right.data(), layout, header);
  LeafEditor sibling(split.right.data(), layout, crc);
  editor.MoveTo(split.separator, &sibling);
  SetHigh(split.left.data(), layout, split.separator);
  SetRight(split.left.data(), {RemoteAddress(1, 64), header.life});
  SealNodeLevel(split.left.data(), image.data(), layout, crc);
  SealNodeLevel(split.right.data(), old_right.data(), layout, crc);
  return split;
}

TEST(LeafSplitTest, LosesNothing) {
  Random random(7);
  for (const NodeLayout& layout : TestLayouts()) {
    for (int round = 0; round < 30; ++round) {
      std::set<std::string> keys;
      const size_t wanted = 2 + random.Uniform(std::min(layout.slot_count(), 200u) - 1);
      while (keys.size() < wanted)
        keys.insert(TestBytes(&random, 1 + random.Uniform(layout.key_bytes_max())));
      std::vector<LeafEntry> entries;
      for (const std::string& key : keys) {
        entries.push_back({key, TestBytes(&random, random.Uniform(layout.value_bytes_max() + 1))});
      }
      const std::string pending =
          random.Chance(0.5) ? "" : TestKey(&random, layout.key_bytes_max());
      const bool ascending = pending > *keys.rbegin();
      const bool crc = random.Chance(0.5);
      const TestImage image = TestLeaf(layout, TestHeader(), entries, crc);
      const auto before = Contents(image, layout);
      const Split split = DoSplit(image, layout, pending, crc);

      auto left = Contents(split.left, layout);
      const auto right = Contents(split.right, layout);
      ASSERT_FALSE(left.empty());
      ASSERT_FALSE(right.empty());
      ASSERT_LT(left.rbegin()->first, split.separator);
      ASSERT_LE(split.separator, right.begin()->first);
      ASSERT_LE(split.separator.size(), layout.key_bytes_max());
      if (ascending) {
        ASSERT_LE(right.size(), std::max<size_t>(1, wanted / 16));
      } else {
        ASSERT_GE(left.size() * 12 + 12, wanted * 5);
        ASSERT_GE(right.size() * 12 + 12, wanted * 5);
      }
      left.insert(right.begin(), right.end());
      ASSERT_EQ(left, before);
      ASSERT_TRUE(LinesConsistent(split.left.data(), layout, crc));
      ASSERT_TRUE(LinesConsistent(split.right.data(), layout, crc));
      ASSERT_EQ(Classify(split.left.data(), layout, TestExpectation(split.separator), crc),
                NodeVerdict::kMovedRight);
    }
  }
}

// Rule U2: only the sibling's node-level write moves keys; those that remain stay where they were.
TEST(LeafSplitTest, SurvivorsKeepTheirSlots) {
  const NodeLayout layout = TestLayout(8, 8);
  std::vector<LeafEntry> entries;
  for (int i = 10; i < 52; ++i) entries.push_back({"k" + std::to_string(i), "v"});
  TestImage image = TestLeaf(layout, TestHeader(), entries);
  TestImage sibling_image(layout);
  WriteHeader(sibling_image.data(), layout, TestHeader(0, "k31"));
  LeafEditor editor(image.data(), layout, false), sibling(sibling_image.data(), layout, false);
  std::map<std::string, int> slots;
  for (const LeafEntry& entry : entries) slots[entry.key] = editor.Find(entry.key);
  editor.MoveTo("k31", &sibling);
  for (const auto& [key, slot] : slots) {
    EXPECT_EQ(editor.Find(key), key < "k31" ? slot : -1);
    EXPECT_EQ(sibling.Find(key), key < "k31" ? -1 : slot);
  }
}

TEST(LeafSplitTest, OutOfFenceSlotsAreOverwritten) {  // rule F5
  const NodeLayout layout = TestLayout(8, 8);
  TestImage image =
      TestLeaf(layout, TestHeader(0, "c", "x"),
               {{"a", "gone"}, {"c", "1"}, {"g", "2"}, {"h", "3"}, {"x", "gone"}, {"z", "gone"}});
  const Split split = DoSplit(image, layout, "", false);
  TestImage widened(split.left);  // no slot comes back when somebody raises `high`
  SetHigh(widened.data(), layout, "");
  const std::map<std::string, std::string> kept = {{"c", "1"}};
  EXPECT_EQ(Contents(widened, layout), kept);
  EXPECT_EQ(split.separator, "g");
}

TEST(LeafSplitTest, TwoEntriesSplitOneAndOne) {
  const NodeLayout layout = TestLayout(8, 8);
  for (const char* pending : {"", "a", "z"}) {
    const Split split =
        DoSplit(TestLeaf(layout, TestHeader(), {{"k", "1"}, {"m", "2"}}), layout, pending, false);
    EXPECT_EQ(split.separator, "m");
    EXPECT_EQ(Contents(split.left, layout).size(), 1u);
    EXPECT_EQ(Contents(split.right, layout).size(), 1u);
  }
}

TEST(LeafSplitTest, AscendingInsertsFillLeaves) {
  for (const NodeLayout& layout : {TestLayout(8, 8), TestLayout(60, 8), TestLayout(255, 255)}) {
    TestImage image = TestLeaf(layout, TestHeader(), {});
    uint64_t leaves = 0, kept = 0;
    for (uint64_t i = 0; leaves < 20; ++i) {
      const uint64_t big_endian = __builtin_bswap64(i);
      const std::string key(reinterpret_cast<const char*>(&big_endian), 8);
      LeafEditor editor(image.data(), layout, false);
      if (editor.Put(key, "v")) continue;
      Split split = DoSplit(image, layout, key, false);
      ++leaves;
      kept += Contents(split.left, layout).size();
      image = split.right;
      LeafEditor right(image.data(), layout, false);
      ASSERT_TRUE(right.Put(key, "v"));
    }
    EXPECT_GE(kept * 100, leaves * layout.slot_count() * 90);
  }
}

TEST(LeafSplitTest, PrefersAShortSeparatorNearTheMiddle) {
  const NodeLayout layout = TestLayout(60, 8);
  std::vector<LeafEntry> entries;
  const std::string prefix(50, 'p');
  for (int i = 0; i < 30; ++i) {  // the prefix changes two off the middle
    entries.push_back({(i < 17 ? "a" : "b") + prefix + std::to_string(10 + i), ""});
  }
  TestImage image = TestLeaf(layout, TestHeader(), entries);
  EXPECT_EQ(LeafEditor(image.data(), layout, false).ChooseSeparator(""), "b");
}

TEST(LeafSplitTest, ADamagedLeafHasNoSeparator) {
  const NodeLayout layout = TestLayout(8, 8);
  const auto separator_of = [&](const std::vector<LeafEntry>& entries) {
    TestImage image = TestLeaf(layout, TestHeader(0, "b", "p"), entries);
    return LeafEditor(image.data(), layout, false).ChooseSeparator("");
  };
  EXPECT_EQ(separator_of({}), std::nullopt);
  EXPECT_EQ(separator_of({{"c", ""}}), std::nullopt);
  EXPECT_EQ(separator_of({{"a", ""}, {"c", ""}, {"x", ""}}), std::nullopt);  // one in fence
  EXPECT_EQ(separator_of({{"c", ""}, {"d", ""}}), "d");
  // Two slots of one key, wherever it is in the order.
  for (const uint32_t copy : {1u, 20u, 41u}) {
    std::vector<LeafEntry> entries;
    for (int i = 0; i < 42; ++i) entries.push_back({"c" + std::to_string(10 + i), ""});
    TestImage image = TestLeaf(layout, TestHeader(), entries);
    LeafEditor editor(image.data(), layout, false);
    ASSERT_TRUE(editor.ChooseSeparator("").has_value());
    const wire::SlotPlace from = wire::PlaceOf(layout, 0), to = wire::PlaceOf(layout, copy);
    std::memcpy(wire::SlotStart(image.data(), to), wire::SlotStart(image.data(), from),
                layout.slot_bytes());
    EXPECT_EQ(editor.ChooseSeparator(""), std::nullopt) << copy;
    EXPECT_EQ(editor.ChooseSeparator("d"), std::nullopt) << copy;
  }
}

TEST(LeafFillTest, HoldsAFullLeaf) {
  for (const NodeLayout& layout : TestLayouts()) {
    if (layout.key_bytes_max() < 2) continue;  // fewer keys than slots
    std::vector<LeafEntry> entries;
    for (uint32_t i = 0; i < layout.slot_count(); ++i) {
      entries.push_back({{static_cast<char>(i >> 8), static_cast<char>(i)},
                         std::string(layout.value_bytes_max(), 'v')});
    }
    const TestImage image = TestLeaf(layout, TestHeader(), entries);
    const auto contents = Contents(image, layout);
    EXPECT_EQ(contents.size(), entries.size());
    for (const LeafEntry& entry : entries) EXPECT_EQ(contents.at(entry.key), entry.value);
  }
}

}  // namespace
}  // namespace pando
