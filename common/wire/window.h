// Windows of keys in a leaf (rules N1, N2, N4): where a reader of a few lines looks for a key, and
// what those lines say of keys that are elsewhere. Pure functions over any bytes. Internal to
// common/wire, but for what node_image.h and leaf.h say of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/wire/node_layout.h"
#include "common/wire/slot.h"

namespace pando::wire {

// Flags of a home may be in so many groups, from the home on, of its window.
inline constexpr uint32_t kFlagGroupsMax = 4;

inline uint32_t HomeOf(const NodeLayout& layout, std::string_view key) {
  return static_cast<uint32_t>(HashKey(key) % layout.group_count());
}
// The group `distance` (below the number of groups) behind another one.
inline uint32_t GroupBehind(const NodeLayout& layout, uint32_t group, uint32_t distance) {
  const uint32_t behind = group + distance;
  return behind < layout.group_count() ? behind : behind - layout.group_count();
}
inline uint32_t Distance(const NodeLayout& layout, uint32_t from, uint32_t to) {
  return to >= from ? to - from : to + layout.group_count() - from;
}
inline bool InWindow(const NodeLayout& layout, uint32_t home, uint32_t group) {
  return Distance(layout, home, group) < layout.window_groups();
}
inline uint32_t FlagGroups(const NodeLayout& layout) {
  return std::min(layout.window_groups(), kFlagGroupsMax);
}

// The slot meta that has the group's flags.
inline const std::byte* FlagsAt(const std::byte* image, const NodeLayout& layout, uint32_t group) {
  return image + layout.FirstLineOfGroup(group) * kLineBytes + kLinePayloadOffset +
         layout.slot_meta_bytes() - 1;
}
inline uint8_t SpillFlagsOf(const std::byte* image, const NodeLayout& layout, uint32_t group) {
  return LoadAs<uint8_t>(FlagsAt(image, layout, group)) & kSpillFlags;
}
inline void SetSpillFlags(std::byte* image, const NodeLayout& layout, uint32_t group,
                          uint8_t flags) {
  std::byte* const at = image + (FlagsAt(image, layout, group) - image);
  StoreAs(at, static_cast<uint8_t>((LoadAs<uint8_t>(at) & ~kSpillFlags) | flags));
}
constexpr uint8_t SpillFlag(uint32_t distance) { return static_cast<uint8_t>(0x10u << distance); }
// The group of the home's window that says so; -1: none does.
int FlaggedIn(const std::byte* image, const NodeLayout& layout, uint32_t home);

// Slots of a group that hold nothing.
uint32_t EmptySlots(const std::byte* image, const NodeLayout& layout, uint32_t group);
int FirstEmptySlot(const std::byte* image, const NodeLayout& layout, uint32_t group);
bool WindowIsFull(const std::byte* image, const NodeLayout& layout, uint32_t home);

// Homes of which a key is outside its window, as bits: there are at most 64 groups.
uint64_t HomesOutside(const std::byte* image, const NodeLayout& layout);

// All flags as the used slots ask for them, and no others.
void ComputeSpillFlags(std::byte* image, const NodeLayout& layout);

// For keys with these homes, none of which is there: the group of each, in its window, where
// `room` has so many free slots a group; as many of them as there can be, and few of these behind
// the window's near groups. -1: there is no room for it. What was given is taken from `room`.
std::vector<int> MatchToGroups(const NodeLayout& layout, std::span<const uint32_t> homes,
                               std::span<uint32_t> room);

}  // namespace pando::wire
