#include "compute/index/leaf_write.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/leaf.h"
#include "common/wire/node_image.h"
#include "compute/index/fill.h"
#include "compute/index/operations.h"
#include "compute/index/write_back.h"

namespace pando {

absl::Status LeafWrite::Execute(HeldLock&& lock, const WriteOperation& operation, int slot,
                                std::string* answer, bool* needs_node) {
  LeafBatch batch(image_.data, tree_.layout, tree_.environment.crc);
  batch.Note(operation.key, slot);
  absl::Status result;
  if (!batch.Apply(operation, &result, answer)) {
    absl::Status split = Split(std::move(lock), operation.key, batch.homeless(), needs_node);
    const bool says = operation.kind == WriteKind::kUpsert && split.ok() && !*needs_node;
    if (says && answer != nullptr) answer->assign(batch.homeless());
    return split;
  }
  // Mostly nobody waits, and that is asked before anything is made for those who do.
  if (lock.local() != nullptr && lock.local()->HasWaiters()) [[unlikely]]
    Combine(lock, batch);
  LeafEditor& editor = batch.Commit();
  if (batch.erased()) NoteUnderfull(editor);
  LocalLock* const local = lock.local();
  const bool image_is_older = lock.image_is_older();
  if (!editor.dirty()) {
    lock.AnswerFromImage();
    const absl::Status released = hocl().ReleaseUnchanged(context_, std::move(lock), image_.data);
    FinishCombined(local, released);
    // Nothing was written: what an image says that was READ for this operation stands all the same.
    return image_is_older && !released.ok() && RuleHolds(Rule::kV5) ? released : result;
  }
  if (!RuleHolds(Rule::kL5)) FinishCombined(local, absl::OkStatus());
  const absl::Status written = WriteEntries(std::move(lock), editor);
  if (written.ok()) {
    FinishCombined(local, written);
    return result;
  }
  FinishCombined(local, WriteBackFailed(written));
  if (result.ok()) return WriteBackFailed(written);
  return image_is_older ? written : result;
}

void LeafWrite::NoteUnderfull(const LeafEditor& editor) {
  if (!IsMergeDue(editor.used_slots(), tree_.layout)) return;
  FenceScratch scratch;
  context_.underfull = std::string(LowFence(image_.data, tree_.layout, &scratch));
}

void LeafWrite::Combine(HeldLock& lock, LeafBatch& batch) {
  const auto max = static_cast<size_t>(tree_.environment.combine_max - 1);
  std::vector<LockRequestPtr> waiting = hocl().TakeCombinable(lock, tree_.id(), max);
  if (waiting.empty()) return;
  FenceScratch low_scratch, high_scratch;
  const std::string_view low = LowFence(image_.data, tree_.layout, &low_scratch);
  const std::string_view high = HighFence(image_.data, tree_.layout, &high_scratch);
  std::vector<LockRequestPtr> rest;
  for (LockRequestPtr& request : waiting) {
    auto& write = static_cast<WriteRequest&>(*request);
    const WriteOperation operation = write.operation();
    const std::string_view key = operation.key;
    absl::Status result;
    if (key >= low && (high.empty() || key < high) &&
        batch.Apply(operation, &result, &write.answer)) {
      combined_.push_back(std::move(request));
      results_.push_back(std::move(result));
    } else {
      rest.push_back(std::move(request));
    }
  }
  hocl().PutBack(lock, rest);
}

void LeafWrite::FinishCombined(LocalLock* local, const absl::Status& outcome) {
  if (combined_.empty()) [[likely]]
    return;
  if (!outcome.ok()) {
    // Also refusals: they may follow from what the batch did before them.
    for (absl::Status& result : results_) result = outcome;
  }
  hocl().Finish(context_, local, combined_, results_);
  combined_.clear();
  results_.clear();
}

absl::Status LeafWrite::WriteEntries(HeldLock&& lock, LeafEditor& editor) {
  const RemoteAddress node = lock.target().node.address;
  const uint32_t packet_bytes = tree_.entry.shape.packet_bytes;
  WriteBack writes(context_, tree_, node.server());
  absl::Status status;
  LineRuns runs;
  if (tree_.environment.techniques.two_level_versions) runs = editor.SealDirty(packet_bytes);
  if (!RuleHolds(Rule::kU3) && runs.size() > 1) runs.pop_back();
  // One verb is for the release. More scattered lines than that are cheaper as the whole node.
  if (!runs.empty() && runs.size() < static_cast<size_t>(Chain::kMaxVerbs)) {
    status = writes.Add(runs, node, image_);
  } else {
    SealNodeLevel(image_.data, image_.data, tree_.layout, tree_.environment.crc);
    status = writes.AddNode(node, image_);
  }
  if (!RuleHolds(Rule::kL4)) {  // the variant lets others in before the write
    ChainLease early(&context_.session.buffers());
    early->Reset(node.server());
    PANDO_CHECK_OK(hocl().AppendRelease(context_, lock, early.get()));
    (void)context_.Await(early.get());
  }
  if (!status.ok()) {
    hocl().LeaveToFencing(context_, std::move(lock), status);
    return status;
  }
  return writes.Release(std::move(lock), image_.data);
}

absl::Status LeafWrite::Split(HeldLock lock, std::string_view key, std::string_view value,
                              bool* needs_node) {
  const bool crc = tree_.environment.crc;
  const NodeLayout& layout = tree_.layout;
  LeafEditor editor(image_.data, layout, crc);
  std::optional<std::string> chosen = editor.ChooseSeparator(key);
  if (!chosen.has_value()) {
    const RemoteAddress node = lock.target().node.address;
    (void)hocl().ReleaseUnchanged(context_, std::move(lock), image_.data);
    return absl::DataLossError(absl::StrCat("leaf ", node.offset(), " of server ", node.server(),
                                            " is full, but not of different keys"));
  }
  const std::string separator = *std::move(chosen);
  std::optional<SpareNode> spare =
      tree_.environment.allocator.TryTake(tree_.id(), lock.target().server);
  if (!spare.has_value()) {
    *needs_node = true;
    return hocl().ReleaseUnchanged(context_, std::move(lock), image_.data);
  }
  absl::StatusOr<BufferLease> sibling_lease = context_.session.buffers().Lease(layout.node_bytes());
  if (!sibling_lease.ok()) {
    tree_.environment.allocator.PutBack(tree_.id(), *std::move(spare));
    (void)hocl().ReleaseUnchanged(context_, std::move(lock), image_.data);
    return sibling_lease.status();
  }
  const LocalBuffer sibling_image = sibling_lease->buffer();
  std::memset(sibling_image.data, 0, layout.node_bytes());

  LeafEditor sibling_editor(sibling_image.data, layout, crc);
  NodeHeader header = ReadHeader(image_.data, layout);
  header.low = separator;
  header.life = spare->life;
  const Reference sibling = spare->reference();
  WriteHeader(sibling_image.data, layout, header);
  editor.MoveTo(separator, &sibling_editor);
  SetHigh(image_.data, layout, separator);
  SetRight(image_.data, sibling);
  const bool fits = (key < separator ? editor : sibling_editor).Put(key, value);
  PANDO_CHECK(fits) << "a split made no room";
  SealNodeLevel(sibling_image.data, spare->OldImage(sibling_image.data), layout, crc);
  if (RuleHolds(Rule::kS2)) {
    SealNodeLevel(image_.data, image_.data, layout, crc);
  } else {
    for (uint32_t line = 0; line < layout.lines(); ++line) {
      SealEntryLevel(image_.data, line, 1, crc);
    }
  }
  context_.session.counters().splits.Add();
  MissingSeparator missing{1, separator, sibling};
  if (!RuleHolds(Rule::kL2)) {  // the variant waits for the parent's lock under the leaf's
    WriteBack writes(context_, tree_, sibling.address.server());
    PANDO_RETURN_IF_ERROR(writes.AddNode(sibling.address, sibling_image));
    PANDO_RETURN_IF_ERROR(writes.Flush());
    (void)InsertSeparator(context_, tree_, missing);
  }
  PANDO_RETURN_IF_ERROR(
      WriteSplit(context_, tree_, std::move(lock), sibling.address, sibling_image, image_));
  // The operation is done; a separator that cannot be inserted now is inserted by whoever misses
  // it.
  if (!InsertSeparator(context_, tree_, missing).ok()) context_.missing = std::move(missing);
  return absl::OkStatus();
}

}  // namespace pando
