// Windows of keys (rules N1 to N8): placing, what readers of a few lines make of them at every
// moment of every kind of write, and the numbers of each layout.
#include "common/wire/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/wire/window_scenes.h"

namespace pando {
namespace {

// Small enough that each moment of a write can be looked at: several slots a line, several slots in
// several lines, one slot a line.
std::vector<NodeLayout> SceneLayouts() {
  return {TestLayout(8, 8, 0, true), TestLayout(60, 8, 1024, true), TestLayout(20, 30, 1024, true)};
}

// Each layout, with and without checksums, lines of a WRITE upwards and downwards.
template <typename Scene>
void PlayAll(const Scene& scene) {
  for (const NodeLayout& layout : SceneLayouts()) {
    for (const bool crc : {false, true}) {
      for (const bool upwards : {false, true}) {
        const std::string problem = scene(layout, crc, upwards);
        EXPECT_EQ(problem, "") << layout.key_bytes_max() << "/" << layout.value_bytes_max()
                               << (crc ? ", checksums" : "") << (upwards ? ", upwards" : "");
      }
    }
  }
}

TEST(WindowTest, GeometryIsAsDocumented) {
  const auto expect = [](const NodeLayout& layout, uint32_t bytes, uint32_t groups, uint32_t lines,
                         uint32_t slots, uint32_t window) {
    EXPECT_EQ(layout.node_bytes(), bytes);
    EXPECT_EQ(layout.group_count(), groups);
    EXPECT_EQ(layout.lines_per_group(), lines);
    EXPECT_EQ(layout.slots_per_group(), slots);
    EXPECT_EQ(layout.window_groups(), window);
  };
  expect(TestLayout(8, 8, 0, true), 1024, 14, 1, 3, 3);
  expect(TestLayout(24, 8, 0, true), 1664, 11, 2, 3, 2);
  expect(TestLayout(60, 8, 0, true), 3072, 11, 4, 3, 2);
  EXPECT_EQ(TestLayout(8, 8, 0, true).entries_max(), 42u);
  EXPECT_EQ(TestLayout(24, 8, 0, true).entries_max(), 30u);
  for (const NodeLayout& layout : {TestLayout(8, 8), TestLayout(60, 8)}) {
    EXPECT_EQ(layout.window_groups(), 0u);
    EXPECT_EQ(layout.entries_max(), layout.slot_count());
  }
}

// Rule N4: what a reader looks at first lies in one line, and slots do not overlap.
TEST(WindowTest, EverySizeHasALayoutWhoseSlotsLieInTheirGroups) {
  for (uint32_t key = 1; key <= kKeyBytesLimit; key += key < 70 ? 1 : 13) {
    for (uint32_t value = 0; value <= kValueBytesLimit; value += value < 20 ? 3 : 17) {
      const NodeLayout layout = TestLayout(key, value, 0, true);
      ASSERT_LE(layout.window_groups() * 2, layout.group_count());
      for (uint32_t slot = 0; slot < layout.slot_count(); ++slot) {
        const wire::SlotPlace place = wire::PlaceOf(layout, slot);
        const uint32_t first = layout.FirstLineOfGroup(layout.GroupOfSlot(slot));
        ASSERT_GE(place.line, first);
        ASSERT_LE((place.line - first) * kLinePayloadBytes + place.offset + layout.slot_bytes(),
                  layout.lines_per_group() * kLinePayloadBytes);
        ASSERT_LE(place.offset + layout.slot_meta_bytes() + std::min(key, 8u), kLinePayloadBytes);
        if (slot % layout.slots_per_group() == 0) continue;
        const wire::SlotPlace before = wire::PlaceOf(layout, slot - 1);
        ASSERT_GE((place.line - before.line) * kLinePayloadBytes + place.offset,
                  before.offset + layout.slot_bytes());
      }
    }
  }
}

TEST(WindowTest, RunsAreTheWindow) {
  for (const NodeLayout& layout : WindowLayouts()) {
    Random random(1);
    bool wraps = false;
    for (int i = 0; i < 200; ++i) {
      const std::string key = SceneKey(&random, layout);
      const WindowRuns window = WindowOf(layout, key);
      std::vector<uint32_t> lines, expected;
      for (uint32_t run = 0; run < window.count; ++run) {
        for (uint32_t line = 0; line < window.runs[run].line_count; ++line) {
          lines.push_back(window.runs[run].first_line + line);
        }
      }
      for (uint32_t i = 0; i < layout.window_groups(); ++i) {
        const uint32_t group = wire::GroupBehind(layout, wire::HomeOf(layout, key), i);
        for (uint32_t line = 0; line < layout.lines_per_group(); ++line) {
          expected.push_back(layout.FirstLineOfGroup(group) + line);
        }
      }
      EXPECT_EQ(lines, expected);
      wraps = wraps || window.count == 2;
    }
    EXPECT_TRUE(wraps);
  }
}

// Line 0 and the window's lines, each once; what else is READ lies between two of them.
TEST(WindowTest, ReadsAreLineZeroAndTheWindow) {
  for (const NodeLayout& layout : WindowLayouts()) {
    Random random(1);
    bool together = false;
    for (int i = 0; i < 200; ++i) {
      const WindowRuns window = WindowOf(layout, SceneKey(&random, layout));
      const WindowReads reads = ReadsOf(window);
      std::set<uint32_t> wanted = {0}, read;
      for (uint32_t run = 0; run < window.count; ++run) {
        for (uint32_t line = 0; line < window.runs[run].line_count; ++line) {
          wanted.insert(window.runs[run].first_line + line);
        }
      }
      uint32_t lines = 0;
      ASSERT_EQ(reads.runs[0].first_line, 0u);
      for (uint32_t run = 0; run < reads.count; ++run) {
        for (uint32_t line = 0; line < reads.runs[run].line_count; ++line) {
          read.insert(reads.runs[run].first_line + line);
        }
        lines += reads.runs[run].line_count;
      }
      EXPECT_TRUE(std::includes(read.begin(), read.end(), wanted.begin(), wanted.end()));
      EXPECT_EQ(read.size(), lines) << "a line is READ twice";
      EXPECT_LE(lines, wanted.size() + 1);
      // A line more is the price of a verb.
      EXPECT_EQ(lines - wanted.size(), window.count + 1 - reads.count);
      together = together || reads.count < window.count + 1;
    }
    EXPECT_EQ(together, layout.header_lines() <= 2);
  }
}

WindowVerdict Look(const TestImage& image, const NodeLayout& layout, const std::string& key,
                   LeafMatch* match) {
  return ClassifyWindow(image.data(), layout, TestExpectation(key), /*crc=*/false, match);
}

// What a leaf's windows say is true after each of many changes, and mostly clear.
TEST(WindowTest, AModelAgreesAfterEachChange) {
  for (const NodeLayout& layout : WindowLayouts()) {
    Random random(layout.node_bytes());
    TestImage image = TestLeaf(layout, TestHeader(), {});
    LeafMap model;
    std::vector<std::string> keys;
    for (uint32_t i = 0; i < 2 * layout.slot_count(); ++i)
      keys.push_back(SceneKey(&random, layout));
    int clear = 0, looks = 0;
    for (int change = 0; change < 2000; ++change) {
      const std::string& key = keys[random.Uniform(keys.size())];
      TestImage before(image);
      LeafEditor editor(image.data(), layout, false);
      if (random.Chance(0.5)) {
        EXPECT_EQ(editor.Erase(key), model.erase(key) == 1);
      } else if (model.contains(key) || model.size() < layout.slot_count()) {
        model[key] = std::to_string(change);
        ASSERT_TRUE(editor.Put(key, model[key]));
      } else {
        EXPECT_FALSE(editor.Put(key, "x"));
      }
      // What is not in the runs is as it was.
      for (const LineRun& run : editor.SealDirty(4096)) {
        for (uint32_t line = 0; line < run.line_count; ++line) {
          before.CopyLine(image, run.first_line + line);
        }
      }
      for (uint32_t line = 0; line < layout.lines(); ++line) {
        ASSERT_TRUE(image.SameLine(before, line));
      }
      ASSERT_TRUE(SpillsAreFlagged(image.data(), layout));
      ASSERT_EQ(Contents(image, layout), model);
      for (const std::string& any : keys) {
        LeafMatch match;
        const WindowVerdict verdict = Look(image, layout, any, &match);
        ++looks;
        clear += verdict == WindowVerdict::kFlagged ? 0 : 1;
        ASSERT_NE(verdict, WindowVerdict::kUnclear);
        ASSERT_FALSE(verdict == WindowVerdict::kAbsent && model.contains(any));
        if (verdict != WindowVerdict::kFound) continue;
        ASSERT_TRUE(model.contains(any));
        std::string value;
        ReadSlotValue(image.data(), layout, static_cast<uint32_t>(match.slot), &value);
        ASSERT_EQ(value, model[any]);
      }
    }
    EXPECT_GT(clear, looks / 8);
  }
}

// Rule N5: a leaf that is filled at once has nearly all keys in their windows, and of these nearly
// all in the near groups: the more if the leaf may end where one is not.
TEST(WindowTest, WhatIsFilledAtOnceIsMatched) {
  const NodeLayout layout = TestLayout(8, 8, 0, true);
  Random random(5);
  for (const bool chosen : {false, true}) {
    int spilled = 0, far = 0, keys = 0;
    const size_t full = layout.slot_count() * 8 / 10;
    for (int leaf = 0; leaf < 500; ++leaf) {
      std::vector<LeafEntry> entries;
      NearFit fit(layout);
      while (entries.size() < (chosen ? full + 3 : full)) {
        const std::string key = TestBytes(&random, 8);
        if (chosen && entries.size() >= full - 8 && !fit.HasRoomFor(key)) break;
        fit.Add(key);
        entries.push_back({key, "v"});
      }
      const TestImage image = TestLeaf(layout, TestHeader(), entries);
      EXPECT_TRUE(SpillsAreFlagged(image.data(), layout));
      for (const LeafEntry& entry : entries) {
        ++keys;
        spilled += IsSpilled(image, layout, entry.key) ? 1 : 0;
        LeafMatch match;
        ASSERT_EQ(Classify(image.data(), layout, TestExpectation(entry.key), false, &match),
                  NodeVerdict::kAccepted);
        far += IsNear(layout, entry.key, static_cast<uint32_t>(match.slot)) ? 0 : 1;
      }
    }
    EXPECT_LE(spilled, keys / 1000);
    EXPECT_LE(far, chosen ? keys / 180 : keys / 20);
    EXPECT_GE(keys, static_cast<int>(500 * full));
  }
}

TEST(WindowTest, NearGroupsSayWhereAKeyIsAndNothingElse) {
  for (const NodeLayout& layout : WindowLayouts()) {
    EXPECT_LE(layout.near_groups(), layout.window_groups());
    EXPECT_GE(layout.near_groups(), 2u);
    if (layout.near_groups() == layout.window_groups()) continue;
    Random random(9);
    LeafMap model;
    TestImage image = TestLeaf(layout, TestHeader(), {});
    LeafEditor editor(image.data(), layout, false);
    while (model.size() < layout.slot_count()) {
      const std::string key = SceneKey(&random, layout);
      model[key] = "v";
      ASSERT_TRUE(editor.Put(key, "v"));
    }
    SealNodeLevel(image.data(), image.data(), layout, false);
    int near = 0;
    for (const auto& [key, value] : model) {
      // Line 0 and the near groups are all that is known.
      TestImage part(layout);
      std::memset(part.data(), 0xa5, part.size());
      part.CopyLine(image, 0);
      const WindowRuns runs = WindowOf(layout, key, WindowPart::kNear);
      for (uint32_t run = 0; run < runs.count; ++run) {
        for (uint32_t line = 0; line < runs.runs[run].line_count; ++line) {
          part.CopyLine(image, runs.runs[run].first_line + line);
        }
      }
      LeafMatch whole, match;
      ASSERT_EQ(Classify(image.data(), layout, TestExpectation(key), false, &whole),
                NodeVerdict::kAccepted);
      const bool is_near = IsNear(layout, key, static_cast<uint32_t>(whole.slot));
      ASSERT_EQ(ClassifyWindow(part.data(), layout, TestExpectation(key), false, &match,
                               WindowPart::kNear),
                is_near ? WindowVerdict::kFound : WindowVerdict::kFlagged);
      if (is_near) ASSERT_EQ(match.slot, whole.slot);
      near += is_near ? 1 : 0;
    }
    EXPECT_GT(near, 0);
    EXPECT_LT(near, static_cast<int>(model.size()));
  }
}

TEST(WindowTest, WhatIsNotTheLeafMeantIsUnclear) {
  const NodeLayout layout = TestLayout(60, 8, 0, true);
  LeafMatch match;
  const auto look = [&](const NodeHeader& header, const NodeExpectation& expectation) {
    const TestImage image = TestLeaf(layout, header, {{"k", "v"}});
    return ClassifyWindow(image.data(), layout, expectation, false, &match);
  };
  EXPECT_EQ(look(TestHeader(), TestExpectation("k")), WindowVerdict::kFound);
  EXPECT_EQ(look(TestHeader(), TestExpectation("l")), WindowVerdict::kAbsent);
  EXPECT_EQ(look(TestHeader(0, "", "k"), TestExpectation("k")), WindowVerdict::kUnclear);
  EXPECT_EQ(look(TestHeader(0, "", "l"), TestExpectation("k")), WindowVerdict::kFound);
  // A high fence that goes on behind line 0 (rule F4).
  EXPECT_EQ(look(TestHeader(0, "", std::string(20, 'l')), TestExpectation("k")),
            WindowVerdict::kUnclear);
  EXPECT_EQ(look(TestHeader(1, "", ""), TestExpectation("k")), WindowVerdict::kUnclear);
  NodeExpectation other = TestExpectation("k");
  ++other.life;
  EXPECT_EQ(look(TestHeader(), other), WindowVerdict::kUnclear);
  other = TestExpectation("k");
  ++other.tree_id;
  EXPECT_EQ(look(TestHeader(), other), WindowVerdict::kUnclear);
  for (const NodeState state :
       {NodeState::kFree, NodeState::kLive, NodeState::kMerging, NodeState::kDead}) {
    NodeHeader header = TestHeader();
    header.state = state;
    const bool is_there = state == NodeState::kLive || state == NodeState::kMerging;
    EXPECT_EQ(look(header, TestExpectation("k")),
              is_there ? WindowVerdict::kFound : WindowVerdict::kUnclear);
  }
}

// Rule N6, with both outcomes of the flag: it is there already, or comes first by itself.
TEST(WindowTest, APutThatSpillsIsSeenAtOnce) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    PlayAll([seed](const NodeLayout& layout, bool crc, bool upwards) {
      return SpillScene(layout, crc, upwards, seed);
    });
  }
}

TEST(WindowTest, TheWriterMayDieBetweenFlagAndKey) {
  size_t writes = 0;
  (void)SpillScene(TestLayout(8, 8, 0, true), false, true, 1, SIZE_MAX, &writes);
  EXPECT_GE(writes, 2u);
  for (size_t landed = 0; landed <= writes; ++landed) {
    PlayAll([landed](const NodeLayout& layout, bool crc, bool upwards) {
      return SpillScene(layout, crc, upwards, 1, landed);
    });
  }
}

TEST(WindowTest, AKeyThatComesBackElsewhereIsNeverMissedInBetween) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    PlayAll([seed](const NodeLayout& layout, bool crc, bool upwards) {
      return MoveScene(layout, crc, upwards, seed);
    });
  }
}

TEST(WindowTest, AnUpdateIsOldOrNew) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    PlayAll([seed](const NodeLayout& layout, bool crc, bool upwards) {
      return UpdateScene(layout, crc, upwards, seed);
    });
  }
}

class WindowOfNodes : public testing::TestWithParam<bool> {};

TEST_P(WindowOfNodes, AreReadAroundEachWrite) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    PlayAll([seed](const NodeLayout& layout, bool crc, bool upwards) {
      return NodeScene(layout, crc, upwards, GetParam(), seed);
    });
  }
}

// Found so: the flag of an erased key was dropped with the erasure, the writer died, and the key
// was there again where its slot had not been written, but nobody found it by its window.
TEST_P(WindowOfNodes, AreReadAfterDeathsAndRepair) {
  size_t writes = 0;
  (void)NodeScene(TestLayout(8, 8, 0, true), false, true, GetParam(), 1, {}, &writes);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    for (size_t landed = 1; landed < writes; ++landed) {
      PlayAll([&](const NodeLayout& layout, bool crc, bool upwards) {
        if (crc) return std::string();  // no other moments
        return NodeScene(layout, crc, upwards, GetParam(), seed, {landed});
      });
    }
  }
}

TEST_P(WindowOfNodes, TheRepairerMayDieToo) {
  const NodeLayout layout = TestLayout(8, 8, 0, true);
  size_t writes = 0;
  (void)NodeScene(layout, false, true, GetParam(), 1, {}, &writes);
  for (size_t landed = 1; landed < writes; ++landed) {
    for (size_t repaired = 1; repaired < writes; ++repaired) {
      EXPECT_EQ(NodeScene(layout, false, true, GetParam(), 2, {landed, repaired}), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, WindowOfNodes, testing::Bool(),
                         [](const auto& info) { return info.param ? "splits" : "entries"; });

TEST(WindowTest, ASplitOfOnePacketMayMoveWhatStays) {
  for (const size_t landed : {size_t{1}, size_t{2}}) {
    PlayAll([landed](const NodeLayout& layout, bool crc, bool upwards) {
      return RefillScene(layout, crc, upwards, 1, landed);
    });
  }
}

// Rule N7: the write that erases the last key keeps the flag, the next one of its group drops it.
TEST(WindowTest, AFlagGoesAfterTheLastKeyThatNeedsIt) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    PlayAll([seed](const NodeLayout& layout, bool crc, bool upwards) {
      bool dropped = false;
      std::string problem = DropScene(layout, crc, upwards, seed, SIZE_MAX, &dropped);
      EXPECT_TRUE(dropped);
      return problem;
    });
  }
  for (const size_t landed : {size_t{1}, size_t{2}}) {
    PlayAll([landed](const NodeLayout& layout, bool crc, bool upwards) {
      return crc ? "" : DropScene(layout, crc, upwards, 1, landed);
    });
  }
}

TEST(WindowTest, AMergeAndItsRepairAreReadAroundEachWrite) {
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    for (const size_t landed : {SIZE_MAX, size_t{1}, size_t{2}, size_t{3}}) {
      PlayAll([&](const NodeLayout& layout, bool crc, bool upwards) {
        if (crc) return std::string();
        return MergeScene(layout, crc, upwards, seed, {landed});
      });
    }
  }
}

TEST(WindowTest, ALeafThatIsGoneAnswersNothing) {
  for (const bool reused : {false, true}) {
    PlayAll([reused](const NodeLayout& layout, bool crc, bool upwards) {
      return GoneScene(layout, crc, upwards, reused, 1);
    });
  }
}

TEST(WindowTest, WritersWhoKnowAWindowAloneKeepAllKeysFlagged) {
  for (const NodeLayout& layout : SceneLayouts()) {
    for (const bool crc : {false, true}) {
      for (uint64_t seed = 1; seed <= 20; ++seed) {
        ASSERT_EQ(NarrowWriteScene(layout, crc, seed), "") << layout.key_bytes_max();
      }
    }
  }
}

}  // namespace
}  // namespace pando
