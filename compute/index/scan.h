// Entries of a range at once, from whatever reads leaves in order (leaf_reader.h, and readers with
// its interface).
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/wire/leaf.h"
#include "compute/core/session_context.h"
#include "compute/index/key_range.h"
#include "compute/index/operations.h"
#include "compute/index/tree_context.h"
#include "pando/client.h"

namespace pando {

// As ScanKeys(), which does this with a LeafReader. Empties `rows` where it fails.
template <typename Reader>
absl::Status ReadRows(OperationContext& context, const TreeContext& tree, Reader* reader,
                      const KeyRange& range, bool reverse, size_t limit, size_t leaves_max,
                      std::vector<KeyValue>* rows) {
  // Leaves read ahead in one round trip; bounds the buffers of a scan.
  constexpr size_t kScanLeavesMax = 16;
  rows->clear();
  if (reverse) {
    reader->Start(range.high, range.low, /*down=*/true);
  } else {
    reader->Start(range.low, range.high, /*down=*/false);
  }
  if (leaves_max == 0) leaves_max = kScanLeavesMax;
  const auto take = [&](LeafEntry& entry) {
    rows->push_back({std::move(entry.key), std::move(entry.value)});
    return rows->size() < limit;
  };
  for (bool first = true; rows->size() < limit && !reader->done(); first = false) {
    absl::Status status =
        first || !context.expired() ? absl::OkStatus() : context.DeadlineError("scanning");
    const size_t leaves = std::min(leaves_max, LeavesFor(tree, limit - rows->size()));
    if (status.ok()) status = reader->Read(context, leaves, take);
    if (!status.ok()) {
      rows->clear();
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace pando
