#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

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

// Random keys, ascending, with values.
std::vector<LeafEntry> RandomEntries(const NodeLayout& layout, size_t count, Random* random) {
  std::set<std::string> keys;
  while (keys.size() < count) {
    keys.insert(TestBytes(random, 1 + random->Uniform(layout.key_bytes_max())));
  }
  std::vector<LeafEntry> entries;
  for (const std::string& key : keys) {
    entries.push_back({key, TestBytes(random, random->Uniform(layout.value_bytes_max() + 1))});
  }
  return entries;
}

// The parts into which the cuts divide `count` entries.
std::vector<size_t> Parts(const std::vector<size_t>& cuts, size_t count) {
  std::vector<size_t> parts;
  size_t first = 0;
  for (const size_t cut : cuts) parts.push_back(cut - std::exchange(first, cut));
  parts.push_back(count - first);
  return parts;
}

TEST(ChooseCutsTest, NoPartIsEmptyOrTooLargeOrMuchSmallerThanAnother) {
  Random random(7);
  for (uint32_t slots = 2; slots <= 200; ++slots) {
    const NodeLayout layout = TestLayout(60, 0);
    const uint32_t each = EntriesWhenCut(slots);
    for (uint32_t leaves = 2; leaves <= 9; ++leaves) {
      // The fewest and the most that have room in so many.
      const size_t fewest = std::max(slots, (leaves - 1) * each) + 1;
      for (const size_t count : {fewest, size_t{leaves} * each}) {
        if (count <= slots) continue;
        const std::vector<LeafEntry> entries = RandomEntries(layout, count, &random);
        const auto even = Parts(ChooseCuts(entries, slots, false), count);
        ASSERT_LE(even.size(), leaves) << slots << " slots, " << count << " entries";
        for (const size_t part : even) {
          ASSERT_LE(part, slots);
          ASSERT_GE(3 * part + 3, count / even.size() * 2);
        }
        const auto filled = Parts(ChooseCuts(entries, slots, true), count);
        ASSERT_LE(filled.size(), leaves);
        ASSERT_GT(filled.back(), 0u);
        for (size_t i = 0; i + 1 < filled.size(); ++i) {
          ASSERT_LE(filled[i], slots);
          ASSERT_GE(filled[i] * 100, slots * (slots < 32 ? 50 : 90));
        }
      }
    }
  }
}

TEST(ChooseCutsTest, PrefersAShortSeparatorNearTheMiddle) {
  std::vector<LeafEntry> entries;
  const std::string prefix(50, 'p');
  for (int i = 0; i < 32; ++i) {  // the prefix changes two off the middle
    entries.push_back({(i < 18 ? "a" : "b") + prefix + std::to_string(10 + i), ""});
  }
  EXPECT_EQ(ChooseCuts(entries, 31, false), std::vector<size_t>{18});
  EXPECT_EQ(ChooseCuts(entries, 31, true), std::vector<size_t>{30}) << "nearly full";
}

// Rules U2, S5: what remains stays where it was; F5: the slots of what goes are cleared.
TEST(LeafSplitTest, SurvivorsKeepTheirSlotsAndNothingElseStays) {
  Random random(8);
  for (const NodeLayout& layout : TestLayouts()) {
    if (layout.slot_count() < 2 || layout.key_bytes_max() < 2) continue;
    const size_t count = std::min(layout.slot_count(), 200u);
    const std::vector<LeafEntry> entries = RandomEntries(layout, count, &random);
    TestImage image = TestLeaf(layout, TestHeader(), entries);
    const std::string high = entries[count / 2].key;
    LeafEditor editor(image.data(), layout, false);
    std::map<std::string, int> slots;
    for (const LeafEntry& entry : entries) slots[entry.key] = editor.Find(entry.key);
    SetHigh(image.data(), layout, high);
    editor.ClearOutOfFence();
    for (const auto& [key, slot] : slots) ASSERT_EQ(editor.Find(key), key < high ? slot : -1);
    SetHigh(image.data(), layout, "");  // no slot comes back when somebody raises `high`
    EXPECT_EQ(Contents(image, layout).size(), count / 2);
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
