#include "compute/index/fill.h"

#include <algorithm>
#include <optional>

#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"

namespace pando {
namespace {

// Slots of a leaf, bytes of an internal node's stream.
struct Fill {
  size_t used = 0;
  size_t capacity = 0;
};

std::optional<Fill> FillOf(const std::byte* image, uint8_t level, const NodeLayout& layout) {
  if (level > 0) {
    InternalNode node;
    if (!DecodeInternal(image, layout, &node).ok()) return std::nullopt;
    return Fill{node.StreamBytes(), layout.internal_payload_bytes()};
  }
  std::vector<LeafEntry> entries;
  if (!ReadLeafEntries(image, layout, &entries)) return std::nullopt;
  return Fill{entries.size(), layout.entries_max()};
}

constexpr bool Underfull(const Fill& fill) { return 8 * fill.used < 3 * fill.capacity; }

}  // namespace

bool IsUnderfull(const std::byte* image, uint8_t level, const NodeLayout& layout) {
  const std::optional<Fill> fill = FillOf(image, level, layout);
  return fill.has_value() && Underfull(*fill);
}

bool FitTogether(const std::byte* left, const std::byte* right, uint8_t level,
                 const NodeLayout& layout) {
  const std::optional<Fill> a = FillOf(left, level, layout), b = FillOf(right, level, layout);
  if (!a.has_value() || !b.has_value()) return false;
  // An empty leaf may be the first child, with one neighbour alone, and nobody erases there again.
  if (level == 0 && (a->used == 0 || b->used == 0)) return a->used + b->used <= a->capacity;
  size_t used = a->used + b->used;
  if (level > 0) {  // the right node's low fence becomes a separator
    FenceScratch scratch;
    used += InternalNode::EntryBytes(LowFence(right, layout, &scratch));
  }
  return 4 * used <= 3 * a->capacity;
}

bool IsMergeDue(uint32_t before, uint32_t after, const NodeLayout& layout) {
  const uint32_t step = std::max<uint32_t>(1, layout.entries_max() / 10);
  const uint32_t next_above = (after + step - 1) / step * step;
  return Underfull({after, layout.entries_max()}) && (next_above < before || after == 0);
}

}  // namespace pando
