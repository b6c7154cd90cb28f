#include "compute/index/leaf_write.h"

#include <algorithm>
#include <cstring>
#include <iterator>
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

namespace {

// Rule U6: so many operations of one run, and so many new siblings of one leaf.
constexpr size_t kRunMax = 512;
constexpr size_t kSiblingsMax = 8;

}  // namespace

size_t LeafWrite::Execute(HeldLock&& lock, absl::Span<const RunWrite> writes, int slot) {
  LeafBatch batch(image_.data, tree_.layout, tree_.environment.crc);
  const RunWrite& first = writes.front();
  batch.Note(first.operation->key, slot);
  while (!batch.Apply(*first.operation, first.result, first.answer)) [[unlikely]] {
      if (!AddSibling(lock, batch)) return GiveUp(std::move(lock), first);
    }
  const size_t applied = writes.size() == 1 ? 1 : ApplyFollowing(lock, writes, batch);
  // Mostly nobody waits, and that is asked before anything is made for those who do.
  if (lock.local() != nullptr && lock.local()->HasWaiters()) [[unlikely]]
    Combine(lock, batch);
  LocalLock* const local = lock.local();
  const bool image_is_older = lock.image_is_older();
  absl::Status written;
  const bool has_siblings = division_ != nullptr && !division_->siblings.empty();
  const bool done = has_siblings
                        ? Divide(std::move(lock), batch, writes.first(applied), &written)
                        : WriteBackLeaf(std::move(lock), batch, writes.first(applied), &written);
  if (done) return applied;
  FinishCombined(local, written);
  if (!written.ok()) [[unlikely]] {
    // Also refusals: they may follow from what the batch did before them; that of one by itself
    // does not.
    const bool alone = applied == 1 && !image_is_older;
    for (const RunWrite& write : writes.first(applied)) {
      if (write.result->ok() || !alone) *write.result = written;
    }
  }
  // The operations are done; separators that cannot be inserted now are inserted by the next
  // operations that miss them.
  if (division_ != nullptr && !division_->separators.empty()) [[unlikely]] {
    std::vector<MissingSeparator>& missing = division_->separators;
    if (later_ != nullptr) {
      std::move(missing.begin(), missing.end(), std::back_inserter(*later_));
    } else {
      (void)InsertSeparators(context_, tree_, &missing);
      if (!missing.empty()) context_.missing = std::move(missing.front());
    }
  }
  return applied;
}

void LeafWrite::ExecuteInWindow(HeldLock&& lock, const RunWrite& write, int slot) {
  LeafBatch batch(image_.data, tree_.layout, tree_.environment.crc);
  batch.NoteInWindow(write.operation->key, slot);
  PANDO_CHECK(batch.Apply(*write.operation, write.result, write.answer));
  LeafEditor& editor = batch.CommitInWindow();
  // The next holder READs the leaf: the image is not one.
  if (!editor.dirty()) {
    // Whatever becomes of the release: the image was READ for this operation (rule V5).
    (void)hocl().ReleaseUnchanged(context_, std::move(lock), nullptr);
    return;
  }
  const absl::Status written = WriteEntries(std::move(lock), editor, nullptr);
  if (!written.ok()) *write.result = WriteBackFailed(written);
}

inline bool LeafWrite::WriteBackLeaf(HeldLock&& lock, LeafBatch& batch,
                                     absl::Span<const RunWrite> applied, absl::Status* written) {
  LeafEditor& editor = batch.Commit();
  if (batch.erased()) NoteUnderfull(batch, editor);
  LocalLock* const local = lock.local();
  if (editor.dirty()) [[likely]] {
    if (!RuleHolds(Rule::kL5)) FinishCombined(local, absl::OkStatus());
    *written = WriteEntries(std::move(lock), editor, image_.data);
    if (!written->ok()) [[unlikely]]
      *written = WriteBackFailed(*written);
    return false;
  }
  const bool image_is_older = lock.image_is_older();
  lock.AnswerFromImage();
  const absl::Status released = hocl().ReleaseUnchanged(context_, std::move(lock), image_.data);
  FinishCombined(local, released);
  // Nothing was written: what an image says that was READ for this operation stands all the same.
  if (image_is_older && !released.ok() && RuleHolds(Rule::kV5)) {
    for (const RunWrite& write : applied) *write.result = released;
  }
  return true;
}

bool LeafWrite::Divide(HeldLock&& lock, LeafBatch& batch, absl::Span<const RunWrite> applied,
                       absl::Status* written) {
  std::vector<LeafEntry> sorted;
  bool ascending = false;
  if (!batch.ReadFinal(&sorted, &ascending)) {
    const Reference node = lock.target().node;
    division_->status = absl::DataLossError(absl::StrCat("leaf ", node.address.offset(),
                                                         " of server ", node.address.server(),
                                                         " is full, but not of different keys"));
    FinishCombined(lock.local(), division_->status);
    (void)GiveUp(std::move(lock), applied.front());
    for (const RunWrite& write : applied) *write.result = division_->status;
    return true;
  }
  if (sorted.size() > tree_.layout.entries_max()) {
    *written = Split(std::move(lock), batch, sorted, ascending);
    return false;
  }
  PutBackSiblings();
  return WriteBackLeaf(std::move(lock), batch, applied, written);
}

size_t LeafWrite::ApplyFollowing(const HeldLock& lock, absl::Span<const RunWrite> writes,
                                 LeafBatch& batch) {
  FenceScratch scratch;
  const std::string_view high = HighFence(image_.data, tree_.layout, &scratch);
  size_t applied = 1;
  for (; applied < std::min(writes.size(), kRunMax); ++applied) {
    const RunWrite& write = writes[applied];
    const bool covered = high.empty() || write.operation->key < high;
    if (!covered && RuleHolds(Rule::kU6)) break;
    while (!batch.Apply(*write.operation, write.result, write.answer)) {
      if (!AddSibling(lock, batch)) return applied;
    }
  }
  return applied;
}

bool LeafWrite::AddSibling(const HeldLock& lock, LeafBatch& batch) {
  if (division_ == nullptr) division_ = std::make_unique<Division>();
  std::vector<NewNode>& siblings = division_->siblings;
  if (siblings.size() == kSiblingsMax) return false;
  NodeAllocator& allocator = tree_.environment.allocator;
  std::optional<SpareNode> spare = allocator.TryTake(tree_.id(), lock.target().server);
  if (!spare.has_value()) return false;
  absl::StatusOr<BufferLease> image = context_.session.buffers().Lease(tree_.layout.node_bytes());
  if (!image.ok()) {
    allocator.PutBack(tree_.id(), *std::move(spare));
    division_->status = image.status();
    return false;
  }
  const uint32_t slots = tree_.layout.entries_max(), each = EntriesWhenCut(slots);
  batch.AddRoom(siblings.empty() ? 2 * each - slots : each);
  siblings.push_back({*std::move(spare), *std::move(image)});
  return true;
}

void LeafWrite::PutBackSiblings() {
  for (NewNode& sibling : division_->siblings) {
    tree_.environment.allocator.PutBack(tree_.id(), std::move(sibling.spare));
  }
  division_->siblings.clear();
}

size_t LeafWrite::GiveUp(HeldLock&& lock, const RunWrite& first) {
  PutBackSiblings();
  (void)hocl().ReleaseUnchanged(context_, std::move(lock), image_.data);
  if (division_->status.ok()) return 0;
  *first.result = division_->status;
  return 1;
}

void LeafWrite::NoteUnderfull(const LeafBatch& batch, const LeafEditor& editor) {
  const uint32_t used = editor.used_slots();
  if (!IsMergeDue(batch.EntriesBefore(used), used, tree_.layout)) return;
  FenceScratch scratch;
  context_.underfull = std::string(LowFence(image_.data, tree_.layout, &scratch));
}

void LeafWrite::Combine(HeldLock& lock, LeafBatch& batch) {
  const auto max = static_cast<size_t>(tree_.environment.combine_max - 1);
  std::vector<LockRequestPtr> waiting = hocl().TakeCombinable(lock, tree_.id(), max);
  if (waiting.empty()) return;
  lock.local()->NoteCrowd();
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

absl::Status LeafWrite::WriteEntries(HeldLock&& lock, LeafEditor& editor, const std::byte* image) {
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
    editor.ClearErased();
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
  return writes.Release(std::move(lock), image);
}

absl::Status LeafWrite::Split(HeldLock lock, LeafBatch& batch, const std::vector<LeafEntry>& sorted,
                              bool ascending) {
  const bool crc = tree_.environment.crc;
  const NodeLayout& layout = tree_.layout;
  const std::vector<size_t> cuts = ChooseCuts(sorted, layout.entries_max(), ascending);
  std::vector<NewNode>& taken = division_->siblings;
  std::vector<MissingSeparator>& separators = division_->separators;
  PANDO_CHECK_LE(cuts.size(), taken.size()) << "a leaf batch was over-committed";
  std::vector<NewNode> siblings;
  for (size_t i = 0; i < cuts.size(); ++i) siblings.push_back(std::move(taken[i]));
  taken.erase(taken.begin(), taken.begin() + static_cast<ptrdiff_t>(cuts.size()));
  PutBackSiblings();
  for (size_t i = 0; i < cuts.size(); ++i) {
    separators.push_back({1, ShortestSeparator(sorted[cuts[i] - 1].key, sorted[cuts[i]].key),
                          siblings[i].spare.reference()});
  }
  NodeHeader header = ReadHeader(image_.data, layout);
  const Reference last_right = header.right;
  const std::string last_high = header.high;
  for (size_t i = 0; i < cuts.size(); ++i) {
    const bool is_last = i + 1 == cuts.size();
    header.life = siblings[i].spare.life;
    header.low = separators[i].separator;
    header.high = is_last ? last_high : separators[i + 1].separator;
    header.right = is_last ? last_right : siblings[i + 1].spare.reference();
    std::byte* const image = siblings[i].image.data();
    std::memset(image, 0, layout.node_bytes());
    WriteHeader(image, layout, header);
    const size_t end = is_last ? sorted.size() : cuts[i + 1];
    FillLeaf(image, layout, absl::MakeConstSpan(sorted).subspan(cuts[i], end - cuts[i]));
    SealNodeLevel(image, siblings[i].spare.OldImage(image), layout, crc);
  }
  batch.CommitBelow(separators.front().separator, separators.front().child);
  // Where one packet has all lines but the first they are of one write, even if the writer dies:
  // keys that stay may move to their windows.
  const bool one_packet = (layout.lines() - 1) * kLineBytes <= tree_.entry.shape.packet_bytes;
  const bool moves = layout.window_groups() > 0 && (one_packet || !RuleHolds(Rule::kN5));
  if (moves || !RuleHolds(Rule::kS5)) {  // the variant puts what stays where it likes
    FillLeaf(image_.data, layout, absl::MakeConstSpan(sorted).first(cuts.front()));
  }
  if (RuleHolds(Rule::kS2)) {
    SealNodeLevel(image_.data, image_.data, layout, crc);
  } else {
    for (uint32_t line = 0; line < layout.lines(); ++line) {
      SealEntryLevel(image_.data, line, 1, crc);
    }
  }
  context_.session.counters().splits.Add(cuts.size());
  if (!RuleHolds(Rule::kL2)) {  // the variant waits for the parent's lock under the leaf's
    const RemoteAddress sibling = siblings.front().spare.address;
    WriteBack writes(context_, tree_, sibling.server());
    PANDO_RETURN_IF_ERROR(writes.AddNode(sibling, siblings.front().image.buffer()));
    PANDO_RETURN_IF_ERROR(writes.Flush());
    std::vector<MissingSeparator> early = separators;
    (void)InsertSeparators(context_, tree_, &early);
  }
  const absl::Status split =
      WriteSplit(context_, tree_, std::move(lock), std::move(siblings), image_);
  if (!split.ok()) separators.clear();
  return split;
}

}  // namespace pando
