// A tree as sessions see it: the one place that knows kinds of trees. Every operation comes in here
// and passes it to the room that executes it for that kind of tree.
//
// There are shared trees, whose operations are the index's own; owned trees, whose keys are read
// and written at their owner's (compute/owner), with a shared tree below; and either of them with
// large values, where slots refer to cells (compute/value). They are told apart in these functions
// and nowhere else: the session does not ask, and the index does not hear of it. Each call is
// inline, and costs a plain shared tree one look at a flag.
//
// Thread safety: as TreeContext. The operations run in a coroutine of the context's session; keys
// and values have been validated.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/control.h"
#include "compute/check/session_check.h"
#include "compute/core/session_context.h"
#include "compute/index/erase_range.h"
#include "compute/index/key_range.h"
#include "compute/index/leaf_reader.h"
#include "compute/index/operations.h"
#include "compute/index/scan.h"
#include "compute/index/tree_context.h"
#include "compute/index/write_operation.h"
#include "compute/index/write_run.h"
#include "compute/index/write_workers.h"
#include "compute/owner/owned_reader.h"
#include "compute/owner/owned_tree.h"
#include "compute/value/large_values.h"
#include "pando/check.h"
#include "pando/client.h"
#include "pando/size.h"

namespace pando {

// Reads on and on in the order of keys: what a cursor holds. As LeafReader.
class RangeReader {
 public:
  using Take = LeafReader::Take;

  RangeReader(TreeContext* shared, OwnedTree* owned, LargeValues* large)
      : reader_(std::in_place_type<LeafReader>, shared) {
    if (owned != nullptr) reader_.emplace<OwnedReader>(owned);
    if (large != nullptr) reader_.emplace<LargeReader>(shared, large);
  }

  void Start(KeyCut at, KeyCut end, bool down) {
    std::visit([&](auto& reader) { reader.Start(std::move(at), std::move(end), down); }, reader_);
  }
  bool done() const {
    return std::visit([](const auto& reader) { return reader.done(); }, reader_);
  }
  const KeyCut& at() const {
    return std::visit([](const auto& reader) -> const KeyCut& { return reader.at(); }, reader_);
  }
  absl::Status Read(OperationContext& context, size_t leaves_max, Take take) {
    return std::visit([&](auto& reader) { return reader.Read(context, leaves_max, take); },
                      reader_);
  }

 private:
  std::variant<LeafReader, OwnedReader, LargeReader> reader_;
};

class RoutedTree {
 public:
  // FailedPrecondition: the entry is of a tree that this release cannot work on, because it is of
  // another kind or has another format. Before a tree is attached to.
  static absl::Status CheckKind(const CatalogEntry& entry);

  // Of an entry that CheckKind() lets pass. `member`: of an owned tree; outlives this.
  RoutedTree(CatalogEntry entry, NodeLayout layout, IndexEnvironment* environment, Member* member)
      : shared_(std::move(entry), layout, environment) {
    if (shared_.entry.mode() == TreeMode::kOwned) {
      owned_ = std::make_unique<OwnedTree>(&shared_, member);
    }
    if (shared_.entry.shape.has_cells) {
      large_ = std::make_unique<LargeValues>(&shared_, owned_.get());
    }
    is_plain_ = (owned_ == nullptr || !RuleHolds(Rule::kO1)) && large_ == nullptr;
  }

  // The tree in remote memory: its name and shape, its servers, and what became of them.
  TreeContext& shared() { return shared_; }
  const TreeContext& shared() const { return shared_; }
  // nullptr: it is a shared tree.
  OwnedTree* owned() const { return owned_.get(); }

  // --- Operations of users. Results and errors: compute/index/operations.h.
  absl::Status Get(OperationContext& context, std::string_view key, std::string* value) {
    if (is_plain_) [[likely]]
      return GetKey(context, shared_, key, value);
    return GetElsewhere(context, key, value);
  }
  absl::Status Write(OperationContext& context, const WriteOperation& operation,
                     std::string* answer) {
    if (is_plain_) [[likely]]
      return WriteKey(context, shared_, operation, answer);
    return WriteElsewhere(context, operation, answer);
  }
  // Many of them, leaf by leaf: compute/index/write_run.h.
  size_t WriteRun(OperationContext& context, absl::Span<const RunWrite> writes,
                  std::vector<MissingSeparator>* later) {
    if (is_plain_) [[likely]]
      return pando::WriteRun(context, shared_, writes, later);
    return large_ != nullptr ? large_->WriteRun(context, writes, later)
                             : owned_->WriteRun(context, writes);
  }
  // In an owned tree one coroutine's puts share a commit, whatever their leaves.
  std::optional<std::string> NextBorder(OperationContext& context, std::string_view key) const {
    if (owned_ != nullptr) return owned_->NextBorder(key);
    return pando::NextBorder(context, shared_, key);
  }
  absl::Status LeadTo(OperationContext& context, std::string_view key) {
    return owned_ != nullptr ? absl::OkStatus() : pando::LeadTo(context, shared_, key);
  }
  absl::Status Scan(OperationContext& context, const KeyRange& range, bool reverse, size_t limit,
                    size_t leaves_max, std::vector<KeyValue>* rows) {
    if (is_plain_) [[likely]]
      return ScanKeys(context, shared_, range, reverse, limit, leaves_max, rows);
    RangeReader reader = NewReader();
    return ReadRows(context, shared_, &reader, range, reverse, limit, leaves_max, rows);
  }
  // Leaf by leaf: compute/index/erase_range.h.
  absl::Status EraseRange(OperationContext& context, const KeyRange& range, NoteErased note,
                          ErasedKeys* keys = nullptr) {
    if (owned_ != nullptr) return owned_->EraseRange(context, range, note, keys);
    return large_ != nullptr ? large_->EraseRange(context, range, note, keys)
                             : EraseRangeOfTree(context, shared_, range, note, keys);
  }
  RangeReader NewReader() { return RangeReader(&shared_, owned_.get(), large_.get()); }
  // How many leaves a reader should READ for so many entries.
  size_t LeavesFor(size_t entries) const { return pando::LeavesFor(shared_, entries); }
  absl::StatusOr<SizeEstimate> EstimateSize(OperationContext& context, int reads_max) {
    return EstimateTreeSize(context, shared_, reads_max);
  }

  // --- Of the whole tree.
  absl::Status BulkLoad(OperationContext& context, NextEntry next) {
    if (large_ != nullptr) return large_->BulkLoad(context, next);
    return owned_ != nullptr ? owned_->BulkLoad(context, next)
                             : BulkLoadTree(context, shared_, next);
  }
  absl::StatusOr<CheckReport> Check(OperationContext& context, const CheckServers& servers,
                                    const CheckOptions& options) {
    PANDO_RETURN_IF_ERROR(Flush(context));
    absl::StatusOr<CheckReport> report = CheckOpenTree(context, shared_, servers, options);
    // Not of a damaged tree: its leaves cannot all be gone through.
    if (large_ != nullptr && report.ok() && report->ok()) {
      PANDO_RETURN_IF_ERROR(large_->Check(context, options, &*report));
    }
    return report;
  }

  // What is acknowledged now is in the leaves (rule B4). Of shared trees it always is.
  absl::Status Flush(OperationContext& context) {
    return owned_ != nullptr ? owned_->Flush(context) : absl::OkStatus();
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
  // `thorough`: also what no memory server asks for.
  absl::Status Sweep(OperationContext& context, bool thorough, SweepResult* result) {
    const absl::Status nodes = SweepTree(context, shared_, thorough, result);
    if (large_ == nullptr) return nodes;
    const absl::Status cells = large_->Sweep(context, thorough, result);
    return nodes.ok() ? cells : nodes;
  }

 private:
  // Of other kinds than plain shared trees. Apart, so that those have all of their way inlined.
  absl::Status GetElsewhere(OperationContext& context, std::string_view key, std::string* value);
  absl::Status WriteElsewhere(OperationContext& context, const WriteOperation& operation,
                              std::string* answer);

  TreeContext shared_;
  std::unique_ptr<OwnedTree> owned_;
  std::unique_ptr<LargeValues> large_;
  bool is_plain_ = true;  // neither of them
};

}  // namespace pando
