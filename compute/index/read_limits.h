// How long a READ may take before what it found may be of several writes, although all versions
// agree (rule F2): they come around. Pure.
#pragma once

#include <cstdint>

#include "common/base/clock.h"
#include "common/fabric/fabric.h"
#include "common/wire/node_layout.h"

namespace pando {

struct ReadLimits {
  // Of a node, and of lines that are each good by themselves. From the doorbell to the completion.
  int64_t node_ns = kNeverNs;
  int64_t line_ns = kNeverNs;
  // Of a chain of READs of line 0 and a key's window (rule N2).
  int64_t window_ns = kNeverNs;
  // Of that and the chain behind it, which READs the other lines, together: window_ns holds, too.
  int64_t rest_ns = kNeverNs;

  // `crc`: lines carry checksums.
  static ReadLimits Of(const Capabilities& capabilities, const NodeLayout& layout, bool crc);
};

}  // namespace pando
