// Leaves: unsorted slots with point lookup, and the editor that changes an image held under the
// node's lock.
//
// A slot whose key is outside the fences is no entry, but free space. Splits and repairs leave none
// (rule F5).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/wire/line_run.h"
#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"

namespace pando {

// Slot flags: at least three spare (promoted, delta, indirect) are reserved.
enum SlotFlags : uint8_t { kSlotUsed = 1, kSlotPromoted = 2, kSlotDelta = 4, kSlotIndirect = 8 };
// Rule N1, in the first slot of a group, whatever else becomes of that slot: bit 4 + i says that
// keys whose home is the i-th group before this one may be outside of their window.
inline constexpr uint8_t kSpillFlags = 0xf0;

// Value of a used slot, appended to nothing: `value` is replaced. The slot comes from LeafMatch.
void ReadSlotValue(const std::byte* image, const NodeLayout& layout, uint32_t slot,
                   std::string* value);

struct LeafEntry {
  std::string key, value;
};
// All in-fence entries, unsorted (slot order). False if two of them have one key (the image is
// torn, rule V1).
[[nodiscard]] bool ReadLeafEntries(const std::byte* image, const NodeLayout& layout,
                                   std::vector<LeafEntry>* entries);

// True if a used slot's key is outside the fences: an accepted image has none (rule F5).
bool HasSlotOutOfFence(const std::byte* image, const NodeLayout& layout);
// Rule N1: of each key that is outside its window the home's flag says so. True without windows.
bool SpillsAreFlagged(const std::byte* image, const NodeLayout& layout);

// Rule N8: a group of the key's window has an empty slot. Of an image of which no more than the
// window is known.
bool HasRoomInWindow(const std::byte* image, const NodeLayout& layout, std::string_view key);

// For whoever fills leaves and may choose where the next one begins (rule N5).
class NearFit {
 public:
  // Of an empty leaf.
  explicit NearFit(const NodeLayout& layout);
  void Add(std::string_view key);
  // With one key more as many as without it lie behind the near groups of their windows
  // (NodeLayout::near_groups()). True where there are no groups behind these.
  bool HasRoomFor(std::string_view key) const;

 private:
  static constexpr uint32_t kGroupsCounted = 64;  // at most as many have windows

  uint32_t KeysBehind() const;

  NodeLayout layout_;
  std::array<uint16_t, kGroupsCounted> keys_of_{};  // by home
};

// Edits an accepted leaf image in place, held under the node's lock.
//
// 1. A key present before and after keeps its slot (rule U2), also through an Erase and a later Put
//    of one batch as long as another free slot is left for the keys in between; the preferred slot
//    line of a new key is hash(key).
// 2. Free is empty, or out of fence where an image has such slots (rule F5).
// 3. Only the groups of changed slots become dirty; versions change in SealDirty() alone.
// 4. Find, Put, Erase and SealDirty allocate nothing (SealDirty beyond four runs excepted).
// 5. In a layout with windows a new key goes to the group of its window with most room in and
//    around it, and where there is none anywhere, with a flag in its window (rules N1, N5). Flags
//    are added; ClearOutOfFence(), Absorb() and FillLeaf() compute all of them, and SealDirty()
//    drops those in dirty groups that no key has needed since the image was given (rule N7).
//
// Call SealDirty() (or SealNodeLevel()) once, after the last edit. Keys and values fit the layout
// (CHECKed). Not thread-safe; image and layout must outlive the editor.
class LeafEditor {
 public:
  LeafEditor(std::byte* image, const NodeLayout& layout, bool crc)
      : image_(image), layout_(layout), crc_(crc), dirty_words_((layout.group_count() + 63) / 64) {
    for (uint32_t i = 0; i < dirty_words_; ++i) dirty_groups_[i] = 0;
  }

  // Slot of an in-fence key or -1.
  int Find(std::string_view key) const;
  bool HasFreeSlot() const;
  // Overwrites the key's slot, or takes a free one. False: no free slot (nothing changed).
  [[nodiscard]] bool Put(std::string_view key, std::string_view value);
  // False: not there.
  bool Erase(std::string_view key);
  // The same for callers that have looked: `slot` is Find(key) of the image as it was given, or -1.
  [[nodiscard]] bool PutAt(int slot, std::string_view key, std::string_view value);

  // Rule N8: the same, and the only edit, where no more is known than line 0 and the key's window:
  // a new key's window has room (CHECKed), other keys may have any place.
  void PutInWindow(int slot, std::string_view key, std::string_view value);

  uint32_t used_slots() const;  // in-fence
  bool dirty() const;

  // Entry level: new EV on the lines of each dirty group. Returns the dirty lines as runs in
  // ascending order, adjacent groups joined, none longer than packet_bytes, each ending at a slot
  // boundary (rule F6); but the group that has to be there before the others comes first, by itself
  // (rule N6). None although the leaf is dirty: the changes have no such order, and are to be
  // written at node level.
  LineRuns SealDirty(uint32_t packet_bytes);

  // Where the fences have changed: they were settled after a crash, or the leaf is split (rules F5,
  // C4). Before this editor erases anything (rule N7).
  void ClearOutOfFence();
  // Before SealNodeLevel(): the slots of erased keys are empty.
  void ClearErased();
  // Puts a key that is not here. There is room (CHECKed).
  void Add(std::string_view key, std::string_view value);
  // Rule M4: adds the in-fence entries of `right`, an accepted image of the same layout, whose keys
  // are above all keys here. There is room (CHECKed). The caller sets high and right; nothing is
  // sealed.
  void Absorb(const std::byte* right);
  // Adds keys that are not here; where they have windows as many as can be go into theirs. There is
  // room (CHECKed).
  void AddAll(std::span<const LeafEntry> entries);

 private:
  static constexpr uint32_t kGroupsMax = kNodeBytesMax / kLineBytes;

  bool InFence(std::string_view key) const;
  int FindFree(std::string_view key) const;
  // In a layout with windows (window.cpp). -1: no slot is empty.
  int FindEmptyByWindow(std::string_view key) const;
  uint32_t RoomAround(uint32_t group) const;
  int RoomiestGroup(uint32_t from, uint32_t groups) const;
  uint32_t RoomiestOfWindow(uint32_t home) const;
  // A new key is in the slot.
  void NotePlaced(uint32_t slot, std::string_view key);
  void FlagSpill(uint32_t home);
  void FlagFullWindows(uint32_t group);
  void SetFlag(uint32_t home, uint32_t group);
  void NoteErased(uint32_t slot, std::string_view key);
  void DropFlags();
  void ComputeSpillFlags();
  void WriteSlot(uint32_t slot, std::string_view key, std::string_view value);
  void ClearSlot(uint32_t slot);
  void ClearErased(uint32_t group);
  void MarkDirty(uint32_t slot) {
    const uint32_t group = layout_.GroupOfSlot(slot);
    dirty_groups_[group / 64] |= uint64_t{1} << (group % 64);
  }
  bool IsDirty(uint32_t group) const {
    return (dirty_groups_[group / 64] >> (group % 64) & 1) != 0;
  }
  // Calls visit(group), in ascending order.
  template <typename Visit>
  void ForEachDirty(Visit visit) const {
    for (uint32_t word = 0; word < dirty_words_; ++word) {
      for (uint64_t bits = dirty_groups_[word]; bits != 0; bits &= bits - 1) {
        visit(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
      }
    }
  }

  std::byte* const image_;
  const NodeLayout& layout_;
  const bool crc_;
  const uint32_t dirty_words_;  // of dirty_groups_ in use: one, mostly
  std::array<uint64_t, kGroupsMax / 64> dirty_groups_;
  bool erased_ = false;
  bool window_only_ = false;  // no more of the image is known
  // Rule N6. Homes whose flag is not in the image as it was given; the group to be written first,
  // or -1; false: there would have to be several.
  uint64_t fresh_homes_ = 0;
  // Rule N7. Homes of keys that were outside their windows, and are erased.
  uint64_t left_homes_ = 0;
  int first_group_ = -1;
  bool one_comes_first_ = true;
};

// Fills a header-written leaf image with these entries and nothing else (bulk load, split): not
// sealed. No two are of one key. CHECK-fails if they do not fit.
void FillLeaf(std::byte* image, const NodeLayout& layout, std::span<const LeafEntry> entries);

// Rule S: where a leaf that is to hold so many entries, more than it has slots, is cut: the
// positions of the first entries of its new siblings. `sorted`: by key, no two of one. `ascending`:
// the writer goes on above them, so all leaves but the last become nearly full; else all get
// about as many, give or take for a shorter separator.
std::vector<size_t> ChooseCuts(const std::vector<LeafEntry>& sorted, uint32_t slot_count,
                               bool ascending);
// How many entries each leaf has room for at least if it is cut so.
constexpr uint32_t EntriesWhenCut(uint32_t slot_count) { return slot_count - slot_count / 4; }

// Shortest separator s with left < s <= right (suffix truncation). Needs left < right.
std::string ShortestSeparator(std::string_view left, std::string_view right);

}  // namespace pando
