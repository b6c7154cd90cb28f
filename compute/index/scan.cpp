#include "compute/index/scan.h"

#include <algorithm>

#include "compute/index/leaf_reader.h"

namespace pando {

size_t LeavesFor(const TreeContext& tree, size_t entries) {
  // A leaf is about two thirds full after random inserts.
  return entries / std::max<size_t>(1, tree.layout.slot_count() * 2 / 3) + 2;
}

absl::Status ScanKeys(OperationContext& context, TreeContext& tree, const KeyRange& range,
                      bool reverse, size_t limit, size_t leaves_max, std::vector<KeyValue>* rows) {
  LeafReader reader(&tree);
  return ReadRows(context, tree, &reader, range, reverse, limit, leaves_max, rows);
}

}  // namespace pando
