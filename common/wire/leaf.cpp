#include "common/wire/leaf.h"

#include <bit>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/wire/line.h"
#include "common/wire/slot.h"

namespace pando {

using wire::LoadMeta;
using wire::PlaceOf;
using wire::SlotMeta;
using wire::SlotPlace;
using wire::SlotStart;

void ReadSlotValue(const std::byte* image, const NodeLayout& layout, uint32_t slot,
                   std::string* value) {
  const SlotPlace place = PlaceOf(layout, slot);
  const SlotMeta meta = LoadMeta(SlotStart(image, place), layout);
  const uint32_t bytes = std::min(meta.value_bytes, layout.value_bytes_max());
  const uint32_t offset = layout.slot_meta_bytes() + layout.key_bytes_max();
  if (layout.lines_per_group() == 1) {
    const std::byte* from = SlotStart(image, place) + offset;
    if (bytes == 8 && value->size() == 8) [[likely]] {
      std::memcpy(value->data(), from, 8);
    } else {
      value->assign(reinterpret_cast<const char*>(from), bytes);
    }
    return;
  }
  value->resize(bytes);
  wire::ReadStream(image, place.line, place.offset + offset, bytes, value->data());
}

namespace {

// The fences of an image, read once.
class Fences {
 public:
  Fences(const std::byte* image, const NodeLayout& layout)
      : low_(LowFence(image, layout, &low_scratch_)),
        high_(HighFence(image, layout, &high_scratch_)) {}
  Fences(const Fences&) = delete;

  bool Cover(std::string_view key) const {
    return !wire::KeyLess(key, low_) && (high_.empty() || wire::KeyLess(key, high_));
  }

 private:
  FenceScratch low_scratch_, high_scratch_;
  std::string_view low_, high_;
};

// Calls visit(slot, place, meta, key) for each used, well-formed slot until it returns false.
template <typename Visit>
void ForEachUsed(const std::byte* image, const NodeLayout& layout, Visit visit) {
  char scratch[256];
  for (uint32_t slot = 0; slot < layout.slot_count(); ++slot) {
    const SlotPlace place = PlaceOf(layout, slot);
    const SlotMeta meta = LoadMeta(SlotStart(image, place), layout);
    if (!meta.used() || !meta.WellFormed(layout)) continue;
    if (!visit(slot, place, meta, wire::SlotKey(image, layout, place, meta, scratch))) return;
  }
}

// The keys seen so far: open addressing over positions in a vector of entries, at most half full.
class SeenKeys {
 public:
  explicit SeenKeys(uint32_t keys_max) : positions_(std::bit_ceil(2 * keys_max + 1), kNone) {}

  // False: a key like entries[position].key was added before.
  bool Add(const std::vector<LeafEntry>& entries, uint32_t position) {
    const std::string_view key = entries[position].key;
    const size_t mask = positions_.size() - 1;
    for (size_t at = wire::HashKey(key) & mask;; at = (at + 1) & mask) {
      if (positions_[at] == kNone) {
        positions_[at] = position;
        return true;
      }
      if (entries[positions_[at]].key == key) return false;
    }
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  absl::InlinedVector<uint32_t, 128> positions_;
};

// Text and zeros behind it, `bytes` together.
void PutField(std::byte* to, std::string_view text, uint32_t bytes) {
  if (text.size() == 8 && bytes == 8) [[likely]] {
    std::memcpy(to, text.data(), 8);
    return;
  }
  if (!text.empty()) std::memcpy(to, text.data(), text.size());
  std::memset(to + text.size(), 0, bytes - text.size());
}

}  // namespace

bool ReadLeafEntries(const std::byte* image, const NodeLayout& layout,
                     std::vector<LeafEntry>* entries) {
  const Fences fences(image, layout);
  SeenKeys seen(layout.slot_count());
  uint32_t count = 0;
  bool unique = true;
  ForEachUsed(image, layout, [&](uint32_t slot, SlotPlace, SlotMeta, std::string_view key) {
    if (!fences.Cover(key)) return true;
    if (count == entries->size()) entries->emplace_back();  // else reuse that string's memory
    LeafEntry& entry = (*entries)[count];
    entry.key.assign(key);
    ReadSlotValue(image, layout, slot, &entry.value);
    unique = seen.Add(*entries, count++) || !RuleHolds(Rule::kV1);
    return unique;
  });
  entries->resize(unique ? count : 0);
  return unique;
}

bool HasSlotOutOfFence(const std::byte* image, const NodeLayout& layout) {
  const Fences fences(image, layout);
  bool found = false;
  ForEachUsed(image, layout, [&](uint32_t, SlotPlace, SlotMeta, std::string_view key) {
    found = !fences.Cover(key);
    return !found;
  });
  return found;
}

bool LeafEditor::InFence(std::string_view key) const { return Fences(image_, layout_).Cover(key); }

int LeafEditor::Find(std::string_view key) const {
  return wire::ScanSlots(image_, layout_, key).slot;
}

// First choice: an empty slot, from the key's preferred group on. Then one that is out of fence;
// then one whose key was erased in this batch (its key may come back, see invariant 1).
int LeafEditor::FindFree(std::string_view key) const {
  const uint32_t slots = layout_.slot_count();
  const auto preferred =
      static_cast<uint32_t>(wire::HashKey(key) % layout_.group_count()) * layout_.slots_per_group();
  if (layout_.window_groups() != 0 && RuleHolds(Rule::kN1Window)) {
    const int empty = FindEmptyByWindow(key);
    if (empty >= 0) return empty;
  }
  int erased = -1;
  for (uint32_t i = 0, slot = preferred; i < slots; ++i) {
    const SlotMeta meta = LoadMeta(SlotStart(image_, PlaceOf(layout_, slot)), layout_);
    if (meta.empty()) return static_cast<int>(slot);
    if (!meta.used() && erased < 0) erased = static_cast<int>(slot);
    if (++slot == slots) slot = 0;
  }
  int outside = -1;
  const Fences fences(image_, layout_);
  ForEachUsed(image_, layout_, [&](uint32_t slot, SlotPlace, SlotMeta, std::string_view slot_key) {
    if (!fences.Cover(slot_key)) outside = static_cast<int>(slot);
    return outside < 0;
  });
  return outside >= 0 ? outside : erased;
}

bool LeafEditor::HasFreeSlot() const { return FindFree({}) >= 0; }

void LeafEditor::WriteSlot(uint32_t slot, std::string_view key, std::string_view value) {
  const SlotPlace place = PlaceOf(layout_, slot);
  const auto key_bytes = static_cast<uint32_t>(key.size());
  const auto value_bytes = static_cast<uint32_t>(value.size());
  std::byte* const start = SlotStart(image_, place);
  const uint8_t kept =
      layout_.window_groups() == 0 ? 0 : LoadMeta(start, layout_).flags & kSpillFlags;
  wire::StoreMeta(start, layout_, {key_bytes, value_bytes, static_cast<uint8_t>(kSlotUsed | kept)});
  MarkDirty(slot);
  if (layout_.lines_per_group() == 1) {
    std::byte* const to = start + layout_.slot_meta_bytes();
    PutField(to, key, layout_.key_bytes_max());
    PutField(to + layout_.key_bytes_max(), value, layout_.value_bytes_max());
    return;
  }
  const uint32_t key_at = place.offset + layout_.slot_meta_bytes();
  const uint32_t value_at = key_at + layout_.key_bytes_max();
  wire::WriteStream(image_, place.line, key_at, key_bytes, key.data());
  wire::ZeroStream(image_, place.line, key_at + key_bytes, layout_.key_bytes_max() - key_bytes);
  wire::WriteStream(image_, place.line, value_at, value_bytes, value.data());
  wire::ZeroStream(image_, place.line, value_at + value_bytes,
                   layout_.value_bytes_max() - value_bytes);
}

void LeafEditor::ClearSlot(uint32_t slot) {
  const SlotPlace place = PlaceOf(layout_, slot);
  std::byte* const start = SlotStart(image_, place);
  const uint8_t kept = LoadMeta(start, layout_).flags & kSpillFlags;
  wire::ZeroStream(image_, place.line, place.offset, layout_.slot_bytes());
  if (layout_.window_groups() != 0) wire::StoreMeta(start, layout_, {0, 0, kept});
  MarkDirty(slot);
}

bool LeafEditor::Put(std::string_view key, std::string_view value) {
  PANDO_CHECK(!key.empty() && key.size() <= layout_.key_bytes_max());
  PANDO_CHECK_LE(value.size(), layout_.value_bytes_max());
  const wire::SlotScan scan = wire::ScanSlots(image_, layout_, key);
  if (scan.slot >= 0 && RuleHolds(Rule::kU2)) {
    WriteSlot(static_cast<uint32_t>(scan.slot), key, value);
    return true;
  }
  const int free = scan.slot < 0 && scan.erased >= 0 ? scan.erased : FindFree(key);
  if (scan.slot >= 0) {  // rule U2 broken: the key moves
    WriteSlot(static_cast<uint32_t>(free >= 0 ? free : scan.slot), key, value);
    if (free >= 0) ClearSlot(static_cast<uint32_t>(scan.slot));
    return true;
  }
  if (free < 0) return false;
  WriteSlot(static_cast<uint32_t>(free), key, value);
  if (layout_.window_groups() != 0) NotePlaced(static_cast<uint32_t>(free), key);
  return true;
}

bool LeafEditor::PutAt(int slot, std::string_view key, std::string_view value) {
  if (slot < 0 || !RuleHolds(Rule::kU2)) return Put(key, value);
  PANDO_DCHECK(Find(key) == slot);
  PANDO_CHECK_LE(value.size(), layout_.value_bytes_max());
  WriteSlot(static_cast<uint32_t>(slot), key, value);
  return true;
}

bool LeafEditor::Erase(std::string_view key) {
  const int slot = Find(key);
  if (slot < 0) return false;
  // Key and lengths stay until SealDirty(), so that a later Put of this batch finds the slot again.
  std::byte* const start = SlotStart(image_, PlaceOf(layout_, static_cast<uint32_t>(slot)));
  SlotMeta meta = LoadMeta(start, layout_);
  meta.flags &= kSpillFlags;
  wire::StoreMeta(start, layout_, meta);
  MarkDirty(static_cast<uint32_t>(slot));
  if (layout_.window_groups() != 0) NoteErased(static_cast<uint32_t>(slot), key);
  erased_ = true;
  return true;
}

uint32_t LeafEditor::used_slots() const {
  const Fences fences(image_, layout_);
  uint32_t used = 0;
  ForEachUsed(image_, layout_, [&](uint32_t, SlotPlace, SlotMeta, std::string_view key) {
    used += fences.Cover(key) ? 1 : 0;
    return true;
  });
  return used;
}

bool LeafEditor::dirty() const {
  for (uint32_t i = 0; i < dirty_words_; ++i) {
    if (dirty_groups_[i] != 0) return true;
  }
  return false;
}

void LeafEditor::ClearErased(uint32_t group) {
  for (uint32_t i = 0; i < layout_.slots_per_group(); ++i) {
    const uint32_t slot = group * layout_.slots_per_group() + i;
    const SlotMeta meta = LoadMeta(SlotStart(image_, PlaceOf(layout_, slot)), layout_);
    if (!meta.used() && !meta.empty()) ClearSlot(slot);
  }
}

void LeafEditor::ClearErased() {
  if (!erased_) return;
  for (uint32_t group = 0; group < layout_.group_count(); ++group) ClearErased(group);
}

LineRuns LeafEditor::SealDirty(uint32_t packet_bytes) {
  LineRuns first, runs;
  if (!one_comes_first_) [[unlikely]] {
    ClearErased();
    return runs;
  }
  if (erased_) ForEachDirty([&](uint32_t group) { ClearErased(group); });
  if (layout_.window_groups() != 0 && !window_only_) DropFlags();
  ForEachDirty([&](uint32_t group) {
    const uint32_t first_line = layout_.FirstLineOfGroup(group);
    SealEntryLevel(image_, first_line, layout_.lines_per_group(), crc_);
    AppendLines(first_line, layout_.lines_per_group(), packet_bytes,
                static_cast<int>(group) == first_group_ ? &first : &runs);
  });
  for (uint32_t i = 0; i < dirty_words_; ++i) dirty_groups_[i] = 0;
  if (!first.empty()) [[unlikely]] {
    runs.insert(RuleHolds(Rule::kN6) ? runs.begin() : runs.end(), first.begin(), first.end());
  }
  return runs;
}

}  // namespace pando
