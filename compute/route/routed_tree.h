// A tree as sessions see it: the one place that knows kinds of trees. Every operation comes in here
// and goes on to whoever executes it for a tree of that kind.
//
// There is one kind, the shared tree, whose operations are the index's own: so nothing is looked up
// and nothing stays of the way through here, each call is inline. A second kind is told apart in
// CheckKind() and in these functions, and nowhere else: the session does not ask for it, and the
// index does not hear of it.
//
// Thread safety: as TreeContext. The operations run in a coroutine of the context's session; keys
// and values have been validated.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/wire/control.h"
#include "compute/check/session_check.h"
#include "compute/core/session_context.h"
#include "compute/index/key_range.h"
#include "compute/index/leaf_reader.h"
#include "compute/index/operations.h"
#include "compute/index/tree_context.h"
#include "compute/index/write_operation.h"
#include "compute/index/write_run.h"
#include "compute/index/write_workers.h"
#include "pando/check.h"
#include "pando/client.h"
#include "pando/size.h"

namespace pando {

// Reads on and on in the order of keys: what a cursor holds.
using RangeReader = LeafReader;

class RoutedTree {
 public:
  // FailedPrecondition: the entry is of a tree that this release cannot work on, because it is of
  // another kind or has another format. Before a tree is attached to.
  static absl::Status CheckKind(const CatalogEntry& entry);

  // Of an entry that CheckKind() lets pass.
  RoutedTree(CatalogEntry entry, NodeLayout layout, IndexEnvironment* environment)
      : shared_(std::move(entry), layout, environment) {}

  // The tree in remote memory: its name and shape, its servers, and what became of them.
  TreeContext& shared() { return shared_; }
  const TreeContext& shared() const { return shared_; }

  // --- Operations of users. Results and errors: compute/index/operations.h.
  absl::Status Get(OperationContext& context, std::string_view key, std::string* value) {
    return GetKey(context, shared_, key, value);
  }
  absl::Status Write(OperationContext& context, const WriteOperation& operation,
                     std::string* answer) {
    return WriteKey(context, shared_, operation, answer);
  }
  // Many of them, leaf by leaf: compute/index/write_run.h.
  size_t WriteRun(OperationContext& context, absl::Span<const RunWrite> writes,
                  std::vector<MissingSeparator>* later) {
    return pando::WriteRun(context, shared_, writes, later);
  }
  std::optional<std::string> NextBorder(OperationContext& context, std::string_view key) const {
    return pando::NextBorder(context, shared_, key);
  }
  absl::Status LeadTo(OperationContext& context, std::string_view key) {
    return pando::LeadTo(context, shared_, key);
  }
  absl::Status Scan(OperationContext& context, const KeyRange& range, bool reverse, size_t limit,
                    size_t leaves_max, std::vector<KeyValue>* rows) {
    return ScanKeys(context, shared_, range, reverse, limit, leaves_max, rows);
  }
  RangeReader NewReader() { return RangeReader(&shared_); }
  // How many leaves a reader should READ for so many entries.
  size_t LeavesFor(size_t entries) const { return pando::LeavesFor(shared_, entries); }
  absl::StatusOr<SizeEstimate> EstimateSize(OperationContext& context, int reads_max) {
    return EstimateTreeSize(context, shared_, reads_max);
  }

  // --- Of the whole tree.
  absl::Status BulkLoad(OperationContext& context, NextEntry next) {
    return BulkLoadTree(context, shared_, next);
  }
  absl::StatusOr<CheckReport> Check(OperationContext& context, const CheckServers& servers,
                                    const CheckOptions& options) {
    return CheckOpenTree(context, shared_, servers, options);
  }

  // --- What operations have noticed on their way, and left to the session (OperationContext).
  absl::Status InsertMissing(OperationContext& context, MissingSeparator missing) {
    return InsertSeparator(context, shared_, std::move(missing));
  }
  // Several, of one level and ascending; those that are left are still missing.
  absl::Status InsertMissing(OperationContext& context, std::vector<MissingSeparator>* missing) {
    return InsertSeparators(context, shared_, missing);
  }
  absl::Status MergeUnderfullLeaf(OperationContext& context, std::string_view low) {
    return MergeUnderfull(context, shared_, /*level=*/0, low);
  }
  absl::Status Sweep(OperationContext& context, SweepResult* result) {
    return SweepTree(context, shared_, result);
  }

 private:
  TreeContext shared_;
};

}  // namespace pando
