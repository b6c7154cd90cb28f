#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "compute/index/leaf_reader.h"
#include "compute/index/operations.h"

namespace pando {
namespace {

// Leaves read ahead in one round trip; bounds the buffers of a scan.
constexpr size_t kScanLeavesMax = 16;

}  // namespace

size_t LeavesFor(const TreeContext& tree, size_t entries) {
  // A leaf is about two thirds full after random inserts.
  return entries / std::max<size_t>(1, tree.layout.slot_count() * 2 / 3) + 2;
}

absl::Status ScanKeys(OperationContext& context, TreeContext& tree, const KeyRange& range,
                      bool reverse, size_t limit, size_t leaves_max, std::vector<KeyValue>* rows) {
  rows->clear();
  LeafReader reader(&tree);
  if (reverse) {
    reader.Start(range.high, range.low, /*down=*/true);
  } else {
    reader.Start(range.low, range.high, /*down=*/false);
  }
  if (leaves_max == 0) leaves_max = kScanLeavesMax;
  const auto take = [&](LeafEntry& entry) {
    rows->push_back({std::move(entry.key), std::move(entry.value)});
    return rows->size() < limit;
  };
  for (bool first = true; rows->size() < limit && !reader.done(); first = false) {
    absl::Status status =
        first || !context.expired() ? absl::OkStatus() : context.DeadlineError("scanning");
    const size_t leaves = std::min(leaves_max, LeavesFor(tree, limit - rows->size()));
    if (status.ok()) status = reader.Read(context, leaves, take);
    if (!status.ok()) {
      rows->clear();
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace pando
