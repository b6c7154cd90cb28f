// What a memory server sees of a node without reading it as one: line 0 alone, which may be written
// at the same moment. A hint for its books and for sweeps (rules R4, C5), never an answer to a
// reader: that is Classify()'s alone (rule V1).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/wire/node_image.h"

namespace pando {

struct NodeGlance {
  bool is_node = false;  // has the magic
  uint32_t tree_id = 0;
  uint32_t life = 0;
  NodeState state = NodeState::kFree;
  bool has_peer = false;
};
// Of a copy of line 0 (64 bytes): any bytes.
NodeGlance GlanceAtNode(const std::byte* line0);

// Life `a` is newer than `b` (serially; no life, 0, is older than every other).
constexpr bool LifeNewer(uint32_t a, uint32_t b) {
  if (a == 0 || b == 0) return a != 0;
  return static_cast<int32_t>(a - b) > 0;
}

// Line 0 of a node that never was, in memory that nodes lived in before: consistent, of no tree,
// with the life that the next one has to exceed (rule F3). The node's other lines are zero.
void WriteLifeStamp(std::byte* line0, uint32_t life, bool crc);

}  // namespace pando
