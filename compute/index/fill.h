// How full nodes are, and which may be merged (design: under 3/8 merges, both fit in 3/4).
#pragma once

#include <string_view>

#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"

namespace pando {

// Of accepted images of one level (0: leaves). An internal node that cannot be decoded is neither.
bool IsUnderfull(const std::byte* image, uint8_t level, const NodeLayout& layout);
bool FitTogether(const std::byte* left, const std::byte* right, uint8_t level,
                 const NodeLayout& layout);

// For a leaf that has just lost entries: underfull, and a merge is worth an attempt now. Not every
// erase asks, since neighbours that do not fit would be read each time.
bool IsMergeDue(uint32_t used_slots, const NodeLayout& layout);

}  // namespace pando
