#include "common/wire/node_repair.h"

#include "common/wire/line.h"
#include "common/wire/node_format.h"

namespace pando {
namespace {

using wire::LoadAs;

bool LineWhole(const std::byte* line, bool crc, uint32_t before = 0) {
  return wire::FrontEv(line) == wire::RearEv(line) && (!crc || wire::LineCrcHolds(line, before));
}

// Line 0 names the node meant, whatever its state.
bool NamesNode(const std::byte* image, const NodeExpectation& expectation) {
  return LoadAs<uint16_t>(image + wire::kMagicOffset) == kNodeMagic &&
         LoadAs<uint8_t>(image + wire::kLevelOffset) == expectation.level &&
         LoadAs<uint32_t>(image + wire::kTreeOffset) == expectation.tree_id &&
         LifeOf(image) == expectation.life;
}

}  // namespace

bool LinesWhole(const std::byte* image, const NodeLayout& layout, bool crc) {
  uint32_t line = 0;
  while (line < layout.lines()) {
    const std::byte* const first = image + line * kLineBytes;
    const uint32_t together = layout.LinesTogether(line);
    for (uint32_t i = 0; i < together; ++i, ++line) {
      const std::byte* const at = image + line * kLineBytes;
      if (!LineWhole(at, crc, wire::CrcBefore(first, i)) ||
          wire::FrontEv(at) != wire::FrontEv(first)) {
        return false;
      }
    }
  }
  return true;
}

bool MayRepair(const std::byte* image, const NodeExpectation& expectation, bool crc) {
  const NodeState state = StateOf(image);
  return LineWhole(image, crc) && NamesNode(image, expectation) &&
         (state == NodeState::kLive || state == NodeState::kMerging);
}

bool ReadEdges(const std::byte* image, const NodeLayout& layout, const NodeExpectation& expectation,
               bool crc, NodeEdges* edges) {
  for (uint32_t line = 0; line < 2 + layout.low_lines(); ++line) {
    if (!LineWhole(image + line * kLineBytes, crc)) return false;
  }
  if (!NamesNode(image, expectation)) return false;
  FenceScratch scratch;
  edges->state = StateOf(image);
  edges->right = RightOf(image);
  edges->leftmost = Reference::Load(image + wire::kLeftmostOffset);
  edges->low = LowFence(image, layout, &scratch);
  return true;
}

bool HighIsInLine0(const std::byte* image) {
  return LoadAs<uint8_t>(image + wire::kHighLengthOffset) <= kHighInLine0;
}

}  // namespace pando
