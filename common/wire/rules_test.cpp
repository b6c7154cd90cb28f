// What goes wrong in images where a rule is switched off, and does not where it holds. Built with
// PANDO_BROKEN_VARIANTS, apart from the room's other tests.
#include <gtest/gtest.h>

#include "common/base/rule.h"
#include "common/wire/line.h"
#include "common/wire/node_format.h"
#include "common/wire/root_record.h"
#include "common/wire/slot.h"
#include "common/wire/test_images.h"

#ifndef PANDO_BROKEN_VARIANTS
#error "this test needs the variants"
#endif

namespace pando {
namespace {

class Broken {
 public:
  explicit Broken(Rule rule) { BreakRule(rule); }
  ~Broken() { BreakRule(Rule::kNone); }
};

NodeVerdict Verdict(const TestImage& image, const NodeLayout& layout, std::string_view key,
                    LeafMatch* match = nullptr) {
  return Classify(image.data(), layout, TestExpectation(key), /*crc=*/false, match);
}

// A READ that met a WRITE inside a line: the words from `from` on are still the old ones.
void TearLine(TestImage* image, const TestImage& old_image, uint32_t line, uint32_t from) {
  std::memcpy(image->line(line) + from, old_image.line(line) + from, kLineBytes - from);
}

TEST(RulesTest, F1TornLineIsTakenForWhole) {
  const NodeLayout layout = TestLayout(8, 8);
  const TestImage before = TestLeaf(layout, TestHeader(), {{"k", "12345678"}});
  TestImage after(before);
  LeafEditor editor(after.data(), layout, false);
  ASSERT_TRUE(editor.Put("k", "abcdefgh"));
  const LineRuns runs = editor.SealDirty(4096);
  TestImage seen(after);
  TearLine(&seen, before, runs[0].first_line, 32);
  EXPECT_EQ(Verdict(seen, layout, "k"), NodeVerdict::kTorn);
  Broken f1(Rule::kF1);
  EXPECT_EQ(Verdict(seen, layout, "k"), NodeVerdict::kAccepted);
}

TEST(RulesTest, F1TornRootRecordIsTakenForWhole) {
  std::byte line[kLineBytes] = {};
  EncodeRootRecord({7, {RemoteAddress(1, 64), 1}, 1, false}, line, false, line);
  line[wire::kRearEvOffset] ^= std::byte{1};
  RootRecord record;
  EXPECT_EQ(DecodeRootRecord(line, 7, false, &record), RootVerdict::kTorn);
  Broken f1(Rule::kF1);
  EXPECT_EQ(DecodeRootRecord(line, 7, false, &record), RootVerdict::kAccepted);
}

TEST(RulesTest, F2EntryWriteKeepsItsVersionAndTearsUnseen) {
  const NodeLayout layout = TestLayout(8, 8);
  const TestImage before = TestLeaf(layout, TestHeader(), {{"k", "12345678"}});
  const auto torn_update = [&] {
    TestImage after(before);
    LeafEditor editor(after.data(), layout, false);
    EXPECT_TRUE(editor.Put("k", "abcdefgh"));
    const LineRuns runs = editor.SealDirty(4096);
    TearLine(&after, before, runs[0].first_line, 32);
    return after;
  };
  EXPECT_EQ(Verdict(torn_update(), layout, "k"), NodeVerdict::kTorn);
  Broken f2(Rule::kF2);
  EXPECT_EQ(Verdict(torn_update(), layout, "k"), NodeVerdict::kAccepted);
}

TEST(RulesTest, F2FormattingForgetsTheOldImage) {
  const NodeLayout layout = TestLayout(8, 8);
  const TestImage before = TestLeaf(layout, TestHeader(), {{"k", "1"}});
  const auto half_formatted = [&] {
    TestImage after = before;
    FillLeaf(after.data(), layout, std::vector<LeafEntry>{{"l", "2"}});
    SealNodeLevel(after.data(), before.data(), layout, false);
    for (uint32_t i = 8; i < layout.lines(); ++i) after.CopyLine(before, i);
    return after;
  };
  EXPECT_EQ(Verdict(half_formatted(), layout, "k"), NodeVerdict::kTorn);
  Broken f2(Rule::kF2);
  EXPECT_EQ(Verdict(half_formatted(), layout, "k"), NodeVerdict::kAccepted);
}

TEST(RulesTest, F3AnotherLifeIsTakenForTheNode) {
  const NodeLayout layout = TestLayout(8, 8);
  NodeHeader header = TestHeader();
  ++header.life;
  const TestImage image = TestLeaf(layout, header, {});
  EXPECT_EQ(Verdict(image, layout, "k"), NodeVerdict::kStale);
  Broken f3(Rule::kF3);
  EXPECT_EQ(Verdict(image, layout, "k"), NodeVerdict::kAccepted);
}

// Somebody who did not keep rule U2 moved the key; a reader met the new line before the old one was
// rewritten.
TEST(RulesTest, V1OneKeyInTwoSlotsIsTakenForWhole) {
  const NodeLayout layout = TestLayout(8, 8);
  TestImage image = TestLeaf(layout, TestHeader(), {{"k", "1"}, {"l", "2"}});
  LeafMatch match;
  ASSERT_EQ(Verdict(image, layout, "l", &match), NodeVerdict::kAccepted);
  std::byte* const key =
      wire::SlotStart(image.data(), wire::PlaceOf(layout, static_cast<uint32_t>(match.slot))) +
      layout.slot_meta_bytes();
  *key = std::byte{'k'};
  std::vector<LeafEntry> entries;
  EXPECT_EQ(Verdict(image, layout, "k"), NodeVerdict::kTorn);
  EXPECT_FALSE(ReadLeafEntries(image.data(), layout, &entries));
  Broken v1(Rule::kV1);
  EXPECT_EQ(Verdict(image, layout, "k", &match), NodeVerdict::kAccepted);
  EXPECT_GE(match.slot, 0);
  EXPECT_TRUE(ReadLeafEntries(image.data(), layout, &entries));
  EXPECT_EQ(entries.size(), 2u);
}

TEST(RulesTest, U2UpdatedKeyMovesAndCanBeMissed) {
  const NodeLayout layout = TestLayout(8, 8);
  TestImage before = TestLeaf(layout, TestHeader(), {{"k", "1"}});
  LeafEditor editor(before.data(), layout, false);
  const auto group = [&](int slot) { return layout.GroupOfSlot(static_cast<uint32_t>(slot)); };
  uint32_t neighbours = 0;  // fill the line of "k", so that a move has to leave it
  for (int i = 0; neighbours + 1 < layout.slots_per_group(); ++i) {
    const std::string key = "f" + std::to_string(i);
    ASSERT_TRUE(editor.Put(key, ""));
    if (group(editor.Find(key)) == group(editor.Find("k"))) ++neighbours;
  }
  editor.SealDirty(4096);

  // A reader that has the line where "k" was from after the update, all other lines from before.
  const auto sees_key = [&] {
    TestImage after(before);
    LeafEditor update(after.data(), layout, false);
    EXPECT_TRUE(update.Put("k", "2"));
    update.SealDirty(4096);
    TestImage seen(before);
    seen.CopyLine(after, layout.FirstLineOfGroup(group(editor.Find("k"))));
    LeafMatch match;
    EXPECT_EQ(Verdict(seen, layout, "k", &match), NodeVerdict::kAccepted);
    return match.slot >= 0;
  };
  EXPECT_TRUE(sees_key());
  Broken u2(Rule::kU2);
  EXPECT_FALSE(sees_key());
}

}  // namespace
}  // namespace pando
