#include "compute/index/erase_range.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "compute/index/absorb.h"
#include "compute/index/hold.h"
#include "compute/index/leaf_reader.h"
#include "compute/index/operations.h"
#include "compute/index/write_run.h"

namespace pando {
namespace {

// Attempts at leaves that are locked; then their keys are erased one leaf at a time.
constexpr int kAbsorbAttemptsMax = 4;
constexpr int64_t kAbsorbAgainChains = 8;

class RangeEraser {
 public:
  RangeEraser(OperationContext& context, TreeContext& tree, KeyRange range,
              std::vector<std::string>* keys)
      : context_(context), tree_(tree), range_(std::move(range)), keys_(keys) {}

  bool done() const { return range_.low >= range_.high; }
  const KeyCut& at() const { return range_.low; }
  uint64_t erased() const { return erased_; }

  // Not when done. A leaf or several.
  absl::Status Step();
  // What the last steps have left empty or underfull goes. Best effort. `last`: all of it.
  void Tidy(bool last);

 private:
  absl::Status StepByKeys();
  // Ascending, in runs. The first error; not all keys after it were tried.
  absl::Status EraseKeys(const std::vector<std::string>& keys);
  // From the leaf on that covers `key`. False: nothing was done.
  absl::StatusOr<bool> StepByLeaves(std::string_view key);
  // Empty leaves of one parent, after the first one, go into that; some at a time, unless `all`.
  void Gather(bool all);
  LeavesAfter Look(std::string_view key, const KeyCut& end);

  OperationContext& context_;
  TreeContext& tree_;
  KeyRange range_;                        // what is left
  std::vector<std::string>* const keys_;  // of the caller; may be null
  uint64_t erased_ = 0;
  // The low fence of the leaf that has absorbed those before the place; the next ones go into it,
  // too.
  std::optional<std::string> survivor_;
  // That of the first one that parents before have left, and that are still to be gathered.
  std::optional<std::string> first_;
};

LeavesAfter RangeEraser::Look(std::string_view key, const KeyCut& end) {
  LeavesAfter after = FindLeavesAfter(context_, tree_, key, end);
  if (!after.known && LeadTo(context_, tree_, key).ok()) {
    after = FindLeavesAfter(context_, tree_, key, end);
  }
  return after;
}

absl::Status RangeEraser::Step() {
  while (true) {
    const std::string key = survivor_.value_or(range_.low.key);
    if (Look(key, range_.high).inside > 0) {
      PANDO_ASSIGN_OR_RETURN(const bool stepped, StepByLeaves(key));
      if (stepped) return absl::OkStatus();
    }
    if (!survivor_.has_value()) return StepByKeys();
    Tidy(/*last=*/false);
  }
}

absl::StatusOr<bool> RangeEraser::StepByLeaves(std::string_view key) {
  for (int attempt = 0; attempt < kAbsorbAttemptsMax; ++attempt) {
    if (attempt > 0) context_.BackOff(kAbsorbAgainChains);
    if (context_.expired()) return context_.DeadlineError("erasing a range");
    PANDO_ASSIGN_OR_RETURN(Absorbed absorbed, AbsorbErased(context_, tree_, key, range_, keys_));
    if (absorbed.leaves > 0) {
      erased_ += absorbed.erased;
      range_.low = std::max(range_.low, absorbed.next);
      survivor_ = std::move(absorbed.low);
      return true;
    }
    if (!absorbed.is_busy) break;
  }
  return false;
}

absl::Status RangeEraser::StepByKeys() {
  LeafReader reader(&tree_);
  reader.Start(range_.low, range_.high, /*down=*/false);
  std::vector<std::string> keys;
  PANDO_RETURN_IF_ERROR(reader.Read(context_, /*leaves_max=*/1, [&keys](LeafEntry& entry) {
    keys.push_back(std::move(entry.key));
    return true;
  }));
  PANDO_RETURN_IF_ERROR(EraseKeys(keys));
  range_.low = reader.at();
  if (context_.underfull.has_value()) {
    const std::string low = *std::move(context_.underfull);
    context_.underfull.reset();
    (void)MergeUnderfull(context_, tree_, /*level=*/0, low);
  }
  return absl::OkStatus();
}

absl::Status RangeEraser::EraseKeys(const std::vector<std::string>& keys) {
  std::vector<WriteOperation> operations;
  std::vector<absl::Status> results(keys.size());
  std::vector<RunWrite> writes;
  operations.reserve(keys.size());
  writes.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    operations.push_back({.kind = WriteKind::kErase, .key = keys[i], .value = {}});
    writes.push_back({&operations[i], &results[i], nullptr});
  }
  absl::Status first;
  for (size_t next = 0; next < writes.size() && first.ok();) {
    const size_t end = next + WriteRun(context_, tree_, absl::MakeConstSpan(writes).subspan(next));
    for (; next < end; ++next) {
      if (results[next].ok()) {
        ++erased_;
        if (keys_ != nullptr) keys_->push_back(keys[next]);
      } else if (!absl::IsNotFound(results[next]) && first.ok()) {
        first = results[next];
      }
    }
  }
  return first;
}

void RangeEraser::Gather(bool all) {
  while (first_.has_value()) {
    const size_t inside = Look(*first_, range_.low).inside;
    if (inside == 0 || (!all && inside < kAbsorbedMax)) return;
    // Nothing is erased there any more.
    const auto absorbed = AbsorbErased(context_, tree_, *first_, {range_.low, range_.low});
    if (!absorbed.ok() || absorbed->leaves == 0) return;
  }
}

void RangeEraser::Tidy(bool last) {
  if (survivor_.has_value()) {
    const std::string low = *std::exchange(survivor_, std::nullopt);
    // The only leaf of its parent gets neighbours by a merge of the parents.
    LeavesAfter after = Look(low, range_.low);
    if (after.siblings == 0) {
      (void)MergeUnderfull(context_, tree_, /*level=*/1, low);
      after = Look(low, range_.low);
    }
    if (first_.has_value() && Look(*first_, range_.low).parent != after.parent) {
      Gather(/*all=*/true);
      first_.reset();
    }
    if (!first_.has_value()) first_ = low;
  }
  Gather(last);
  if (!last || !first_.has_value()) return;
  if (Look(*first_, range_.low).siblings == 0) {
    (void)MergeUnderfull(context_, tree_, /*level=*/1, *first_);
  }
  if (Look(*first_, range_.low).siblings > 0) {
    (void)MergeUnderfull(context_, tree_, /*level=*/0, *first_);
  }
}

}  // namespace

absl::Status EraseRangeOfTree(OperationContext& context, TreeContext& tree, const KeyRange& range,
                              NoteErased note, ErasedKeys* keys) {
  RangeEraser eraser(context, tree, range, keys != nullptr ? &keys->sure : nullptr);
  absl::Status status;
  while (status.ok() && !eraser.done()) {
    status = context.expired() ? context.DeadlineError("erasing a range") : eraser.Step();
    const absl::Status told = note(eraser.erased(), eraser.at());
    if (status.ok()) status = told;
  }
  eraser.Tidy(/*last=*/true);
  return status;
}

}  // namespace pando
