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
  uint32_t low_lines, high_lines, slot_meta_bytes, slot_bytes, slots_per_group, lines_per_group,
      slot_pitch_bytes;

  constexpr uint32_t header_lines() const { return 2 + low_lines + high_lines; }
  constexpr uint32_t SlotsIn(uint32_t node_bytes) const {
    const uint32_t lines = node_bytes / kLineBytes;
    return lines <= header_lines() ? 0
                                   : (lines - header_lines()) / lines_per_group * slots_per_group;
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
  g.slots_per_group = std::max(1u, kLinePayloadBytes / g.slot_bytes);
  g.lines_per_group = LinesFor(g.slot_bytes);
  g.slot_pitch_bytes = g.slot_bytes;
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

// --- Windows (rules N1, N4).

constexpr uint32_t kGroupLinesMax = 8;  // of a group that several slots share
constexpr uint32_t kWindowGroupsMin = 2;
constexpr uint32_t kSpareSlots = 11;  // one in so many is, of those that share lines
// A READ more costs about as much as so many bytes.
constexpr uint32_t kReadCostBytes = 2048;
// Groups are counted in a word.
constexpr uint32_t kGroupsMax = 64;

// The least distance of `slots` slots in `lines` lines at which what a reader looks at first, a
// slot's meta and the first eight bytes of its key, lies in one line. 0: there is none.
constexpr uint32_t PitchOf(const Geometry& g, uint32_t key_bytes_max, uint32_t lines,
                           uint32_t slots) {
  const uint32_t first_bytes = g.slot_meta_bytes + std::min(key_bytes_max, 8u);
  const uint32_t room = lines * kLinePayloadBytes;
  for (uint32_t pitch = g.slot_bytes; (slots - 1) * pitch + g.slot_bytes <= room; ++pitch) {
    bool fits = true;
    for (uint32_t i = 0; i < slots; ++i) {
      fits = fits && i * pitch % kLinePayloadBytes + first_bytes <= kLinePayloadBytes;
    }
    if (fits) return pitch;
  }
  return 0;
}

struct Window {
  uint32_t groups = 0;      // 0: none pays
  uint32_t cost_bytes = 0;  // of a get, about; of a key that lies outside as well
};

// About one key in twice as many as a window has slots lies outside of it (README.md).
constexpr Window CheapestWindow(const Geometry& g, uint32_t node_bytes) {
  const uint32_t group_count = g.SlotsIn(node_bytes) / g.slots_per_group;
  Window best;
  if (group_count > kGroupsMax) return best;
  for (uint32_t groups = kWindowGroupsMin; groups <= group_count / 2; ++groups) {
    const uint32_t cost = groups * g.lines_per_group * kLineBytes +
                          (node_bytes + kReadCostBytes) / (2 * groups * g.slots_per_group);
    if (best.groups == 0 || cost < best.cost_bytes) best = {groups, cost};
  }
  return best;
}

// The largest keys and values still fit the largest node, so SmallestNodeBytes() is never over the
// limit.
static_assert(SmallestNodeBytes(255, Derive(255, 255)) == 332 * kLineBytes);
static_assert(SmallestNodeBytes(255, Derive(255, 255)) <= kNodeBytesMax);
static_assert(SmallestNodeBytes(60, Derive(60, 8)) == 64 * kLineBytes);
static_assert(SmallestNodeBytes(8, Derive(8, 8)) == kNodeBytesMin);
static_assert(Derive(8, 8).SlotsIn(kNodeBytesMin) == 42 && Derive(8, 8).slot_bytes == 18);

// Rule N4: the group that makes gets cheapest, in a node of that many bytes (0: the smallest).
constexpr Geometry DeriveForWindows(uint32_t key_bytes_max, uint32_t value_bytes_max,
                                    uint32_t node_bytes) {
  const Geometry plain = Derive(key_bytes_max, value_bytes_max);
  const auto bytes_of = [&](const Geometry& g) {
    return node_bytes != 0 ? node_bytes : SmallestNodeBytes(key_bytes_max, g);
  };
  Geometry best = plain;
  Window best_window = CheapestWindow(plain, bytes_of(plain));
  for (uint32_t lines = 2; lines <= kGroupLinesMax; ++lines) {
    uint32_t slots = lines * kLinePayloadBytes / plain.slot_bytes;
    while (slots > 1 && PitchOf(plain, key_bytes_max, lines, slots) == 0) --slots;
    if (slots <= 1) continue;
    Geometry g = plain;
    g.lines_per_group = lines;
    g.slots_per_group = slots;
    g.slot_pitch_bytes = PitchOf(plain, key_bytes_max, lines, slots);
    if (g.SlotsIn(bytes_of(g)) < kLeafSlotsLeast) continue;
    const Window window = CheapestWindow(g, bytes_of(g));
    if (window.groups == 0) continue;
    if (best_window.groups != 0 && window.cost_bytes >= best_window.cost_bytes) continue;
    best = g;
    best_window = window;
  }
  return best;
}
static_assert(DeriveForWindows(8, 8, 0).lines_per_group == 1);
static_assert(CheapestWindow(Derive(8, 8), kNodeBytesMin).groups == 3);
static_assert(DeriveForWindows(24, 8, 0).lines_per_group == 2 &&
              DeriveForWindows(24, 8, 0).slots_per_group == 3);
static_assert(DeriveForWindows(60, 8, 0).lines_per_group == 4 &&
              DeriveForWindows(60, 8, 0).slots_per_group == 3);

}  // namespace

absl::StatusOr<NodeLayout> NodeLayout::Create(uint32_t key_bytes_max, uint32_t value_bytes_max,
                                              uint32_t node_bytes, bool windows) {
  if (key_bytes_max < 1 || key_bytes_max > kKeyBytesLimit) {
    return absl::InvalidArgumentError(
        absl::StrCat("key_bytes_max is ", key_bytes_max, ", must be 1 to ", kKeyBytesLimit));
  }
  if (value_bytes_max > kValueBytesLimit) {
    return absl::InvalidArgumentError(
        absl::StrCat("value_bytes_max is ", value_bytes_max, ", must be 0 to ", kValueBytesLimit));
  }
  const Geometry g = windows ? DeriveForWindows(key_bytes_max, value_bytes_max, node_bytes)
                             : Derive(key_bytes_max, value_bytes_max);
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
  layout.slots_per_group_ = g.slots_per_group;
  layout.lines_per_group_ = g.lines_per_group;
  layout.slot_pitch_bytes_ = g.slot_pitch_bytes;
  layout.slot_count_ = g.SlotsIn(node_bytes);
  const bool shares_lines = g.slots_per_group > 1 && g.lines_per_group > 1;
  layout.entries_max_ = layout.slot_count_ - (shares_lines ? layout.slot_count_ / kSpareSlots : 0);
  if (windows) layout.window_groups_ = CheapestWindow(g, node_bytes).groups;
  return layout;
}

}  // namespace pando
