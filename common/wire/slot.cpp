#include "common/wire/slot.h"

#include <cstring>

#include "common/wire/lock_word.h"

namespace pando::wire {
namespace {

// Compares what follows the first eight bytes of a key; out of line because it is reached only on a
// match of those.
[[gnu::noinline]] bool TailMatches(const std::byte* image, const NodeLayout& layout, uint32_t slot,
                                   std::string_view key) {
  bool same = true;
  const SlotPlace place = PlaceOf(layout, slot);
  ForEachPiece(place.line, place.offset + layout.slot_meta_bytes(),
               static_cast<uint32_t>(key.size()), [&](uint32_t at, uint32_t done, uint32_t length) {
                 same = same && std::memcmp(image + at, key.data() + done, length) == 0;
               });
  return same;
}

// Takes down a slot that holds the key.
void Note(uint32_t slot, bool used, SlotScan* scan) {
  if (used) {
    scan->slot = static_cast<int>(slot);
    ++scan->matches;
  } else {
    scan->erased = static_cast<int>(slot);
  }
}

// Covers the first bytes of a key in a word loaded from a slot, and nothing behind the key.
uint64_t PrefixMask(std::string_view key) {
  return key.size() >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * key.size())) - 1;
}

// Slots of 8/8: three a line, a key is one word.
constexpr uint32_t kEightsBytes = 18, kEightsMetaBytes = 2;

// Meta fields of 8/8 slots side by side: key length 4 | value length 4 | flags 8.
using MetaLanes = uint16_t __attribute__((vector_size(16)));

constexpr uint64_t kUsedInLane = uint64_t{kSlotUsed} << 8;

// Of two adjacent lines; two lanes stay empty.
MetaLanes LoadMetaLanes(const std::byte* line) {
  const auto meta = [line](uint32_t at) { return LoadAs<uint16_t>(line + at); };
  return MetaLanes{meta(0),
                   meta(kEightsBytes),
                   meta(2 * kEightsBytes),
                   meta(kLineBytes),
                   meta(kLineBytes + kEightsBytes),
                   meta(kLineBytes + 2 * kEightsBytes)};
}

// Bit 8 of a lane says that a used slot has impossible lengths.
MetaLanes MalformedLanes(const MetaLanes& meta) {
  // Bit 3 of (length - 1) says that a key's length is not 1 to 8; a value's over 8 carries into bit
  // 8, the place of the used flag.
  const MetaLanes bad_key = ((meta & 0xf) + 0xf) & 0x8;
  const MetaLanes bad_value = (meta & 0xf0) + 0x70;
  return (bad_key << 5 | bad_value) & meta;
}

// 8/8, the hot path of every get. kWhole: the key has all eight bytes; a shorter one is compared
// under a mask.
template <bool kWhole>
SlotScan ScanEights(const std::byte* image, const NodeLayout& layout, std::string_view key) {
  [[maybe_unused]] const uint64_t mask = PrefixMask(key);
  const uint64_t want = __builtin_bswap64(KeyPrefix(key));
  const std::byte* const first = image + layout.header_lines() * kLineBytes + kLinePayloadOffset;
  SlotScan scan;
  MetaLanes malformed = {};
  const auto compare = [&](const std::byte* line, uint32_t slot, uint32_t i) {
    const auto word = LoadAs<uint64_t>(line + i * kEightsBytes + kEightsMetaBytes);
    if ((kWhole ? word : word & mask) != want) [[likely]]
      return;
    const SlotMeta own = LoadMeta(line + i * kEightsBytes, layout);
    if (own.key_bytes == key.size()) Note(slot + i, own.used(), &scan);
  };
  const auto compare_line = [&](const std::byte* line, uint32_t slot) {  // GCC keeps loops rolled
    compare(line, slot, 0);
    compare(line, slot, 1);
    compare(line, slot, 2);
  };
  const uint32_t lines = layout.slot_count() / 3;
  const std::byte* line = first;
  uint32_t slot = 0;
  for (uint32_t i = 1; i < lines; i += 2, slot += 6, line += 2 * kLineBytes) {
    malformed |= MalformedLanes(LoadMetaLanes(line));
    compare_line(line, slot);
    compare_line(line + kLineBytes, slot + 3);
  }
  if (lines % 2 != 0) {  // with the line before it (a header line is there, if no other)
    MetaLanes last = LoadMetaLanes(line - kLineBytes);
    last[0] = last[1] = last[2] = 0;
    malformed |= MalformedLanes(last);
    compare_line(line, slot);
  }
  uint64_t halves[2];
  std::memcpy(halves, &malformed, sizeof(halves));
  scan.malformed = ((halves[0] | halves[1]) & (kUsedInLane * 0x0001'0001'0001'0001)) != 0;
  return scan;
}

// Any geometry; `kPacked`: a group is several slots in several lines. A key's first eight bytes are
// compared as one word; reading eight bytes stays inside the slot's first line even where key and
// value together are shorter (the line's tail follows); what is behind the key is masked out.
template <uint32_t kMetaBytes, bool kPacked>
SlotScan ScanAny(const std::byte* image, const NodeLayout& layout, std::string_view key) {
  const uint32_t slot_bytes = layout.slot_bytes(), slots_per_group = layout.slots_per_group();
  const uint32_t key_bytes_max = layout.key_bytes_max(), value_bytes_max = layout.value_bytes_max();
  const uint64_t mask = PrefixMask(key);
  const uint64_t want = __builtin_bswap64(KeyPrefix(key));
  const std::byte* line = image + layout.header_lines() * kLineBytes + kLinePayloadOffset;
  SlotScan scan;
  bool malformed = false;
  for (uint32_t slot = 0; slot < layout.slot_count();
       line += layout.lines_per_group() * kLineBytes) {
    const std::byte* start = line;
    for (uint32_t i = 0; i < slots_per_group; ++i, ++slot, start += slot_bytes) {
      if constexpr (kPacked) {
        const uint32_t at = i * layout.slot_pitch_bytes();
        start = line + at / kLinePayloadBytes * kLineBytes + at % kLinePayloadBytes;
      }
      const uint32_t meta = LoadAs<uint32_t>(start);  // with the key's first byte or two
      const uint32_t stored_key = kMetaBytes == 2 ? meta & 0xf : meta & 0xff;
      const uint32_t stored_value = kMetaBytes == 2 ? meta >> 4 & 0xf : meta >> 8 & 0xff;
      const bool used = (meta >> 8 * (kMetaBytes - 1) & kSlotUsed) != 0;
      malformed |= used & ((stored_key - 1 >= key_bytes_max) | (stored_value > value_bytes_max));
      if ((LoadAs<uint64_t>(start + kMetaBytes) & mask) != want) continue;
      if (stored_key != key.size()) continue;
      if (key.size() <= 8 || TailMatches(image, layout, slot, key)) Note(slot, used, &scan);
    }
  }
  scan.malformed = malformed;
  return scan;
}

SlotScan ScanAnyKey(const std::byte* image, const NodeLayout& layout, std::string_view key) {
  if (layout.slots_per_group() > 1 && layout.lines_per_group() > 1) {
    return layout.slot_meta_bytes() == 3 ? ScanAny<3, true>(image, layout, key)
                                         : ScanAny<2, true>(image, layout, key);
  }
  if (layout.slot_meta_bytes() == 3) return ScanAny<3, false>(image, layout, key);
  if (layout.key_bytes_max() != 8 || layout.value_bytes_max() != 8) {
    return ScanAny<2, false>(image, layout, key);
  }
  if (key.size() == 8) return ScanEights<true>(image, layout, key);
  return ScanEights<false>(image, layout, key);
}

}  // namespace

SlotScan ScanSlots(const std::byte* image, const NodeLayout& layout, std::string_view key) {
  // No slot holds such a key. One whose length says otherwise would be compared past its end.
  if (key.empty() || key.size() > layout.key_bytes_max()) [[unlikely]] {
    return {.malformed = ScanAnyKey(image, layout, {}).malformed};
  }
  return ScanAnyKey(image, layout, key);
}

uint64_t HashKey(std::string_view key) {
  uint64_t hash = key.size();
  for (; key.size() > 8; key.remove_prefix(8)) hash = MixAddress(hash ^ KeyPrefix(key));
  return MixAddress(hash ^ KeyPrefix(key));
}

}  // namespace pando::wire
