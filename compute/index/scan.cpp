#include "compute/index/scan.h"

#include <algorithm>

#include "compute/index/leaf_reader.h"

namespace pando {

size_t LeavesFor(const TreeContext& tree, size_t entries) {
  // What a tenth of scans find less of behind their place in the first leaf: those may need another
  // round trip, and the others READ no leaf for them.
  constexpr uint64_t kFirstLeafParts = 10;
  // Before any was met: a leaf is about two thirds full after random inserts.
  const uint64_t usual = std::max<uint64_t>(1, tree.layout.slot_count() * LeafFill::kOne * 2 / 3);
  const uint64_t fill = tree.fill.Mean() == 0 ? usual : tree.fill.Mean();
  const uint64_t wanted = std::min<uint64_t>(entries, UINT32_MAX) * LeafFill::kOne;
  const uint64_t first = fill / kFirstLeafParts;
  return (wanted - std::min(wanted, first) + fill - 1) / fill + 1;
}

absl::Status ScanKeys(OperationContext& context, TreeContext& tree, const KeyRange& range,
                      bool reverse, size_t limit, size_t leaves_max, std::vector<KeyValue>* rows) {
  LeafReader reader(&tree);
  return ReadRows(context, tree, &reader, range, reverse, limit, leaves_max, rows);
}

}  // namespace pando
