// Slots of a tree that are read and written at the owners of their keys, not in its leaves
// (compute/owner): what large values need of an owned tree.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compute/core/session_context.h"
#include "compute/index/key_range.h"
#include "compute/index/leaf_reader.h"
#include "compute/index/operations.h"
#include "compute/index/write_operation.h"

namespace pando {

// Thread-safe; inside a coroutine of the context's session.
class OwnedSlots {
 public:
  virtual ~OwnedSlots() = default;

  // As in compute/index/operations.h, with what slots have as values.
  virtual absl::Status Get(OperationContext& context, std::string_view key,
                           std::string* stored) = 0;
  // The cell that the new value refers to, which this client has written, is no concern of the
  // caller any more, whatever the result (rules K6, K7). Nor is the one that is replaced.
  virtual absl::Status Write(OperationContext& context, const WriteOperation& operation,
                             std::string* answer) = 0;
  // Writes at the head of `writes`; how many have their results. Of those alone the cells are no
  // concern of the caller any more.
  virtual size_t WriteRun(OperationContext& context, absl::Span<const RunWrite> writes) = 0;
  // Up to where writes go to the same place; nothing: that is not known.
  virtual std::optional<std::string> NextBorder(std::string_view key) const = 0;
  // After any error but an unknown outcome no slot has anything of it.
  virtual absl::Status BulkLoad(OperationContext& context, NextEntry next) = 0;
  // As LeafReader::Read(), from `*at` on, which moves.
  virtual absl::Status ReadOn(OperationContext& context, KeyCut* at, const KeyCut& end, bool down,
                              size_t leaves_max, LeafReader::Take take) = 0;
};

// Slots in the order of their keys, wherever they are. As LeafReader. Not thread-safe.
class SlotReader {
 public:
  // `owned`: nullptr of a shared tree.
  SlotReader(TreeContext* tree, OwnedSlots* owned) : owned_(owned), leaves_(tree) {}

  void Start(KeyCut at, KeyCut end, bool down) {
    at_ = std::move(at);
    end_ = std::move(end);
    down_ = down;
    if (owned_ == nullptr) leaves_.Start(at_, end_, down_);
  }
  bool done() const { return down_ ? at_ <= end_ : at_ >= end_; }
  const KeyCut& at() const { return at_; }
  absl::Status Read(OperationContext& context, size_t leaves_max, LeafReader::Take take) {
    if (owned_ != nullptr) return owned_->ReadOn(context, &at_, end_, down_, leaves_max, take);
    absl::Status status = leaves_.Read(context, leaves_max, take);
    at_ = leaves_.at();
    return status;
  }

 private:
  OwnedSlots* const owned_;
  LeafReader leaves_;
  KeyCut at_, end_;
  bool down_ = false;
};

}  // namespace pando
