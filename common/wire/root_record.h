// Rule R1: a tree's root record, one line with a lock word of its own. Line format as in
// node_layout.h; payload: magic 4, tree id 4, root reference 12, level 1, flags 1 (1: dropped).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/wire/remote_address.h"

namespace pando {

struct RootRecord {
  uint32_t tree_id = 0;
  Reference root;
  uint8_t level = 0;  // of the root node; a node above it is unreachable
  bool dropped = false;
};

enum class RootVerdict { kAccepted, kTorn, kStale };

// `line`: 64 bytes as READ. kStale: not a root record of that tree.
RootVerdict DecodeRootRecord(const std::byte* line, uint32_t tree_id, bool crc, RootRecord* record);
// Seals over `old_line` (any bytes; may equal `line`): EV and NV as in rule F2.
void EncodeRootRecord(const RootRecord& record, const std::byte* old_line, bool crc,
                      std::byte* line);

}  // namespace pando
