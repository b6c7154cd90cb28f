// The geometry of a tree's nodes: which bytes of which line hold what (rules F1, F2, F4).
//
//   line      front EV 1 | payload 56 | CRC32C 4 | NV 2 | rear EV 1
//   line 0    magic 2, level 1, state 1, tree id 4, life 4, right 12, peer 12,
//             high: length 1 + first 19 bytes
//   line 1    leftmost child 12, reserve 32, low: length 1 + first 11 bytes
//   then      lines with the rest of `low`, lines with the rest of `high` (only where
//             key_bytes_max needs them)
//   then      leaf: slots
//             internal: a byte stream of count 2, then (key length 1, key, reference 12) sorted
//
// A slot is (key length, value length, flags, key, value) with the key and value fields at their
// maximum size, unused bytes zero: meta is 2 bytes where both maxima are <= 15 (4 bits each + 8
// flag bits), else 3. Slots of up to 56 bytes share lines, none straddles one; a larger slot owns
// whole lines, which carry one EV ("group").
//
// In a tree whose keys have windows (rule N1) several slots may share several lines (rule N4): a
// group is as many lines and slots as make a get READ the fewest bytes; a slot's meta and the first
// eight bytes of its key lie in one line.
//
// Examples: 8/8: 1,024 bytes, 14 lines x 3 slots of 18 bytes = 42. See README.md and
// node_layout_test.cpp for 60/8 and 255/255. Immutable after Create(); thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace pando {

inline constexpr uint32_t kLineBytes = 64;
inline constexpr uint32_t kLinePayloadBytes = 56;
inline constexpr uint32_t kLinePayloadOffset = 1;
inline constexpr uint32_t kKeyBytesLimit = 255;
inline constexpr uint32_t kValueBytesLimit = 255;
inline constexpr uint32_t kLeafSlotsMin = 32;
inline constexpr uint32_t kLeafSlotsInPacket = 28;  // where fewer than 32 make a node fit a packet
inline constexpr uint32_t kNodeBytesMin = 1024;
inline constexpr uint32_t kNodeBytesMax = 64 * 1024;
inline constexpr uint32_t kHighInLine0 = 19;
inline constexpr uint32_t kLowInLine1 = 11;

class NodeLayout {
 public:
  NodeLayout() = default;  // invalid; node_bytes() == 0
  // node_bytes 0: the smallest multiple of 64, >= 1 KiB, with >= 32 leaf slots (and an internal
  // fan-out >= 8); with as few as 28 slots where the node then fits an RDMA packet of 1, 2 or 4 KiB
  // that it would exceed. An explicit node_bytes may have as few as 4 slots (deep trees of few
  // keys). InvalidArgument for sizes out of range or a node_bytes too small for the keys.
  // `windows`: each key has a window (rule N1).
  static absl::StatusOr<NodeLayout> Create(uint32_t key_bytes_max, uint32_t value_bytes_max,
                                           uint32_t node_bytes = 0, bool windows = false);

  uint32_t key_bytes_max() const { return key_bytes_max_; }
  uint32_t value_bytes_max() const { return value_bytes_max_; }
  uint32_t node_bytes() const { return node_bytes_; }
  uint32_t lines() const { return node_bytes_ / kLineBytes; }
  uint32_t low_lines() const { return low_lines_; }    // lines holding the rest of `low`
  uint32_t high_lines() const { return high_lines_; }  // lines holding the rest of `high`
  uint32_t header_lines() const { return 2 + low_lines_ + high_lines_; }
  uint32_t body_lines() const { return lines() - header_lines(); }

  // Leaf slots.
  uint32_t slot_meta_bytes() const { return slot_meta_bytes_; }  // 2 or 3
  uint32_t slot_bytes() const { return slot_bytes_; }
  uint32_t slot_count() const { return slot_count_; }
  // A leaf with more entries is split. Fewer than slots where several of these share lines (rule
  // N4): the last ones would mostly be outside their windows.
  uint32_t entries_max() const { return entries_max_; }
  // Group: the lines that one entry-level write of a slot rewrites together.
  uint32_t slots_per_group() const { return slots_per_group_; }  // 1 when a slot owns lines
  uint32_t lines_per_group() const { return lines_per_group_; }  // 1 when slots share a line
  uint32_t group_count() const { return slot_count_ / slots_per_group_; }
  uint32_t group_bytes() const { return lines_per_group_ * kLineBytes; }
  uint32_t GroupOfSlot(uint32_t slot) const { return slot / slots_per_group_; }
  uint32_t FirstLineOfGroup(uint32_t group) const {
    return header_lines() + group * lines_per_group_;
  }
  // From one slot of a group to the next, payload bytes.
  uint32_t slot_pitch_bytes() const { return slot_pitch_bytes_; }
  // Rule N1: a key's window is so many groups, at most half of them; 0: keys have none.
  uint32_t window_groups() const { return window_groups_; }
  // Rule N2: its first groups, two thirds of them, where a get may look first. Of windows of two
  // groups both.
  uint32_t near_groups() const { return (2 * window_groups_ + 2) / 3; }
  // How many lines from `line` on carry one EV and are written together: 1 in the header, behind
  // the last slot, and where slots share lines. `line` starts a group or is one of those.
  uint32_t LinesTogether(uint32_t line) const {
    return line >= header_lines() && line < FirstLineOfGroup(group_count()) ? lines_per_group_ : 1;
  }
  // Byte offset in the node of a slot that shares its line. Slots that own lines are copied line by
  // line.
  uint32_t SharedSlotOffset(uint32_t slot) const {
    return (header_lines() + slot / slots_per_group_) * kLineBytes + kLinePayloadOffset +
           (slot % slots_per_group_) * slot_bytes_;
  }

  // Internal nodes.
  uint32_t internal_payload_bytes() const { return body_lines() * kLinePayloadBytes; }

  friend bool operator==(const NodeLayout&, const NodeLayout&) = default;

 private:
  uint32_t key_bytes_max_ = 0, value_bytes_max_ = 0, node_bytes_ = 0;
  uint32_t low_lines_ = 0, high_lines_ = 0;
  uint32_t slot_meta_bytes_ = 0, slot_bytes_ = 0, slots_per_group_ = 0, lines_per_group_ = 0,
           slot_count_ = 0, entries_max_ = 0, slot_pitch_bytes_ = 0, window_groups_ = 0;
};

}  // namespace pando
