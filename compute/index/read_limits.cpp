#include "compute/index/read_limits.h"

namespace pando {
namespace {

// An entry version comes around after 256 writes of its line, a node version after 65,536 of the
// node; half of them is safe.
constexpr int64_t kEntryWrites = 256 / 2;
constexpr int64_t kNodeWrites = 65'536 / 2;

// A slot of several lines lies in two packets of a READ.
bool SlotCrossesPackets(const NodeLayout& layout, uint32_t packet_bytes) {
  if (layout.lines_per_group() == 1) return false;
  for (uint32_t group = 0; group < layout.group_count(); ++group) {
    const uint32_t first = layout.FirstLineOfGroup(group) * kLineBytes;
    const uint32_t last = first + layout.lines_per_group() * kLineBytes - 1;
    if (first / packet_bytes != last / packet_bytes) return true;
  }
  return false;
}

}  // namespace

ReadLimits ReadLimits::Of(const Capabilities& capabilities, const NodeLayout& layout, bool crc) {
  ReadLimits limits;
  const int64_t interval_ns = capabilities.min_write_interval_ns;
  if (interval_ns == 0) return limits;
  // Lines that are neither atomic nor have checksums are held together by their EV alone.
  const bool lines_whole = crc || capabilities.lines_atomic;
  if (!lines_whole) limits.line_ns = kEntryWrites * interval_ns;
  const uint32_t packet_bytes = capabilities.read_packet_bytes;
  // Several READs, whatever their sizes: line 0 may be of another time than the window. Where that
  // begins one line behind line 0 the READ of it begins two lines before.
  const uint32_t window_bytes =
      layout.window_groups() * layout.group_bytes() +
      (layout.header_lines() == 2 ? layout.header_lines() * kLineBytes : 0);
  const bool groups_whole = crc || (capabilities.lines_atomic && (layout.lines_per_group() == 1 ||
                                                                  window_bytes <= packet_bytes));
  limits.window_ns = (groups_whole ? kNodeWrites : kEntryWrites) * interval_ns;
  // These READs begin and end anywhere in the node, and so do their packets.
  const bool rest_whole =
      crc || (capabilities.lines_atomic &&
              (layout.lines_per_group() == 1 || layout.node_bytes() <= packet_bytes));
  limits.rest_ns = (rest_whole ? kNodeWrites : kEntryWrites) * interval_ns;
  const bool in_one_go = packet_bytes != 0 && layout.node_bytes() <= packet_bytes;
  if (lines_whole && in_one_go) return limits;
  const bool slots_whole =
      crc || (capabilities.lines_atomic &&
              (layout.lines_per_group() == 1 ||
               (packet_bytes != 0 && !SlotCrossesPackets(layout, packet_bytes))));
  limits.node_ns = (slots_whole ? kNodeWrites : kEntryWrites) * interval_ns;
  return limits;
}

}  // namespace pando
