// How full nodes are, and which may be merged (design: under 3/8 merges, if both fit in 3/4, or one
// is an empty leaf).
#pragma once

#include <string_view>

#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"

namespace pando {

// Of accepted images of one level (0: leaves). An internal node that cannot be decoded is neither.
bool IsUnderfull(const std::byte* image, uint8_t level, const NodeLayout& layout);
bool FitTogether(const std::byte* left, const std::byte* right, uint8_t level,
                 const NodeLayout& layout);

// For a leaf that had `before` entries and from which some were erased: underfull, and a merge is
// worth an attempt now. Not every erase asks, since neighbours that do not fit would be read each
// time: it has to empty the leaf, or to reach a multiple of a tenth of it, or to jump over one.
bool IsMergeDue(uint32_t before, uint32_t after, const NodeLayout& layout);

}  // namespace pando
