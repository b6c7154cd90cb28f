// Takes dirty records out of a partition to be flushed (rules B2, B5, W5), a few at a time: whoever
// wants a record of the partition meanwhile waits for few, not for a round of a thousand.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "compute/core/session_context.h"
#include "compute/hot/partition.h"
#include "compute/owner/own_range.h"

namespace pando {

// Records of one round: enough that leaves in flight are many.
inline constexpr size_t kFlushRoundMax = 1024;

struct CollectLimits {
  bool refused = false;     // also what memory servers had no room for
  bool tombstones = false;  // those alone
  bool owed = false;        // that alone
  Lsn below = UINT64_MAX;   // with newest messages below this
  size_t records_max = kFlushRoundMax;
  size_t looks_max = 8 << 10;  // at records, taken or not
};

// As Partition::CollectDirty(), of the keys from <= key < to, and of messages up to `durable`:
// appends to `items`, which have to come back by EndFlush(), and returns where the next call goes
// on; "": there are no more. Lets the session's other coroutines run in between: no range may come
// or go meanwhile (the flushes' turnstile).
std::string CollectDirty(OperationContext& context, OwnRange* range, Lsn durable, std::string from,
                         std::string_view to, const CollectLimits& limits,
                         std::vector<FlushItem>* items);

}  // namespace pando
