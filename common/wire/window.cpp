#include "common/wire/window.h"

#include <algorithm>
#include <array>
#include <bitset>

#include "common/base/check.h"
#include "common/base/rule.h"

namespace pando {
namespace wire {

int FlaggedIn(const std::byte* image, const NodeLayout& layout, uint32_t home) {
  for (uint32_t i = 0; i < FlagGroups(layout); ++i) {
    const uint32_t group = GroupBehind(layout, home, i);
    if ((SpillFlagsOf(image, layout, group) & SpillFlag(i)) != 0) return static_cast<int>(group);
  }
  return -1;
}

int FirstEmptySlot(const std::byte* image, const NodeLayout& layout, uint32_t group) {
  const uint32_t first = group * layout.slots_per_group();
  for (uint32_t slot = first; slot < first + layout.slots_per_group(); ++slot) {
    if (LoadMeta(SlotStart(image, PlaceOf(layout, slot)), layout).empty()) {
      return static_cast<int>(slot);
    }
  }
  return -1;
}

uint32_t EmptySlots(const std::byte* image, const NodeLayout& layout, uint32_t group) {
  const uint32_t first = group * layout.slots_per_group();
  uint32_t empty = 0;
  for (uint32_t slot = first; slot < first + layout.slots_per_group(); ++slot) {
    empty += LoadMeta(SlotStart(image, PlaceOf(layout, slot)), layout).empty() ? 1 : 0;
  }
  return empty;
}

bool WindowIsFull(const std::byte* image, const NodeLayout& layout, uint32_t home) {
  for (uint32_t i = 0; i < layout.window_groups(); ++i) {
    if (FirstEmptySlot(image, layout, GroupBehind(layout, home, i)) >= 0) return false;
  }
  return true;
}

uint64_t HomesOutside(const std::byte* image, const NodeLayout& layout) {
  uint64_t homes = 0;
  char scratch[256];
  for (uint32_t slot = 0; slot < layout.slot_count(); ++slot) {
    const SlotPlace place = PlaceOf(layout, slot);
    const SlotMeta meta = LoadMeta(SlotStart(image, place), layout);
    if (!meta.used() || !meta.WellFormed(layout)) continue;
    const uint32_t home = HomeOf(layout, SlotKey(image, layout, place, meta, scratch));
    if (!InWindow(layout, home, layout.GroupOfSlot(slot))) homes |= uint64_t{1} << home;
  }
  return homes;
}

void ComputeSpillFlags(std::byte* image, const NodeLayout& layout) {
  if (layout.window_groups() == 0) return;
  const uint64_t outside = HomesOutside(image, layout);
  for (uint32_t group = 0; group < layout.group_count(); ++group) {
    const bool flagged = (outside >> group & 1) != 0 && RuleHolds(Rule::kN1);
    SetSpillFlags(image, layout, group, flagged ? SpillFlag(0) : uint8_t{0});
  }
}

namespace {

// Kuhn's augmenting paths; a group is a node with room for several keys.
class Matching {
 public:
  Matching(const NodeLayout& layout, std::span<const uint32_t> homes, std::span<uint32_t> room)
      : layout_(layout), homes_(homes), room_(room), group_of_(homes.size(), -1) {}

  std::vector<int> Run() {
    const uint32_t near = layout_.near_groups(), all = layout_.window_groups();
    // Not the halves of a split, to which keys come: the more even their groups, the fewer of these
    // lie outside.
    if (homes_.size() * 9 > layout_.slot_count() * 5) {
      Place(near, near);
      Place(all, near);  // those that are there stay near
    }
    Place(all, all);
    return std::move(group_of_);
  }

 private:
  // Those without a group, within `reach` groups from their homes on; others move within
  // `reach_of_others` for them.
  void Place(uint32_t reach, uint32_t reach_of_others) {
    for (size_t key = 0; key < homes_.size(); ++key) {
      if (group_of_[key] >= 0) continue;
      visited_.reset();
      if (!PlaceAtOnce(key, reach)) (void)PlaceByMoving(key, reach, reach_of_others);
    }
  }

  // In the group within reach that has the most room.
  bool PlaceAtOnce(size_t key, uint32_t reach) {
    uint32_t best = 0, most = 0;
    for (uint32_t i = 0; i < reach; ++i) {
      const uint32_t group = GroupBehind(layout_, homes_[key], i);
      if (room_[group] <= most) continue;
      most = room_[group];
      best = group;
    }
    if (most == 0) return false;
    --room_[best];
    group_of_[key] = static_cast<int>(best);
    return true;
  }

  bool PlaceByMoving(size_t key, uint32_t reach, uint32_t reach_of_others) {
    for (uint32_t i = 0; i < reach; ++i) {
      const uint32_t group = GroupBehind(layout_, homes_[key], i);
      if (visited_.test(group)) continue;
      visited_.set(group);
      for (size_t other = 0; other < group_of_.size(); ++other) {
        if (group_of_[other] != static_cast<int>(group)) continue;
        if (!PlaceAtOnce(other, reach_of_others) &&
            !PlaceByMoving(other, reach_of_others, reach_of_others)) {
          continue;
        }
        group_of_[key] = static_cast<int>(group);
        return true;
      }
    }
    return false;
  }

  const NodeLayout& layout_;
  const std::span<const uint32_t> homes_;
  const std::span<uint32_t> room_;
  std::vector<int> group_of_;
  std::bitset<64> visited_;  // groups, on the way of one key
};

}  // namespace

std::vector<int> MatchToGroups(const NodeLayout& layout, std::span<const uint32_t> homes,
                               std::span<uint32_t> room) {
  return Matching(layout, homes, room).Run();
}

}  // namespace wire

bool SpillsAreFlagged(const std::byte* image, const NodeLayout& layout) {
  if (layout.window_groups() == 0) return true;
  char scratch[256];
  for (uint32_t slot = 0; slot < layout.slot_count(); ++slot) {
    const wire::SlotPlace place = wire::PlaceOf(layout, slot);
    const wire::SlotMeta meta = wire::LoadMeta(wire::SlotStart(image, place), layout);
    if (!meta.used() || !meta.WellFormed(layout)) continue;
    const uint32_t home = wire::HomeOf(layout, wire::SlotKey(image, layout, place, meta, scratch));
    if (!wire::InWindow(layout, home, layout.GroupOfSlot(slot)) &&
        wire::FlaggedIn(image, layout, home) < 0) {
      return false;
    }
  }
  return true;
}

bool HasRoomInWindow(const std::byte* image, const NodeLayout& layout, std::string_view key) {
  return !wire::WindowIsFull(image, layout, wire::HomeOf(layout, key));
}

NearFit::NearFit(const NodeLayout& layout) : layout_(layout) {}

void NearFit::Add(std::string_view key) {
  if (layout_.window_groups() > 0) ++keys_of_[wire::HomeOf(layout_, key)];
}

bool NearFit::HasRoomFor(std::string_view key) const {
  if (layout_.near_groups() == layout_.window_groups()) return true;
  NearFit with(*this);
  with.Add(key);
  return with.KeysBehind() <= KeysBehind();
}

// Whoever has the fewest groups left goes first. Twice around, so that those who come from the last
// groups are in the first ones.
uint32_t NearFit::KeysBehind() const {
  const uint32_t near = layout_.near_groups();
  std::array<uint32_t, kGroupsCounted> waiting{};  // [i]: for whom there are i groups more
  uint32_t behind = 0;
  for (int round = 0; round < 2; ++round) {
    behind = 0;
    for (uint32_t group = 0; group < layout_.group_count(); ++group) {
      waiting[near - 1] = keys_of_[group];
      uint32_t room = layout_.slots_per_group();
      for (uint32_t i = 0; i < near; ++i) {
        const uint32_t placed = std::min(room, waiting[i]);
        waiting[i] -= placed;
        room -= placed;
      }
      behind += waiting[0];
      for (uint32_t i = 1; i < near; ++i) waiting[i - 1] = waiting[i];
    }
  }
  return behind;
}

// --- LeafEditor in a layout with windows (rules N1, N5, N6, N8).

using wire::FlaggedIn;

namespace {

// A flag is set in advance while one slot in so many is free; later few keys come that need it, and
// NotFound costs more for each.
constexpr uint32_t kFreeForFlags = 14;

}  // namespace

// The group's own empty slots, and those of every window that it is in.
uint32_t LeafEditor::RoomAround(uint32_t group) const {
  const uint32_t reach = layout_.window_groups();
  uint32_t room = wire::EmptySlots(image_, layout_, group) * (reach + 1);
  for (uint32_t i = 1; i < reach; ++i) {
    for (const uint32_t distance : {i, layout_.group_count() - i}) {
      const uint32_t other = wire::GroupBehind(layout_, group, distance);
      room += wire::EmptySlots(image_, layout_, other) * (reach - i);
    }
  }
  return room;
}

int LeafEditor::RoomiestGroup(uint32_t from, uint32_t groups) const {
  int best = -1;
  uint32_t most = 0;
  for (uint32_t i = 0; i < groups; ++i) {
    const uint32_t group = wire::GroupBehind(layout_, from, i);
    if (wire::FirstEmptySlot(image_, layout_, group) < 0) continue;
    const uint32_t room = RoomAround(group);
    if (room <= most) continue;
    most = room;
    best = static_cast<int>(group);
  }
  return best;
}

int LeafEditor::FindEmptyByWindow(std::string_view key) const {
  const uint32_t home = wire::HomeOf(layout_, key);
  int group = RoomiestGroup(home, layout_.window_groups());
  if (group < 0) group = RoomiestGroup(home, layout_.group_count());
  return group < 0 ? -1 : wire::FirstEmptySlot(image_, layout_, static_cast<uint32_t>(group));
}

// As RoomAround(), but of what lies outside of the window as if it was like what is in it.
uint32_t LeafEditor::RoomiestOfWindow(uint32_t home) const {
  const uint32_t reach = layout_.window_groups();
  std::array<uint32_t, kGroupsMax> empty;
  uint32_t all = 0;
  for (uint32_t i = 0; i < reach; ++i) {
    empty[i] = wire::EmptySlots(image_, layout_, wire::GroupBehind(layout_, home, i));
    all += empty[i];
  }
  uint32_t best = reach, most = 0;
  for (uint32_t i = 0; i < reach; ++i) {
    if (empty[i] == 0) continue;
    uint32_t room = empty[i] * (reach + 1) * reach;
    for (uint32_t distance = 1; distance < reach; ++distance) {
      room += (i >= distance ? empty[i - distance] * reach : all) * (reach - distance);
      room += (i + distance < reach ? empty[i + distance] * reach : all) * (reach - distance);
    }
    if (room <= most) continue;
    most = room;
    best = i;
  }
  PANDO_CHECK_LT(best, reach) << "a window has no room";
  return wire::GroupBehind(layout_, home, best);
}

void LeafEditor::PutInWindow(int slot, std::string_view key, std::string_view value) {
  PANDO_CHECK(!key.empty() && key.size() <= layout_.key_bytes_max());
  PANDO_CHECK_LE(value.size(), layout_.value_bytes_max());
  window_only_ = RuleHolds(Rule::kN8Flags);
  if (slot >= 0) {
    WriteSlot(static_cast<uint32_t>(slot), key, value);
    return;
  }
  const uint32_t home = wire::HomeOf(layout_, key), group = RoomiestOfWindow(home);
  WriteSlot(static_cast<uint32_t>(wire::FirstEmptySlot(image_, layout_, group)), key, value);
  // In advance, as NotePlaced() does it; of other windows it is not known whether they are full.
  const bool in_advance = layout_.lines_per_group() == 1;
  if (in_advance && wire::Distance(layout_, home, group) < wire::FlagGroups(layout_) &&
      wire::WindowIsFull(image_, layout_, home) && FlaggedIn(image_, layout_, home) < 0) {
    SetFlag(home, group);
  }
}

void LeafEditor::NotePlaced(uint32_t slot, std::string_view key) {
  if (!RuleHolds(Rule::kN1Window)) return;
  const uint32_t home = wire::HomeOf(layout_, key), group = layout_.GroupOfSlot(slot);
  if (!wire::InWindow(layout_, home, group)) FlagSpill(home);
  // Where several slots share lines nodes are smaller for it, and writers have saved more already.
  const bool in_advance = layout_.lines_per_group() == 1;
  if (in_advance && wire::FirstEmptySlot(image_, layout_, group) < 0) FlagFullWindows(group);
}

// Rule N6: a flag that the batch itself has set is to be there before the key is.
void LeafEditor::FlagSpill(uint32_t home) {
  int group = FlaggedIn(image_, layout_, home);
  if (group >= 0 && (fresh_homes_ >> home & 1) == 0) return;
  if (group < 0) {
    group = static_cast<int>(home);
    for (uint32_t i = 0; i < wire::FlagGroups(layout_); ++i) {  // one that is written anyway
      const uint32_t other = wire::GroupBehind(layout_, home, i);
      if (!IsDirty(other)) continue;
      group = static_cast<int>(other);
      break;
    }
    SetFlag(home, static_cast<uint32_t>(group));
  }
  if (first_group_ >= 0 && first_group_ != group) one_comes_first_ = false;
  first_group_ = group;
}

void LeafEditor::SetFlag(uint32_t home, uint32_t group) {
  if (!RuleHolds(Rule::kN1)) return;  // the variant says nothing of keys that are elsewhere
  const uint8_t flags = wire::SpillFlagsOf(image_, layout_, group) |
                        wire::SpillFlag(wire::Distance(layout_, home, group));
  wire::SetSpillFlags(image_, layout_, group, flags);
  MarkDirty(group * layout_.slots_per_group());
  fresh_homes_ |= uint64_t{1} << home;
}

// The group is written anyway: so a flag costs nothing now, but a line of its own once a key has no
// room in its window.
void LeafEditor::FlagFullWindows(uint32_t group) {
  for (uint32_t i = 0; i < wire::FlagGroups(layout_); ++i) {
    const uint32_t home = wire::GroupBehind(layout_, group, layout_.group_count() - i);
    if (FlaggedIn(image_, layout_, home) >= 0) continue;
    if (!wire::WindowIsFull(image_, layout_, home)) continue;
    uint32_t empty = 0;
    for (uint32_t other = 0; other < layout_.group_count(); ++other) {
      empty += wire::EmptySlots(image_, layout_, other);
    }
    if (empty * kFreeForFlags < layout_.slot_count()) return;
    SetFlag(home, group);
  }
}

void LeafEditor::NoteErased(uint32_t slot, std::string_view key) {
  const uint32_t home = wire::HomeOf(layout_, key);
  if (!wire::InWindow(layout_, home, layout_.GroupOfSlot(slot))) left_homes_ |= uint64_t{1} << home;
}

// Rule N7, in groups that are written anyway. Flags of full windows stay: they are set in advance.
void LeafEditor::DropFlags() {
  uint64_t needed = 0;
  bool looked = false;
  ForEachDirty([&](uint32_t group) {
    uint8_t flags = wire::SpillFlagsOf(image_, layout_, group);
    if (flags == 0) [[likely]]
      return;
    for (uint32_t i = 0; i < wire::FlagGroups(layout_); ++i) {
      if ((flags & wire::SpillFlag(i)) == 0) continue;
      const uint32_t home = wire::GroupBehind(layout_, group, layout_.group_count() - i);
      if (wire::WindowIsFull(image_, layout_, home)) continue;
      if (!looked) needed = fresh_homes_ | wire::HomesOutside(image_, layout_);
      // Those in the image as it was given: their slots may be written later than the flag.
      if (!looked && RuleHolds(Rule::kN7Drop)) needed |= left_homes_;
      looked = true;
      if ((needed >> home & 1) == 0) flags &= static_cast<uint8_t>(~wire::SpillFlag(i));
    }
    wire::SetSpillFlags(image_, layout_, group, flags);
  });
}

void LeafEditor::AddAll(std::span<const LeafEntry> entries) {
  if (layout_.window_groups() == 0) {
    for (const LeafEntry& entry : entries) Add(entry.key, entry.value);
    return;
  }
  std::vector<uint32_t> homes, room;
  homes.reserve(entries.size());
  for (const LeafEntry& entry : entries) homes.push_back(wire::HomeOf(layout_, entry.key));
  for (uint32_t group = 0; group < layout_.group_count(); ++group) {
    room.push_back(wire::EmptySlots(image_, layout_, group));
  }
  const std::vector<int> groups = wire::MatchToGroups(layout_, homes, room);
  for (const bool matched : {true, false}) {
    for (size_t i = 0; i < entries.size(); ++i) {
      if ((groups[i] >= 0) != matched) continue;
      const int slot =
          matched ? wire::FirstEmptySlot(image_, layout_, static_cast<uint32_t>(groups[i])) : -1;
      if (slot >= 0) {
        WriteSlot(static_cast<uint32_t>(slot), entries[i].key, entries[i].value);
      } else {
        Add(entries[i].key, entries[i].value);
      }
    }
  }
  ComputeSpillFlags();
}

void LeafEditor::ComputeSpillFlags() { wire::ComputeSpillFlags(image_, layout_); }

}  // namespace pando
