// Rule V1: the table of verdicts, and what no damage may do.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "common/wire/leaf.h"
#include "common/wire/line.h"
#include "common/wire/node_format.h"
#include "common/wire/node_repair.h"
#include "common/wire/slot.h"
#include "common/wire/test_images.h"

namespace pando {
namespace {

using wire::StoreAs;

// One row: what is done to a sealed node of [b, p), what is asked, what it has to be.
struct Row {
  const char* name;
  std::function<void(TestImage*, const NodeLayout&)> damage;
  NodeVerdict verdict;
  std::string key = "h";
  bool reseal = true;  // the damage is a write of somebody's, not a torn one
};

std::vector<Row> Rows() {
  const auto nothing = [](TestImage*, const NodeLayout&) {};
  const auto byte = [](uint32_t offset, uint8_t value) {
    return [=](TestImage* image, const NodeLayout&) { StoreAs(image->data() + offset, value); };
  };
  const auto header = [](auto change) {
    return [=](TestImage* image, const NodeLayout& layout) {
      NodeHeader h = ReadHeader(image->data(), layout);
      change(&h);
      WriteHeader(image->data(), layout, h);
    };
  };
  using V = NodeVerdict;
  return {
      {"as it is", nothing, V::kAccepted},
      {"key is low", nothing, V::kAccepted, "b"},
      {"key below high", nothing, V::kAccepted, "o\xff\xff"},
      {"key is high", nothing, V::kMovedRight, "p"},
      {"key above high", nothing, V::kMovedRight, "z"},
      {"key below low", nothing, V::kMovedLeft, "a\xff\xff\xff"},
      {"scan from the start", nothing, V::kMovedLeft, ""},
      {"no low", header([](NodeHeader* h) { h->low.clear(); }), V::kAccepted, ""},
      {"no high", header([](NodeHeader* h) { h->high.clear(); }), V::kAccepted, "\xff\xff\xff"},
      {"merging", header([](NodeHeader* h) { h->state = NodeState::kMerging; }), V::kAccepted},
      {"dead", header([](NodeHeader* h) { h->state = NodeState::kDead; }), V::kStale},
      {"free", header([](NodeHeader* h) { h->state = NodeState::kFree; }), V::kStale},
      {"unknown state", byte(wire::kStateOffset, 9), V::kStale},
      {"other magic", byte(wire::kMagicOffset, 0), V::kStale},
      {"other tree", header([](NodeHeader* h) { h->tree_id = 8; }), V::kStale},
      {"next life", header([](NodeHeader* h) { h->life = 4; }), V::kStale},
      {"previous life", header([](NodeHeader* h) { h->life = 2; }), V::kStale},
      {"other level", header([](NodeHeader* h) { h->level ^= 1; }), V::kStale},
      {"stale before moved", header([](NodeHeader* h) { h->life = 4; }), V::kStale, "z"},
      {"low too long", byte(wire::kLowLengthOffset, 255), V::kStale},
      {"high too long", byte(wire::kHighLengthOffset, 255), V::kStale},
      {"fences crossed", header([](NodeHeader* h) { h->high = "a"; }), V::kStale},
      {"fences equal", header([](NodeHeader* h) { h->high = "b"; }), V::kStale},
      {"fresh memory",
       [](TestImage* i, const NodeLayout&) { std::memset(i->data(), 0, i->size()); }, V::kStale,
       "h", false},
      {"front EV of line 0", byte(0, 77), V::kTorn, "h", false},
      {"rear EV of line 0", byte(63, 77), V::kTorn, "h", false},
      {"front EV of line 1", byte(64, 77), V::kTorn, "h", false},
      {"NV of line 0", byte(61, 77), V::kTorn, "h", false},
      {"NV of a header line, high byte", byte(64 + 62, 1), V::kTorn, "h", false},
      {"last line's rear EV",
       [](TestImage* i, const NodeLayout&) { StoreAs<uint8_t>(i->data() + i->size() - 1, 77); },
       V::kTorn, "h", false},
      {"last line's NV",
       [](TestImage* i, const NodeLayout&) { StoreAs<uint8_t>(i->data() + i->size() - 3, 77); },
       V::kTorn, "h", false},
      {"torn before stale",
       [](TestImage* i, const NodeLayout&) {
         StoreAs<uint8_t>(i->data() + wire::kLifeOffset, 9);
         StoreAs<uint8_t>(i->data() + 63, 77);
       },
       V::kTorn, "h", false},
      {"torn before moved", byte(63, 77), V::kTorn, "z", false},
  };
}

TEST(ClassifyTest, VerdictTable) {
  for (const NodeLayout& layout : {TestLayout(8, 8), TestLayout(20, 1), TestLayout(60, 8)}) {
    for (const uint8_t level : {0, 1}) {
      for (const bool crc : {false, true}) {
        for (const Row& row : Rows()) {
          TestImage image = TestLeaf(layout, TestHeader(level, "b", "p"), {{"h", "v"}}, crc);
          if (level > 0) {
            InternalNode node{TestHeader(level, "b", "p"), {{"h", {RemoteAddress(1, 64), 1}}}};
            EncodeInternal(node, layout, TestImage(layout).data(), crc, image.data());
          }
          row.damage(&image, layout);
          if (row.reseal) SealNodeLevel(image.data(), image.data(), layout, crc);
          LeafMatch match;
          const NodeVerdict verdict =
              Classify(image.data(), layout, TestExpectation(row.key, level), crc, &match);
          EXPECT_EQ(verdict, row.verdict) << row.name << ", level " << int{level} << ", crc " << crc
                                          << ", " << layout.node_bytes();
          EXPECT_EQ(match.slot >= 0,
                    verdict == NodeVerdict::kAccepted && level == 0 && row.key == "h");
          EXPECT_EQ(Classify(image.data(), layout, TestExpectation(row.key, level), crc), verdict);
        }
      }
    }
  }
}

TEST(ClassifyTest, GroupOfSeveralLinesWithTwoEvsIsTorn) {
  const NodeLayout layout = TestLayout(60, 8);
  TestImage image = TestLeaf(layout, TestHeader(), {{"h", "value"}});
  SealEntryLevel(image.data(), layout.FirstLineOfGroup(29) + 1, 1,
                 false);  // half of a slot's write
  EXPECT_FALSE(LinesConsistent(image.data(), layout, false));
  EXPECT_EQ(Classify(image.data(), layout, TestExpectation("h"), false), NodeVerdict::kTorn);
  // Of another life it is not ours to call torn: its slots may have another size.
  NodeExpectation other = TestExpectation("h");
  other.life = 9;
  EXPECT_EQ(Classify(image.data(), layout, other, false), NodeVerdict::kStale);
  SealEntryLevel(image.data(), layout.FirstLineOfGroup(29), 2, false);
  EXPECT_TRUE(LinesConsistent(image.data(), layout, false));
}

// Rule F2: a slow READ meets a slot before and after 256 writes of it, so that all EVs agree.
TEST(ClassifyTest, ChecksumsTellLinesOfTwoWritesApartWhereVersionsComeAround) {
  const NodeLayout layout = TestLayout(8, 100);
  ASSERT_EQ(layout.lines_per_group(), 2u);
  for (const bool crc : {false, true}) {
    TestImage image =
        TestLeaf(layout, TestHeader(), {{"h", std::string(100, 'a')}, {"i", "b"}}, crc);
    const TestImage before = image;
    LeafMatch match;
    ASSERT_EQ(Classify(image.data(), layout, TestExpectation("h"), crc, &match),
              NodeVerdict::kAccepted);
    for (int i = 0; i < 256; ++i) {
      LeafEditor editor(image.data(), layout, crc);
      ASSERT_TRUE(editor.Put("h", std::string(100, i % 2 != 0 ? 'c' : 'd')));
      editor.SealDirty(4096);
      ASSERT_EQ(Classify(image.data(), layout, TestExpectation("h"), crc), NodeVerdict::kAccepted);
    }
    const uint32_t second = layout.FirstLineOfGroup(layout.GroupOfSlot(match.slot)) + 1;
    std::memcpy(image.data() + second * kLineBytes, before.data() + second * kLineBytes,
                kLineBytes);
    // Without them only the READ's time can tell.
    EXPECT_EQ(Classify(image.data(), layout, TestExpectation("h"), crc),
              crc ? NodeVerdict::kTorn : NodeVerdict::kAccepted);
    EXPECT_EQ(LinesWhole(image.data(), layout, crc), !crc);
  }
}

TEST(ClassifyTest, TwoSlotsOfTheKeyAreTornOnlyForThatKey) {
  for (const NodeLayout& layout : TestLayouts()) {
    TestImage image = TestLeaf(layout, TestHeader(), {{"k", ""}, {"l", ""}});
    LeafMatch match;
    ASSERT_EQ(Classify(image.data(), layout, TestExpectation("k"), false, &match),
              NodeVerdict::kAccepted);
    const uint32_t to = match.slot == 0 ? 1 : 0;  // copy the slot over another
    for (uint32_t i = 0; i < layout.slot_bytes(); ++i) {
      const auto from_place = wire::PlaceOf(layout, static_cast<uint32_t>(match.slot));
      const auto to_place = wire::PlaceOf(layout, to);
      char byte;
      wire::ReadStream(image.data(), from_place.line, from_place.offset + i, 1, &byte);
      wire::WriteStream(image.data(), to_place.line, to_place.offset + i, 1, &byte);
    }
    SealNodeLevel(image.data(), image.data(), layout, false);
    EXPECT_EQ(Classify(image.data(), layout, TestExpectation("k"), false, &match),
              NodeVerdict::kTorn);
    EXPECT_EQ(match.slot, -1);
    EXPECT_EQ(Classify(image.data(), layout, TestExpectation("m"), false), NodeVerdict::kAccepted);
    std::vector<LeafEntry> entries;
    EXPECT_FALSE(ReadLeafEntries(image.data(), layout, &entries));
  }
}

TEST(ClassifyTest, MalformedSlotLengthsAreStale) {
  for (const NodeLayout& layout : TestLayouts()) {
    const uint32_t last = layout.slot_count() - 1;
    const uint32_t length_max = layout.slot_meta_bytes() == 2 ? 15 : 255;
    for (const uint32_t slot : {0u, last / 2, last}) {
      for (const auto& [key_bytes, value_bytes] :
           {std::pair{0u, 0u}, {length_max, 0u}, {1u, length_max}, {length_max, length_max}}) {
        const bool fine = key_bytes > 0 && key_bytes <= layout.key_bytes_max() &&
                          value_bytes <= layout.value_bytes_max();
        TestImage image = TestLeaf(layout, TestHeader(), {});
        wire::StoreMeta(wire::SlotStart(image.data(), wire::PlaceOf(layout, slot)), layout,
                        {key_bytes, value_bytes, kSlotUsed});
        SealNodeLevel(image.data(), image.data(), layout, false);
        EXPECT_EQ(Classify(image.data(), layout, TestExpectation("k"), false),
                  fine ? NodeVerdict::kAccepted : NodeVerdict::kStale);
        // Nobody who goes on all the same reads over the image's end.
        std::vector<LeafEntry> entries;
        EXPECT_TRUE(ReadLeafEntries(image.data(), layout, &entries));
        EXPECT_EQ(entries.size(), fine ? 1u : 0u);
        std::string value;
        ReadSlotValue(image.data(), layout, slot, &value);
        EXPECT_LE(value.size(), layout.value_bytes_max());
        LeafEditor editor(image.data(), layout, false);
        EXPECT_EQ(editor.used_slots(), fine ? 1u : 0u);
      }
    }
  }
}

TEST(ClassifyTest, ChecksumFindsEveryDamagedByte) {
  for (const NodeLayout& layout : {TestLayout(8, 8), TestLayout(60, 8)}) {
    TestImage image = TestLeaf(layout, TestHeader(), {{"k", "v"}}, /*crc=*/true);
    for (uint32_t i = 0; i < layout.node_bytes(); ++i) {
      image.data()[i] ^= std::byte{0x40};
      ASSERT_EQ(Classify(image.data(), layout, TestExpectation("k"), true), NodeVerdict::kTorn)
          << i;
      ASSERT_FALSE(LinesConsistent(image.data(), layout, true));
      image.data()[i] ^= std::byte{0x40};
    }
    EXPECT_EQ(Classify(image.data(), layout, TestExpectation("k"), true), NodeVerdict::kAccepted);
    EXPECT_EQ(Classify(TestImage(layout).data(), layout, TestExpectation("k"), true),
              NodeVerdict::kStale);
  }
}

// Any mixture of lines before and after a node-level write is torn, unless it is one of the two.
TEST(ClassifyTest, MixturesOfANodeLevelWriteAreTorn) {
  Random random(3);
  for (const NodeLayout& layout : TestLayouts()) {
    const TestImage before = TestLeaf(layout, TestHeader(), {{"k", ""}});
    TestImage after(before);
    SealNodeLevel(after.data(), after.data(), layout, false);
    for (int round = 0; round < 200; ++round) {
      TestImage seen(before);
      uint32_t newer = 0;
      for (uint32_t i = 0; i < layout.lines(); ++i) {
        if (!random.Chance(0.5)) continue;
        seen.CopyLine(after, i);
        ++newer;
      }
      const bool whole = newer == 0 || newer == layout.lines();
      ASSERT_EQ(Classify(seen.data(), layout, TestExpectation("k"), false),
                whole ? NodeVerdict::kAccepted : NodeVerdict::kTorn);
    }
  }
}

// Found by node_fuzz: the scan saw a key as another one where damaged bytes followed it, the
// decoder did not.
TEST(ClassifyTest, BytesBehindAKeyDoNotMatter) {
  for (const NodeLayout& layout : TestLayouts()) {
    if (layout.key_bytes_max() == 1) continue;
    TestImage image = TestLeaf(layout, TestHeader(), {{"k", ""}});
    LeafMatch match;
    ASSERT_EQ(Classify(image.data(), layout, TestExpectation("k"), false, &match),
              NodeVerdict::kAccepted);
    const auto slot = static_cast<uint32_t>(match.slot);
    *(wire::SlotStart(image.data(), wire::PlaceOf(layout, slot)) + layout.slot_meta_bytes() + 1) =
        std::byte{'!'};
    ASSERT_EQ(Classify(image.data(), layout, TestExpectation("k"), false, &match),
              NodeVerdict::kAccepted);
    EXPECT_EQ(match.slot, static_cast<int>(slot));
    EXPECT_EQ(Classify(image.data(), layout, TestExpectation("k!"), false, &match),
              NodeVerdict::kAccepted);
    EXPECT_EQ(match.slot, -1);
  }
}

TEST(ClassifyTest, FindsEveryKeyOfEveryLengthInItsSlot) {
  Random random(4);
  for (const NodeLayout& layout : TestLayouts()) {
    for (int round = 0; round < 20; ++round) {
      std::map<std::string, std::string> model;
      std::vector<LeafEntry> entries;
      for (uint32_t i = 0; i < layout.slot_count(); ++i) {
        const std::string key = TestKey(&random, layout.key_bytes_max());
        const std::string value = TestBytes(&random, random.Uniform(layout.value_bytes_max() + 1));
        if (model.emplace(key, value).second) entries.push_back({key, value});
      }
      const TestImage image = TestLeaf(layout, TestHeader(), entries);
      for (int probe = 0; probe < 100; ++probe) {
        const std::string key = probe < 50 ? entries[random.Uniform(entries.size())].key
                                           : TestKey(&random, layout.key_bytes_max());
        LeafMatch match;
        ASSERT_EQ(Classify(image.data(), layout, TestExpectation(key), false, &match),
                  NodeVerdict::kAccepted);
        const auto found = model.find(key);
        ASSERT_EQ(match.slot >= 0, found != model.end());
        if (match.slot < 0) continue;
        std::string value = "replaced";
        ReadSlotValue(image.data(), layout, static_cast<uint32_t>(match.slot), &value);
        ASSERT_EQ(value, found->second);
      }
      LeafMatch match;  // a key that no slot can hold
      const std::string too_long(layout.key_bytes_max() + 1, 'k');
      ASSERT_EQ(Classify(image.data(), layout, TestExpectation(too_long), false, &match),
                NodeVerdict::kAccepted);
      ASSERT_EQ(match.slot, -1);
    }
  }
}

}  // namespace
}  // namespace pando
