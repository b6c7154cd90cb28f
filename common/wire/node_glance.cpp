#include "common/wire/node_glance.h"

#include <cstring>

#include "common/wire/line.h"
#include "common/wire/node_format.h"

namespace pando {

NodeGlance GlanceAtNode(const std::byte* line0) {
  NodeGlance glance;
  glance.is_node = wire::LoadAs<uint16_t>(line0 + wire::kMagicOffset) == kNodeMagic;
  glance.tree_id = wire::LoadAs<uint32_t>(line0 + wire::kTreeOffset);
  glance.life = wire::LoadAs<uint32_t>(line0 + wire::kLifeOffset);
  glance.state = static_cast<NodeState>(wire::LoadAs<uint8_t>(line0 + wire::kStateOffset));
  glance.has_peer = !Reference::Load(line0 + wire::kPeerOffset).is_null();
  return glance;
}

void WriteLifeStamp(std::byte* line0, uint32_t life, bool crc) {
  std::memset(line0, 0, kLineBytes);
  wire::StoreAs(line0 + wire::kLifeOffset, life);
  wire::SealLine(line0, 0, 0, crc);
}

}  // namespace pando
