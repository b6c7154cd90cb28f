// Edits of leaves against a model, and what readers may see of them. Splits: leaf_split_test.cpp.
#include "common/wire/leaf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "common/wire/line.h"
#include "common/wire/test_images.h"

namespace pando {
namespace {

using Model = std::map<std::string, std::string>;

// A leaf of [low, high) on top of what it held when its high was none: the upper part is out of
// fence now.
struct Leaf {
  TestImage image;
  Model model;
  std::vector<std::string> keys;  // in-fence keys to choose from
};

Leaf RandomLeaf(Random* random, const NodeLayout& layout, bool crc) {
  std::set<std::string> universe;
  while (universe.size() <
         std::min<size_t>(layout.slot_count() * 3 / 2, layout.key_bytes_max() == 1 ? 256 : 5000)) {
    universe.insert(TestKey(random, layout.key_bytes_max()));
    if (layout.key_bytes_max() <= 2) universe.insert(TestBytes(random, 1));
  }
  std::vector<std::string> keys(universe.begin(), universe.end());
  const bool fenced = random->Chance(0.7);
  const std::string low = fenced ? keys[keys.size() / 10] : "";
  const std::string high = fenced ? keys[keys.size() * 8 / 10] : "";

  std::vector<LeafEntry> entries;
  for (const std::string& key : keys) {  // out-of-fence keys are written as well
    if (entries.size() < layout.slot_count() && random->Chance(0.6)) {
      entries.push_back({key, TestBytes(random, random->Uniform(layout.value_bytes_max() + 1))});
    }
  }
  Leaf leaf{TestLeaf(layout, TestHeader(0, low, high), entries, crc), {}, {}};
  const auto inside = [&](const std::string& key) {
    return key >= low && (high.empty() || key < high);
  };
  for (const LeafEntry& entry : entries) {
    if (inside(entry.key)) leaf.model[entry.key] = entry.value;
  }
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(leaf.keys), inside);
  return leaf;
}

// Rules F2 and F6 of an entry-level write-back: only the runs' lines changed, each with a new EV
// and the old NV.
void ExpectRuns(const LineRuns& runs, const TestImage& before, const TestImage& after,
                const NodeLayout& layout, uint32_t packet_bytes) {
  std::vector<bool> written(layout.lines());
  uint32_t next = 0;
  for (const LineRun& run : runs) {
    // Rule N6: one may come first that lies behind others.
    if (layout.window_groups() > 0 && &run == runs.begin() + 1) next = 0;
    ASSERT_GE(run.first_line, next);
    ASSERT_GT(run.line_count, 0u);
    ASSERT_FALSE(written[run.first_line]);
    ASSERT_GE(run.first_line, layout.header_lines());
    ASSERT_LE(run.bytes(), packet_bytes);
    ASSERT_EQ((run.first_line - layout.header_lines()) % layout.lines_per_group(), 0u);
    ASSERT_EQ(run.line_count % layout.lines_per_group(), 0u);
    next = run.first_line + run.line_count;
    ASSERT_LE(next, layout.lines());
    std::fill(written.begin() + run.first_line, written.begin() + next, true);
  }
  for (uint32_t i = 0; i < layout.lines(); ++i) {
    ASSERT_EQ(wire::Nv(before.line(i)), wire::Nv(after.line(i)));
    if (written[i]) {
      ASSERT_NE(wire::FrontEv(before.line(i)), wire::FrontEv(after.line(i)));
    } else {
      ASSERT_TRUE(before.SameLine(after, i));
    }
  }
}

std::optional<std::string> Lookup(const Model& model, const std::string& key) {
  const auto at = model.find(key);
  return at == model.end() ? std::nullopt : std::optional(at->second);
}

// Whatever lines of the write-back a reader meets: torn, or each key as it was before or after.
void ExpectMixturesAreSafe(Random* random, const TestImage& before, const TestImage& after,
                           const Model& old_model, const Model& new_model, const NodeLayout& layout,
                           const std::vector<std::string>& touched, bool crc) {
  for (int round = 0; round < 4; ++round) {
    TestImage seen(before);
    for (uint32_t i = 0; i < layout.lines(); ++i) {
      if (random->Chance(0.5)) seen.CopyLine(after, i);
    }
    for (const std::string& key : touched) {
      LeafMatch match;
      const NodeVerdict verdict = Classify(seen.data(), layout, TestExpectation(key), crc, &match);
      if (verdict == NodeVerdict::kTorn) continue;
      ASSERT_EQ(verdict, NodeVerdict::kAccepted);
      std::optional<std::string> value;
      if (match.slot >= 0) {
        ReadSlotValue(seen.data(), layout, static_cast<uint32_t>(match.slot), &value.emplace());
      }
      ASSERT_TRUE(value == Lookup(old_model, key) || value == Lookup(new_model, key));
    }
  }
}

TEST(LeafEditorTest, RandomBatchesAgainstAModel) {
  Random random(5);
  for (const NodeLayout& layout : TestLayouts()) {
    for (int leaf_round = 0; leaf_round < 12; ++leaf_round) {
      const bool crc = random.Chance(0.3);
      Leaf leaf = RandomLeaf(&random, layout, crc);
      ASSERT_EQ(Contents(leaf.image, layout), leaf.model);
      for (int batch = 0; batch < 40; ++batch) {
        const TestImage before(leaf.image);
        const Model old_model = leaf.model;
        const uint32_t packet_bytes = random.Chance(0.5) ? 4096 : 1024;
        LeafEditor editor(leaf.image.data(), layout, crc);
        std::map<std::string, int> old_slots;
        std::vector<std::string> touched;
        std::set<std::string> erased;
        for (uint64_t edits = 1 + random.Uniform(6); edits > 0; --edits) {
          const std::string& key = leaf.keys[random.Uniform(leaf.keys.size())];
          old_slots.try_emplace(
              key, LeafEditor(const_cast<std::byte*>(before.data()), layout, crc).Find(key));
          touched.push_back(key);
          if (random.Chance(0.4)) {
            ASSERT_EQ(editor.Erase(key), leaf.model.erase(key) == 1);
            erased.insert(key);
            continue;
          }
          const std::string value =
              TestBytes(&random, random.Uniform(layout.value_bytes_max() + 1));
          const bool fits = leaf.model.count(key) == 1 || leaf.model.size() < layout.slot_count();
          ASSERT_EQ(editor.HasFreeSlot(), leaf.model.size() < layout.slot_count());
          ASSERT_EQ(editor.Put(key, value), fits);
          if (fits) leaf.model[key] = value;
        }
        ASSERT_EQ(editor.used_slots(), leaf.model.size());
        for (const auto& [key, old_slot] : old_slots) {  // rule U2
          const int slot = editor.Find(key);
          ASSERT_EQ(slot >= 0, leaf.model.count(key) == 1);
          if (old_slot >= 0 && slot >= 0 && erased.count(key) == 0) {
            ASSERT_EQ(slot, old_slot);
          }
        }
        const LineRuns runs = editor.SealDirty(packet_bytes);
        if (runs.empty() && editor.dirty()) {  // rule N6: at node level
          ASSERT_GT(layout.window_groups(), 0u);
          SealNodeLevel(leaf.image.data(), leaf.image.data(), layout, crc);
          ASSERT_EQ(Contents(leaf.image, layout), leaf.model);
          continue;
        }
        ASSERT_FALSE(editor.dirty());
        ASSERT_NO_FATAL_FAILURE(ExpectRuns(runs, before, leaf.image, layout, packet_bytes));
        ASSERT_TRUE(LinesConsistent(leaf.image.data(), layout, crc));
        ASSERT_EQ(Contents(leaf.image, layout), leaf.model);
        ASSERT_NO_FATAL_FAILURE(ExpectMixturesAreSafe(&random, before, leaf.image, old_model,
                                                      leaf.model, layout, touched, crc));
      }
    }
  }
}

TEST(LeafEditorTest, AnUpdateIsOneRunOfOneSlotsLines) {
  for (const NodeLayout& layout : TestLayouts()) {
    TestImage image = TestLeaf(layout, TestHeader(), {{"a", ""}, {"b", ""}, {"c", ""}});
    LeafEditor editor(image.data(), layout, false);
    EXPECT_FALSE(editor.dirty());
    ASSERT_TRUE(editor.Put("b", std::string(layout.value_bytes_max(), 'v')));
    EXPECT_TRUE(editor.dirty());
    const LineRuns runs = editor.SealDirty(4096);
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_EQ(runs[0].line_count, layout.lines_per_group());
    EXPECT_TRUE(editor.SealDirty(4096).empty());
  }
}

TEST(LeafEditorTest, NothingIsDirtyAfterWhatDidNothing) {
  const NodeLayout layout = TestLayout(8, 8);
  std::vector<LeafEntry> entries;
  for (uint32_t i = 0; i < layout.slot_count(); ++i)
    entries.push_back({"k" + std::to_string(i), "v"});
  TestImage image = TestLeaf(layout, TestHeader(), entries);
  LeafEditor editor(image.data(), layout, false);
  EXPECT_FALSE(editor.HasFreeSlot());
  EXPECT_FALSE(editor.Erase("absent"));
  EXPECT_FALSE(editor.Put("absent", "v"));
  EXPECT_FALSE(editor.dirty());
}

// Rule U2 inside one batch: the slot waits for its key while others are free.
TEST(LeafEditorTest, ErasedKeyThatComesBackKeepsItsSlot) {
  for (const NodeLayout& layout : TestLayouts()) {
    TestImage image = TestLeaf(layout, TestHeader(), {{"a", ""}, {"b", ""}, {"c", ""}});
    LeafEditor editor(image.data(), layout, false);
    const int slot = editor.Find("b");
    ASSERT_TRUE(editor.Erase("b"));
    ASSERT_EQ(editor.Find("b"), -1);
    for (const char* key : {"d", "e", "f"}) {
      ASSERT_TRUE(editor.Put(key, ""));
    }
    ASSERT_TRUE(editor.Put("b", ""));
    EXPECT_EQ(editor.Find("b"), slot);
  }
}

TEST(LeafEditorTest, ErasedBytesDoNotOutliveTheBatch) {
  for (const NodeLayout& layout : TestLayouts()) {
    const TestImage empty = TestLeaf(layout, TestHeader(), {});
    TestImage image(empty);
    LeafEditor editor(image.data(), layout, false);
    ASSERT_TRUE(editor.Put(std::string(layout.key_bytes_max(), 'k'),
                           std::string(layout.value_bytes_max(), 'v')));
    editor.SealDirty(4096);
    ASSERT_TRUE(editor.Erase(std::string(layout.key_bytes_max(), 'k')));
    editor.SealDirty(4096);
    for (uint32_t i = 0; i < layout.lines(); ++i) {
      ASSERT_EQ(std::memcmp(image.line(i) + kLinePayloadOffset, empty.line(i) + kLinePayloadOffset,
                            kLinePayloadBytes),
                0);
    }
  }
}

TEST(LeafEditorTest, OutOfFenceSlotsAreFreeAndInvisible) {  // rule F5
  const NodeLayout layout = TestLayout(8, 8);
  std::vector<LeafEntry> entries;
  for (uint32_t i = 0; i < layout.slot_count(); ++i) {
    entries.push_back({std::string(1, static_cast<char>('A' + i)), "old"});
  }
  TestImage image = TestLeaf(layout, TestHeader(0, "C", "P"), entries);
  LeafEditor editor(image.data(), layout, false);
  EXPECT_EQ(editor.used_slots(), 13u);  // C to O
  EXPECT_TRUE(HasSlotOutOfFence(image.data(), layout));
  EXPECT_FALSE(
      HasSlotOutOfFence(TestLeaf(layout, TestHeader(0, "C", "P"), {{"C", ""}}).data(), layout));
  for (uint32_t i = 13; i < layout.slot_count(); ++i) {
    ASSERT_TRUE(editor.HasFreeSlot());
    ASSERT_TRUE(editor.Put("D" + std::to_string(i), "new"));
  }
  EXPECT_FALSE(editor.HasFreeSlot());
  EXPECT_FALSE(editor.Put("E1", "new"));
  EXPECT_EQ(Contents(image, layout).size(), layout.slot_count());
}

TEST(LeafEditorTest, ManyDirtyGroupsMakePacketsInOrder) {
  const NodeLayout layout = TestLayout(255, 255);  // ten lines a slot
  TestImage image = TestLeaf(layout, TestHeader(), {});
  const TestImage before(image);
  LeafEditor editor(image.data(), layout, false);
  for (uint32_t i = 0; i < layout.slot_count(); ++i) {
    ASSERT_TRUE(editor.Put("key" + std::to_string(i), std::string(255, 'v')));
  }
  const LineRuns runs = editor.SealDirty(4096);
  ASSERT_NO_FATAL_FAILURE(ExpectRuns(runs, before, image, layout, 4096));
  EXPECT_EQ(runs.size(), 6u);  // 6 slots a packet
}

TEST(LeafEditorTest, ValueMayShrinkAndGrow) {
  for (const NodeLayout& layout : TestLayouts()) {
    TestImage image = TestLeaf(layout, TestHeader(), {});
    LeafEditor editor(image.data(), layout, false);
    for (uint32_t bytes = 0; bytes <= layout.value_bytes_max(); ++bytes) {
      for (const uint32_t size : {bytes, layout.value_bytes_max() - bytes}) {
        const std::string value(size, static_cast<char>('a' + bytes % 26));
        ASSERT_TRUE(editor.Put("k", value));
        std::string read = "something else";
        ReadSlotValue(image.data(), layout, static_cast<uint32_t>(editor.Find("k")), &read);
        ASSERT_EQ(read, value);
      }
    }
  }
}

TEST(LeafEntriesTest, ReusesTheCallersVector) {
  const NodeLayout layout = TestLayout(8, 8);
  std::vector<LeafEntry> entries(100, {"stale key", "stale value"});
  const TestImage image = TestLeaf(layout, TestHeader(), {{"a", "1"}, {"b", ""}});
  ASSERT_TRUE(ReadLeafEntries(image.data(), layout, &entries));
  ASSERT_EQ(entries.size(), 2u);
  std::sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.key < b.key; });
  EXPECT_EQ(entries[0].key, "a");
  EXPECT_EQ(entries[0].value, "1");
  EXPECT_EQ(entries[1].key, "b");
  EXPECT_EQ(entries[1].value, "");
}

}  // namespace
}  // namespace pando
