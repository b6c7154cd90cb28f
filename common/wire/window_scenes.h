// What is done to a leaf while others READ windows of it (rules N), each scene at all its moments:
// shared by window_test, where nothing goes wrong, and window_rules_test, where a rule is switched
// off. A scene returns what a reader shows first that is wrong; "": nothing.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/wire/window_stage.h"

namespace pando {

using LeafMap = std::map<std::string, std::string>;

inline std::string SceneKey(Random* random, const NodeLayout& layout) {
  std::string key = TestBytes(random, std::min(layout.key_bytes_max(), 12u));
  key[0] = static_cast<char>('b' + random->Uniform(20));
  return key;
}

struct SceneLeaf {
  TestImage image;
  LeafMap entries;
};

// Random keys, put one after the other, until so many slots are free. Sealed.
inline SceneLeaf FillBut(const NodeLayout& layout, uint32_t free, Random* random, bool crc) {
  SceneLeaf leaf{TestLeaf(layout, TestHeader(), {}, crc), {}};
  while (leaf.entries.size() + free < layout.slot_count()) {
    const std::string key = SceneKey(random, layout);
    LeafEditor editor(leaf.image.data(), layout, crc);
    PANDO_CHECK(editor.Put(key, "old"));
    leaf.entries[key] = "old";
  }
  SealNodeLevel(leaf.image.data(), leaf.image.data(), layout, crc);
  return leaf;
}

inline bool IsSpilled(const TestImage& image, const NodeLayout& layout, const std::string& key) {
  LeafMatch match;
  Classify(image.data(), layout, TestExpectation(key), false, &match);
  return match.slot >= 0 && !wire::InWindow(layout, wire::HomeOf(layout, key),
                                            layout.GroupOfSlot(static_cast<uint32_t>(match.slot)));
}

// A new key that has no room in its window, and whose home has no flag. "": there is none.
inline std::string KeyToSpill(const SceneLeaf& leaf, const NodeLayout& layout, Random* random) {
  for (int tries = 0; tries < 2000; ++tries) {
    const std::string key = SceneKey(random, layout);
    const uint32_t home = wire::HomeOf(layout, key);
    if (leaf.entries.contains(key) || !wire::WindowIsFull(leaf.image.data(), layout, home) ||
        wire::FlaggedIn(leaf.image.data(), layout, home) >= 0) {
      continue;
    }
    return key;
  }
  return "";
}

// A leaf and such a key.
inline SceneLeaf LeafToSpill(const NodeLayout& layout, bool crc, Random* random, std::string* key) {
  while (true) {
    SceneLeaf leaf = FillBut(layout, 1, random, crc);
    *key = KeyToSpill(leaf, layout, random);
    if (!key->empty()) return leaf;
  }
}

inline std::vector<LineRun> EntryWrites(LeafEditor& editor) {
  const LineRuns runs = editor.SealDirty(4096);
  return {runs.begin(), runs.end()};
}

// Some keys that nothing happens to.
inline void ExpectOthers(const SceneLeaf& leaf, WindowStage* stage) {
  int others = 0;
  for (const auto& [key, value] : leaf.entries) {
    if (++others > 4) return;
    stage->Expect(key, {value});
  }
}

// A put that spills: erase `x`, put `k`, put `x` in one batch, of which the first `landed` WRITEs
// land.
inline std::string SpillScene(const NodeLayout& layout, bool crc, bool upwards, uint64_t seed,
                              size_t landed = SIZE_MAX, size_t* writes = nullptr) {
  Random random(seed);
  std::string key;
  const SceneLeaf leaf = LeafToSpill(layout, crc, &random, &key);
  const std::string x = leaf.entries.begin()->first;
  TestImage after(leaf.image);
  LeafEditor editor(after.data(), layout, crc);
  PANDO_CHECK(editor.Erase(x) && editor.Put(key, "new") && editor.Put(x, "new"));
  const std::vector<LineRun> runs = EntryWrites(editor);
  if (writes != nullptr) *writes = runs.size();
  WindowStage stage(layout, leaf.image, crc);
  ExpectOthers(leaf, &stage);
  stage.Expect(key, {std::nullopt, "new"});
  stage.Expect(x, {"old", "new"});
  stage.Write(after, runs, std::min(landed, runs.size()), upwards);
  return stage.Check();
}

// A key is erased, its slot taken by another one of its home, and it is put again, elsewhere.
inline std::string MoveScene(const NodeLayout& layout, bool crc, bool upwards, uint64_t seed) {
  Random random(seed);
  std::string next;
  const SceneLeaf leaf = LeafToSpill(layout, crc, &random, &next);
  const uint32_t home = wire::HomeOf(layout, next);
  std::string key;
  for (const auto& [candidate, value] : leaf.entries) {
    if (wire::HomeOf(layout, candidate) == home) key = candidate;
  }
  if (key.empty()) return MoveScene(layout, crc, upwards, seed + 1'000'003);
  WindowStage stage(layout, leaf.image, crc);
  stage.Expect(key, {"old", std::nullopt, "new"});
  stage.Expect(next, {std::nullopt, "new"});
  for (const auto& change : {0, 1, 2}) {
    TestImage after(stage.memory());
    LeafEditor editor(after.data(), layout, crc);
    PANDO_CHECK(change == 0 ? editor.Erase(key) : editor.Put(change == 1 ? next : key, "new"));
    const std::vector<LineRun> runs = EntryWrites(editor);
    stage.Write(after, runs, runs.size(), upwards);
  }
  return stage.Check();
}

// One update in place.
inline std::string UpdateScene(const NodeLayout& layout, bool crc, bool upwards, uint64_t seed) {
  Random random(seed);
  const SceneLeaf leaf = FillBut(layout, layout.slot_count() / 3, &random, crc);
  TestImage before(leaf.image), after(leaf.image);
  const std::string key = std::prev(leaf.entries.end())->first;
  // All over the same, so that a value of two writes is none that anybody stored.
  const std::string old_value(layout.value_bytes_max(), 'o'), value(layout.value_bytes_max(), 'n');
  LeafEditor first(before.data(), layout, crc);
  PANDO_CHECK(first.Put(key, old_value));
  (void)first.SealDirty(4096);
  after = before;
  LeafEditor editor(after.data(), layout, crc);
  PANDO_CHECK(editor.Put(key, value));
  const std::vector<LineRun> runs = EntryWrites(editor);
  WindowStage stage(layout, before, crc);
  stage.Expect(key, {old_value, value});
  stage.Write(after, runs, runs.size(), upwards);
  return stage.Check();
}

// Rule C4, under the lock: the first `landed` of its WRITEs.
inline void Repair(WindowStage* stage, bool crc, size_t landed, bool upwards) {
  TestImage repaired(stage->memory());
  LeafEditor editor(repaired.data(), stage->layout(), crc);
  editor.ClearOutOfFence();
  SealNodeLevel(repaired.data(), repaired.data(), stage->layout(), crc);
  const auto writes = NodeWrites(stage->layout(), NodeOrder::kLine0First, 4);
  stage->Write(repaired, writes, std::min(landed, writes.size()), upwards);
}

// A full leaf. A batch erases a spilled key, which alone needed its home's flag, and another one of
// the window, so that there is room; and it writes the group that has the flag. Of its WRITEs the
// first `landed` land, and somebody repairs the leaf; or all do, and the group is written once
// more: `dropped` says whether the flag is gone then.
inline std::string DropScene(const NodeLayout& layout, bool crc, bool upwards, uint64_t seed,
                             size_t landed = SIZE_MAX, bool* dropped = nullptr) {
  Random random(seed);
  const SceneLeaf leaf = FillBut(layout, 0, &random, crc);
  const auto next = [&] {
    return DropScene(layout, crc, upwards, seed + 1'000'003, landed, dropped);
  };
  const auto home_of = [&](const std::string& key) { return wire::HomeOf(layout, key); };
  std::map<uint32_t, std::vector<std::string>> outside;  // by home
  for (const auto& [key, value] : leaf.entries) {
    if (IsSpilled(leaf.image, layout, key)) outside[home_of(key)].push_back(key);
  }
  std::erase_if(outside, [](const auto& home) { return home.second.size() > 1; });
  if (outside.empty()) return next();
  const auto& [home, alone] = *outside.begin();
  const std::string spilled = alone.front();
  const int flagged = wire::FlaggedIn(leaf.image.data(), layout, home);
  PANDO_CHECK_GE(flagged, 0);
  std::string updated, erased;
  for (const auto& [key, value] : leaf.entries) {
    LeafMatch match;
    Classify(leaf.image.data(), layout, TestExpectation(key), false, &match);
    const uint32_t group = layout.GroupOfSlot(static_cast<uint32_t>(match.slot));
    if (key == spilled || !wire::InWindow(layout, home, group)) continue;
    if (updated.empty() && group == static_cast<uint32_t>(flagged)) {
      updated = key;
    } else if (!IsSpilled(leaf.image, layout, key)) {
      erased = key;
    }
  }
  if (updated.empty() || erased.empty()) return next();
  TestImage after(leaf.image);
  LeafEditor editor(after.data(), layout, crc);
  PANDO_CHECK(editor.Erase(spilled) && editor.Erase(erased) && editor.Put(updated, "new"));
  WindowStage stage(layout, leaf.image, crc);
  stage.Expect(spilled, {"old", std::nullopt});
  stage.Expect(erased, {"old", std::nullopt});
  const std::vector<LineRun> runs = EntryWrites(editor);
  stage.Write(after, runs, std::min(landed, runs.size()), upwards);
  if (landed < runs.size()) {
    Repair(&stage, crc, SIZE_MAX, upwards);
    stage.Expect(updated, {"old", "new"});
    return stage.Check();
  }
  TestImage later(stage.memory());
  LeafEditor once_more(later.data(), layout, crc);
  PANDO_CHECK(once_more.Put(updated, "newer"));
  stage.Expect(updated, {"old", "new", "newer"});
  const std::vector<LineRun> more = EntryWrites(once_more);
  stage.Write(later, more, more.size(), upwards);
  if (dropped != nullptr) *dropped = wire::FlaggedIn(later.data(), layout, home) < 0;
  return stage.Check();
}

struct Death {
  size_t landed = SIZE_MAX;         // WRITEs of who dies; all of them: nobody does
  size_t repair_landed = SIZE_MAX;  // of the first who repairs
};

// A change of the whole leaf. A spilled key is erased, one updated, others are put, some of them
// where there is no room. `split`: the upper half moves away (rule S2); else, or without two-level
// versions, it is entries that change, at node level. Afterwards, or after deaths, somebody repairs
// the leaf.
inline std::string NodeScene(const NodeLayout& layout, bool crc, bool upwards, bool split,
                             uint64_t seed, const Death& death = {}, size_t* writes = nullptr) {
  Random random(seed);
  SceneLeaf leaf = FillBut(layout, split ? 0 : 3, &random, crc);
  const std::string separator =
      std::next(leaf.entries.begin(), static_cast<ptrdiff_t>(leaf.entries.size() / 2))->first;
  std::string erased, updated;
  for (const auto& [key, value] : leaf.entries) {
    if (split && key >= separator) break;
    std::string& wanted = IsSpilled(leaf.image, layout, key) ? erased : updated;
    if (wanted.empty()) wanted = key;
  }
  if (erased.empty() || updated.empty()) {
    return NodeScene(layout, crc, upwards, split, seed + 1'000'003, death, writes);
  }
  TestImage after(leaf.image);
  LeafEditor editor(after.data(), layout, crc);
  WindowStage stage(layout, leaf.image, crc);
  if (split) {
    SetHigh(after.data(), layout, separator.substr(0, kHighInLine0));
    SetRight(after.data(), {RemoteAddress(2, 4096), 9});
    editor.ClearOutOfFence();
    stage.Expect(std::prev(leaf.entries.end())->first, {"old"});
    stage.Expect(separator, {"old"});
  }
  PANDO_CHECK(editor.Erase(erased) && editor.Put(updated, "new"));
  stage.Expect(erased, {"old", std::nullopt});
  stage.Expect(updated, {"old", "new"});
  for (int put = 0; put < 3; ++put) {
    std::string key = SceneKey(&random, layout);
    if (split) key[0] = 'a';
    PANDO_CHECK(editor.Put(key, "new"));
    stage.Expect(key, {std::nullopt, "new"});
  }
  editor.ClearErased();
  SealNodeLevel(after.data(), leaf.image.data(), layout, crc);
  const auto order = split ? NodeOrder::kLine0First : NodeOrder::kAscending;
  const auto runs = NodeWrites(layout, order, 4);
  if (writes != nullptr) *writes = runs.size();
  stage.Write(after, runs, std::min(death.landed, runs.size()), upwards);
  if (death.landed > 0 && death.landed < runs.size()) {
    if (death.repair_landed != SIZE_MAX) Repair(&stage, crc, death.repair_landed, upwards);
    Repair(&stage, crc, SIZE_MAX, upwards);
  }
  return stage.Check();
}

// A split that places again what stays, all lines but the first in one packet (rule N5). `landed`:
// of the two WRITEs.
inline std::string RefillScene(const NodeLayout& layout, bool crc, bool upwards, uint64_t seed,
                               size_t landed = SIZE_MAX) {
  Random random(seed);
  const SceneLeaf leaf = FillBut(layout, 0, &random, crc);
  const auto middle =
      std::next(leaf.entries.begin(), static_cast<ptrdiff_t>(leaf.entries.size() / 2));
  TestImage after(leaf.image);
  SetHigh(after.data(), layout, middle->first);
  SetRight(after.data(), {RemoteAddress(2, 4096), 9});
  WindowStage stage(layout, leaf.image, crc);
  std::vector<LeafEntry> entries;
  bool moved = false;
  for (auto entry = leaf.entries.begin(); entry != middle; ++entry) {
    const bool updated = entry == leaf.entries.begin();
    entries.push_back({entry->first, updated ? "new" : "old"});
    const bool spilled = IsSpilled(leaf.image, layout, entry->first);
    if (updated) stage.Expect(entry->first, {"old", "new"});
    if (spilled && !updated) stage.Expect(entry->first, {"old"});
    moved = moved || spilled;
  }
  if (!moved) return RefillScene(layout, crc, upwards, seed + 1'000'003, landed);
  stage.Expect(middle->first, {"old"});
  FillLeaf(after.data(), layout, entries);
  SealNodeLevel(after.data(), leaf.image.data(), layout, crc);
  const auto runs = NodeWrites(layout, NodeOrder::kLine0First, layout.lines());
  PANDO_CHECK_EQ(runs.size(), 2u);
  stage.Write(after, runs, std::min(landed, runs.size()), upwards);
  if (landed == 1) Repair(&stage, crc, SIZE_MAX, upwards);
  return stage.Check();
}

// Rule M4: the survivor takes the keys of its right neighbour.
inline std::string MergeScene(const NodeLayout& layout, bool crc, bool upwards, uint64_t seed,
                              const Death& death = {}) {
  Random random(seed);
  // More than a merge puts together, so that keys of both are outside their windows.
  SceneLeaf leaf = FillBut(layout, 2, &random, crc);
  const std::string low = "m";
  LeafMap lower, upper;
  for (const auto& [key, value] : leaf.entries) (key < low ? lower : upper)[key] = value;
  if (lower.empty() || upper.empty()) {
    return MergeScene(layout, crc, upwards, seed + 1'000'003, death);
  }
  const auto entries = [](const LeafMap& map) {
    std::vector<LeafEntry> list;
    for (const auto& [key, value] : map) list.push_back({key, value});
    return list;
  };
  const TestImage left = TestLeaf(layout, TestHeader(0, "", low), entries(lower), crc);
  const TestImage right = TestLeaf(layout, TestHeader(0, low, ""), entries(upper), crc);
  TestImage after(left);
  SetHigh(after.data(), layout, "");
  SetMarker(after.data(), NodeState::kLive, {RemoteAddress(2, 8192), 11});
  LeafEditor editor(after.data(), layout, crc);
  editor.Absorb(right.data());
  SealNodeLevel(after.data(), left.data(), layout, crc);
  const auto runs = NodeWrites(layout, NodeOrder::kLine0Last, 4);
  WindowStage stage(layout, left, crc);
  for (const LeafMap* map : {&lower, &upper}) {
    for (const auto& [key, value] : *map) {
      if (map->size() < 4 || IsSpilled(after, layout, key) || key == map->begin()->first) {
        stage.Expect(key, {value});
      }
    }
  }
  stage.Write(after, runs, std::min(death.landed, runs.size()), upwards);
  if (death.landed > 0 && death.landed < runs.size()) Repair(&stage, crc, SIZE_MAX, upwards);
  return stage.Check();
}

// The leaf's memory is another leaf's, in another life; or the leaf is dead (rules M5, R4).
inline std::string GoneScene(const NodeLayout& layout, bool crc, bool upwards, bool reused,
                             uint64_t seed) {
  Random random(seed);
  const SceneLeaf leaf = FillBut(layout, 3, &random, crc);
  TestImage after(leaf.image);
  WindowStage stage(layout, leaf.image, crc);
  ExpectOthers(leaf, &stage);
  SetMarker(after.data(), NodeState::kDead, {});
  SealEntryLevel(after.data(), 0, 1, crc);
  stage.Write(after, LineRun{0, 1}, upwards);
  if (!reused) return stage.Check();
  NodeHeader header = TestHeader();
  ++header.life;
  const TestImage dead(after);
  WriteHeader(after.data(), layout, header);
  FillLeaf(after.data(), layout, std::vector<LeafEntry>{});
  SealNodeLevel(after.data(), dead.data(), layout, crc);
  const auto runs = NodeWrites(layout, NodeOrder::kAscending, 4);
  stage.Write(after, runs, runs.size(), upwards);
  return stage.Check();
}

// Rule N8: updates and new keys, by writers who know nothing but line 0 and the key's window.
inline std::string NarrowWriteScene(const NodeLayout& layout, bool crc, uint64_t seed) {
  Random random(seed);
  SceneLeaf leaf = FillBut(layout, layout.slot_count() / 8, &random, crc);
  std::vector<std::string> keys;
  for (const auto& [key, value] : leaf.entries) keys.push_back(key);
  while (keys.size() < 3 * leaf.entries.size()) keys.push_back(SceneKey(&random, layout));
  for (const std::string& key : keys) {
    TestImage part(layout);
    const auto copy = [](const TestImage& from, TestImage* to, uint32_t line, uint32_t lines) {
      std::memcpy(to->data() + line * kLineBytes, from.data() + line * kLineBytes,
                  lines * kLineBytes);
    };
    copy(leaf.image, &part, 0, 1);
    const WindowRuns window = WindowOf(layout, key);
    for (uint32_t i = 0; i < window.count; ++i) {
      copy(leaf.image, &part, window.runs[i].first_line, window.runs[i].line_count);
    }
    LeafMatch match;
    const WindowVerdict verdict =
        ClassifyWindow(part.data(), layout, TestExpectation(key), crc, &match);
    const bool room = HasRoomInWindow(part.data(), layout, key);
    if (verdict != WindowVerdict::kFound && (verdict != WindowVerdict::kAbsent || !room)) continue;
    LeafEditor editor(part.data(), layout, crc);
    editor.PutInWindow(match.slot, key, "new");
    const std::vector<LineRun> runs = EntryWrites(editor);
    if (runs.size() != 1) return "more than one group is written";
    copy(part, &leaf.image, runs[0].first_line, runs[0].line_count);
    leaf.entries[key] = "new";
    if (!LinesConsistent(leaf.image.data(), layout, crc)) return "the leaf is torn";
    if (!SpillsAreFlagged(leaf.image.data(), layout)) return "a flag is missing";
    if (Contents(leaf.image, layout) != leaf.entries) return "the keys are not those put";
  }
  return "";
}

}  // namespace pando
