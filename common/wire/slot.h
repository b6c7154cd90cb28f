// Slots of a leaf image: where they lie, what their meta bytes say. Internal to common/wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/wire/leaf.h"
#include "common/wire/line.h"
#include "common/wire/node_format.h"
#include "common/wire/node_layout.h"

namespace pando::wire {

struct SlotMeta {
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  uint8_t flags = 0;

  bool used() const { return (flags & kSlotUsed) != 0; }
  // Whatever the group's first slot says of keys outside their windows (rule N1).
  bool empty() const { return key_bytes == 0 && value_bytes == 0 && (flags & ~kSpillFlags) == 0; }
  bool WellFormed(const NodeLayout& layout) const {
    return !used() || (key_bytes >= 1 && key_bytes <= layout.key_bytes_max() &&
                       value_bytes <= layout.value_bytes_max());
  }
};

// Where a slot starts: byte `offset` of the payloads that begin at `line`.
struct SlotPlace {
  uint32_t line = 0;
  uint32_t offset = 0;  // below 56
};
inline SlotPlace PlaceOf(const NodeLayout& layout, uint32_t slot) {
  const uint32_t group = layout.GroupOfSlot(slot);
  const uint32_t line = layout.FirstLineOfGroup(group);
  const uint32_t offset = (slot - group * layout.slots_per_group()) * layout.slot_pitch_bytes();
  if (layout.lines_per_group() == 1) [[likely]]
    return {line, offset};
  return {line + offset / kLinePayloadBytes, offset % kLinePayloadBytes};
}
// The meta bytes and the key's first eight bytes lie in the slot's first line.
inline const std::byte* SlotStart(const std::byte* image, const SlotPlace& place) {
  return image + place.line * kLineBytes + kLinePayloadOffset + place.offset;
}
inline std::byte* SlotStart(std::byte* image, const SlotPlace& place) {
  return image + place.line * kLineBytes + kLinePayloadOffset + place.offset;
}

inline SlotMeta LoadMeta(const std::byte* start, const NodeLayout& layout) {
  const uint32_t first = LoadAs<uint8_t>(start);
  if (layout.slot_meta_bytes() == 2) return {first & 0xf, first >> 4, LoadAs<uint8_t>(start + 1)};
  return {first, LoadAs<uint8_t>(start + 1), LoadAs<uint8_t>(start + 2)};
}
inline void StoreMeta(std::byte* start, const NodeLayout& layout, const SlotMeta& meta) {
  if (layout.slot_meta_bytes() == 2) {
    StoreAs(start, static_cast<uint8_t>(meta.key_bytes | meta.value_bytes << 4));
    StoreAs(start + 1, meta.flags);
  } else {
    StoreAs(start, static_cast<uint8_t>(meta.key_bytes));
    StoreAs(start + 1, static_cast<uint8_t>(meta.value_bytes));
    StoreAs(start + 2, meta.flags);
  }
}

// The key of a well-formed slot: in the image, or in `scratch` (256 bytes) where it runs over its
// first line.
inline std::string_view SlotKey(const std::byte* image, const NodeLayout& layout,
                                const SlotPlace& place, const SlotMeta& meta, char* scratch) {
  const uint32_t offset = place.offset + layout.slot_meta_bytes();
  if (offset + meta.key_bytes <= kLinePayloadBytes) {
    const std::byte* key = SlotStart(image, place) + layout.slot_meta_bytes();
    return {reinterpret_cast<const char*>(key), meta.key_bytes};
  }
  ReadStream(image, place.line, offset, meta.key_bytes, scratch);
  return {scratch, meta.key_bytes};
}

// What one pass over all slots found out about a key.
struct SlotScan {
  int slot = -1;         // a used slot that holds the key: the last such
  uint32_t matches = 0;  // how many do
  int erased = -1;  // a slot that held it until it was erased in this batch (LeafEditor::Erase)
  bool malformed = false;  // some used slot has impossible lengths
};
// `key` empty, or over the layout's limit, matches nothing. `image`: any bytes, no slot is read
// past its end.
SlotScan ScanSlots(const std::byte* image, const NodeLayout& layout, std::string_view key);

// Any two processes agree on it (rule U2's preferred line), any two runs of a seed as well.
uint64_t HashKey(std::string_view key);

}  // namespace pando::wire
