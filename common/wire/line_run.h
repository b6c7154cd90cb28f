// Runs of lines: what a write-back has to WRITE (rule F6: at most one packet each, ending at a slot
// boundary).
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "common/wire/node_layout.h"

namespace pando {

struct LineRun {
  uint32_t first_line = 0;
  uint32_t line_count = 0;

  uint32_t offset_bytes() const { return first_line * kLineBytes; }  // in the node
  uint32_t bytes() const { return line_count * kLineBytes; }
  friend bool operator==(const LineRun&, const LineRun&) = default;
};
using LineRuns = absl::InlinedVector<LineRun, 4>;

// Adds lines that may not be parted. Joins them to the last run where they continue it and the
// packet has room. CHECK-fails if they alone are more than a packet (packet_bytes is a property of
// the server, checked at open).
void AppendLines(uint32_t first_line, uint32_t line_count, uint32_t packet_bytes, LineRuns* runs);

// The lines from `first_line` (which starts a slot, or lies in the header) to the node's end.
LineRuns NodeRuns(const NodeLayout& layout, uint32_t first_line, uint32_t packet_bytes);

}  // namespace pando
