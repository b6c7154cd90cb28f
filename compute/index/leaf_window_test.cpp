// A leaf with windows as a batch leaves it (rules N6, N7).
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/wire/test_images.h"
#include "common/wire/window.h"
#include "compute/index/leaf_batch.h"

namespace pando {
namespace {

NodeLayout Eights() { return TestLayout(8, 8, 0, /*windows=*/true); }

// A full leaf, and its keys in order.
TestImage FullLeaf(Random* random, std::vector<std::string>* keys) {
  const NodeLayout layout = Eights();
  TestImage image = TestLeaf(layout, TestHeader(), {});
  LeafEditor editor(image.data(), layout, false);
  while (keys->size() < layout.slot_count()) {
    keys->push_back(TestBytes(random, 8));
    PANDO_CHECK(editor.Put(keys->back(), "v"));
  }
  SealNodeLevel(image.data(), image.data(), layout, false);
  std::sort(keys->begin(), keys->end());
  return image;
}

WindowVerdict WindowSays(const TestImage& image, const std::string& key, LeafMatch* match) {
  return ClassifyWindow(image.data(), Eights(), TestExpectation(key), false, match);
}

// Rule N7: the key's slot may be written later than its home's flag, or never.
TEST(LeafWindowTest, AKeyThatASplitErasesKeepsItsFlag) {
  const NodeLayout layout = Eights();
  Random random(3);
  int spilled = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<std::string> keys;
    TestImage image = FullLeaf(&random, &keys);
    LeafMatch match;
    const auto middle = keys.begin() + 21;
    const auto erased = std::find_if(keys.begin(), middle, [&](const std::string& key) {
      return WindowSays(image, key, &match) == WindowVerdict::kFlagged;
    });
    if (erased == middle) continue;
    ++spilled;
    LeafBatch batch(image.data(), layout, false);
    absl::Status result;
    ASSERT_TRUE(batch.Apply({.kind = WriteKind::kErase, .key = *erased, .value = ""}, &result));
    ASSERT_TRUE(result.ok());
    batch.CommitBelow(*middle, {RemoteAddress(1, 4096), 1});
    SealNodeLevel(image.data(), image.data(), layout, false);
    EXPECT_FALSE(Contents(image, layout).contains(*erased));
    EXPECT_EQ(WindowSays(image, *erased, &match), WindowVerdict::kFlagged);
    EXPECT_TRUE(SpillsAreFlagged(image.data(), layout));
  }
  EXPECT_GT(spilled, 20);
}

// A split gives the slots of erased keys back.
TEST(LeafWindowTest, WhatASplitErasesIsFree) {
  const NodeLayout layout = Eights();
  Random random(4);
  std::vector<std::string> keys;
  TestImage image = FullLeaf(&random, &keys);
  LeafBatch batch(image.data(), layout, false);
  absl::Status result;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(batch.Apply({.kind = WriteKind::kErase, .key = keys[i], .value = ""}, &result));
  }
  batch.CommitBelow(keys[21], {RemoteAddress(1, 4096), 1});
  uint32_t empty = 0;
  for (uint32_t group = 0; group < layout.group_count(); ++group) {
    empty += wire::EmptySlots(image.data(), layout, group);
  }
  EXPECT_EQ(empty, layout.slot_count() - 11);
}

// Rule N6: the group with the flag is a run by itself, and the first one; or there is no order.
TEST(LeafWindowTest, ABatchThatFillsAWindowAndSpillsHasAnOrderOrNone) {
  const NodeLayout layout = Eights();
  Random random(5);
  int ordered = 0, unordered = 0;
  for (int round = 0; round < 400; ++round) {
    TestImage image = TestLeaf(layout, TestHeader(), {});
    std::deque<std::string> keys;  // the batch looks at them until it is committed
    LeafEditor before(image.data(), layout, false);
    for (int i = 0; i < 30; ++i) PANDO_CHECK(before.Put(TestBytes(&random, 8), "v"));
    (void)before.SealDirty(4096);
    LeafBatch batch(image.data(), layout, false);
    absl::Status result;
    for (int i = 0; i < 8; ++i) {
      keys.push_back(TestBytes(&random, 8));
      ASSERT_TRUE(batch.Apply({.key = keys.back(), .value = "v"}, &result));
    }
    const TestImage read(image);
    LeafEditor& editor = batch.Commit();
    ASSERT_TRUE(editor.dirty());
    const LineRuns runs = editor.SealDirty(4096);
    ASSERT_TRUE(SpillsAreFlagged(image.data(), layout));
    unordered += runs.empty() ? 1 : 0;
    // As somebody sees it after the first WRITE, and before the others: no key without its flag,
    // and a reader that finds a flag missing finds no such key in the leaf after any of them.
    TestImage landed(read);
    bool later = false;
    for (const LineRun& run : runs) {
      for (uint32_t i = 0; i < run.line_count; ++i) landed.CopyLine(image, run.first_line + i);
      ASSERT_TRUE(SpillsAreFlagged(landed.data(), layout));
      ordered += later && runs.front().first_line > run.first_line ? 1 : 0;
      later = true;
    }
  }
  EXPECT_GT(ordered, 0);
  EXPECT_GT(unordered, 0);
}

}  // namespace
}  // namespace pando
