#include "common/wire/node_layout.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pando {
namespace {

// An explicit node_bytes may have fewer slots than kLeafSlotsMin, but a leaf must be able to split
// into halves that are not nearly empty, and a level must divide the number of nodes by a useful
// factor.
constexpr uint32_t kLeafSlotsLeast = 4;
constexpr uint32_t kFanOutLeast = 8;
constexpr uint32_t kPackedMetaLimit = 15;  // two lengths of four bits each
constexpr uint32_t kReferenceBytes = 12;
constexpr uint32_t kStreamCountBytes = 2;

constexpr uint32_t LinesFor(uint32_t bytes) {
  return (bytes + kLinePayloadBytes - 1) / kLinePayloadBytes;
}

struct Geometry {
  uint32_t low_lines, high_lines, slot_meta_bytes, slot_bytes, slots_per_line, lines_per_slot;

  constexpr uint32_t header_lines() const { return 2 + low_lines + high_lines; }
  constexpr uint32_t SlotsIn(uint32_t node_bytes) const {
    const uint32_t lines = node_bytes / kLineBytes;
    return lines <= header_lines() ? 0 : (lines - header_lines()) / lines_per_slot * slots_per_line;
  }
  constexpr uint32_t FanOutIn(uint32_t node_bytes, uint32_t key_bytes_max) const {
    const uint32_t lines = node_bytes / kLineBytes;
    if (lines <= header_lines()) return 0;
    const uint32_t stream = (lines - header_lines()) * kLinePayloadBytes - kStreamCountBytes;
    return stream / (1 + key_bytes_max + kReferenceBytes) +
           1;  // the leftmost child is in the header
  }
};

constexpr Geometry Derive(uint32_t key_bytes_max, uint32_t value_bytes_max) {
  Geometry g{};
  g.low_lines = LinesFor(key_bytes_max - std::min(key_bytes_max, kLowInLine1));
  g.high_lines = LinesFor(key_bytes_max - std::min(key_bytes_max, kHighInLine0));
  g.slot_meta_bytes =
      key_bytes_max <= kPackedMetaLimit && value_bytes_max <= kPackedMetaLimit ? 2 : 3;
  g.slot_bytes = g.slot_meta_bytes + key_bytes_max + value_bytes_max;
  g.slots_per_line = std::max(1u, kLinePayloadBytes / g.slot_bytes);
  g.lines_per_slot = LinesFor(g.slot_bytes);
  return g;
}

constexpr uint32_t SmallestNodeBytes(uint32_t key_bytes_max, const Geometry& g) {
  const auto large_enough = [&](uint32_t bytes, uint32_t slots) {
    return g.SlotsIn(bytes) >= slots && g.FanOutIn(bytes, key_bytes_max) >= kFanOutLeast;
  };
  // A few slots fewer, and a READ is one packet instead of two.
  for (const uint32_t packet_bytes : {1024, 2048, 4096}) {
    if (large_enough(packet_bytes, kLeafSlotsInPacket)) {
      uint32_t bytes = kNodeBytesMin;
      while (bytes < packet_bytes && !large_enough(bytes, kLeafSlotsMin)) bytes += kLineBytes;
      return bytes;
    }
  }
  uint32_t bytes = kNodeBytesMin;
  while (!large_enough(bytes, kLeafSlotsMin)) bytes += kLineBytes;
  return bytes;
}

// The largest keys and values still fit the largest node, so SmallestNodeBytes() is never over the
// limit.
static_assert(SmallestNodeBytes(255, Derive(255, 255)) == 332 * kLineBytes);
static_assert(SmallestNodeBytes(255, Derive(255, 255)) <= kNodeBytesMax);
static_assert(SmallestNodeBytes(60, Derive(60, 8)) == 64 * kLineBytes);
static_assert(SmallestNodeBytes(8, Derive(8, 8)) == kNodeBytesMin);
static_assert(Derive(8, 8).SlotsIn(kNodeBytesMin) == 42 && Derive(8, 8).slot_bytes == 18);

}  // namespace

absl::StatusOr<NodeLayout> NodeLayout::Create(uint32_t key_bytes_max, uint32_t value_bytes_max,
                                              uint32_t node_bytes) {
  if (key_bytes_max < 1 || key_bytes_max > kKeyBytesLimit) {
    return absl::InvalidArgumentError(
        absl::StrCat("key_bytes_max is ", key_bytes_max, ", must be 1 to ", kKeyBytesLimit));
  }
  if (value_bytes_max > kValueBytesLimit) {
    return absl::InvalidArgumentError(
        absl::StrCat("value_bytes_max is ", value_bytes_max, ", must be 0 to ", kValueBytesLimit));
  }
  const Geometry g = Derive(key_bytes_max, value_bytes_max);
  if (node_bytes == 0) node_bytes = SmallestNodeBytes(key_bytes_max, g);
  if (node_bytes < kNodeBytesMin || node_bytes > kNodeBytesMax || node_bytes % kLineBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("node_bytes is ", node_bytes,
                                                   ", must be a multiple of ", kLineBytes, " from ",
                                                   kNodeBytesMin, " to ", kNodeBytesMax));
  }
  if (g.SlotsIn(node_bytes) < kLeafSlotsLeast ||
      g.FanOutIn(node_bytes, key_bytes_max) < kFanOutLeast) {
    return absl::InvalidArgumentError(
        absl::StrCat("node_bytes is ", node_bytes, ", too small for keys of ", key_bytes_max,
                     " and values of ", value_bytes_max, " bytes; use ",
                     SmallestNodeBytes(key_bytes_max, g), ", or 0 to have it chosen"));
  }
  NodeLayout layout;
  layout.key_bytes_max_ = key_bytes_max;
  layout.value_bytes_max_ = value_bytes_max;
  layout.node_bytes_ = node_bytes;
  layout.low_lines_ = g.low_lines;
  layout.high_lines_ = g.high_lines;
  layout.slot_meta_bytes_ = g.slot_meta_bytes;
  layout.slot_bytes_ = g.slot_bytes;
  layout.slots_per_line_ = g.slots_per_line;
  layout.lines_per_slot_ = g.lines_per_slot;
  layout.slot_count_ = g.SlotsIn(node_bytes);
  return layout;
}

}  // namespace pando
