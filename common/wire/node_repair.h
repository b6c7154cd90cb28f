// What an image whose lines do not belong together still says: the remains of a node-level write
// whose writer died between two packets (rules V4, C4). Pure functions over any bytes.
#pragma once

#include <cstddef>
#include <string>

#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"

namespace pando {

// Every line is whole in itself, and so is every slot that owns several: all that may be wrong is
// that lines are of different node-level writes.
bool LinesWhole(const std::byte* image, const NodeLayout& layout, bool crc);

// Rule V4: line 0 is whole and of the node meant (magic, tree, level, life, live or merging). Only
// then may the holder of the node's lock repair it; a node that is being formatted is nobody's.
bool MayRepair(const std::byte* image, const NodeExpectation& expectation, bool crc);

// Line 0 and what never changes within a life: enough to walk a level past a torn node.
struct NodeEdges {
  NodeState state = NodeState::kFree;
  Reference right;
  Reference leftmost;
  std::string low;
};
// False: not the node meant (whatever its state), or a header line is torn inside.
bool ReadEdges(const std::byte* image, const NodeLayout& layout, const NodeExpectation& expectation,
               bool crc, NodeEdges* edges);

// True if line 0 holds all of `high`. Else the rest may be of another write than line 0: the
// repairer takes the right sibling's `low` instead (rule F4).
bool HighIsInLine0(const std::byte* image);

}  // namespace pando
