#include "compute/index/absorb.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "compute/index/descend.h"
#include "compute/index/held_node.h"
#include "compute/index/hold.h"
#include "compute/index/lock_set.h"
#include "compute/index/read_node.h"
#include "compute/index/write_back.h"
#include "compute/index/write_run.h"

namespace pando {
namespace {

// The last chain has the survivor's line 0 and the releases of all nodes on its server.
static_assert(1 + kAbsorbedMax + 2 <= static_cast<size_t>(Chain::kMaxVerbs));

// A leaf that ends at this high fence ("": the tree does) has its keys below this cut.
KeyCut CutAfter(std::string_view high, const NodeLayout& layout) {
  return high.empty() ? KeyCut::Highest(layout.key_bytes_max()) : KeyCut{std::string(high), false};
}

// One parent, a leaf L of it and leaves R1 to Rk after that, all held.
class Absorption {
 public:
  Absorption(OperationContext& context, TreeContext& tree, std::string_view key,
             const KeyRange& range, std::vector<std::string>* keys)
      : context_(context),
        tree_(tree),
        key_(key),
        range_(range),
        keys_(keys),
        locks_(context, tree) {}

  // `parent` is held, inspected and read into `parent_image`. Everything is released afterwards.
  absl::StatusOr<Absorbed> Run(HeldLock parent, LocalBuffer parent_image);
  // A leaf that has to be looked after before anything can be done, and its low fence.
  const std::optional<std::pair<Reference, std::string>>& unsound() const { return unsound_; }

 private:
  struct Right {
    Reference node;
    BufferLease image;
    bool has_entries = false;
  };

  const NodeLayout& layout() const { return tree_.layout; }
  bool crc() const { return tree_.environment.crc; }
  size_t children() const { return parent_.entries.size() + 1; }
  const Reference& Child(size_t position) const {
    return position == 0 ? parent_.header.leftmost : parent_.entries[position - 1].child;
  }
  const std::string& Low(size_t position) const {
    return position == 0 ? parent_.header.low : parent_.entries[position - 1].key;
  }
  const std::string& High(size_t position) const {
    return position + 1 == children() ? parent_.header.high : parent_.entries[position].key;
  }

  // Rule M1. Nothing was written where `rights_` is empty afterwards.
  absl::Status Take();
  absl::StatusOr<bool> TakeLeft();
  absl::StatusOr<bool> TakeRight(size_t position);
  // M2 to M5. An error: a WRITE may have been made.
  absl::Status Write();
  absl::Status WriteErased();
  absl::Status WriteParent();
  absl::Status WriteSurvivor();
  absl::Status WriteDead();
  // M6, and the releases.
  absl::Status Finish();

  OperationContext& context_;
  TreeContext& tree_;
  const std::string_view key_;
  const KeyRange& range_;
  std::vector<std::string>* const keys_;  // of the caller; may be null
  LockSet locks_;
  Reference parent_reference_, left_;
  LocalBuffer parent_image_;
  InternalNode parent_;
  size_t position_ = 0;  // of L
  BufferLease left_image_;
  std::vector<std::string> left_erased_;
  std::vector<Right> rights_;
  std::vector<LeafEntry> entries_;
  uint64_t right_erased_ = 0;
  std::vector<std::string> right_keys_;  // where the caller asks for them
  bool is_busy_ = false;
  std::optional<std::pair<Reference, std::string>> unsound_;
};

absl::StatusOr<bool> Absorption::TakeLeft() {
  while (position_ + 1 < children() && Low(position_ + 1) <= key_) ++position_;
  left_ = Child(position_);
  PANDO_ASSIGN_OR_RETURN(left_image_, context_.session.buffers().Lease(layout().node_bytes()));
  if (!locks_.Knows(left_)) {
    unsound_.emplace(left_, Low(position_));
    return false;
  }
  PANDO_ASSIGN_OR_RETURN(const bool held, locks_.TryAdd(left_, left_image_.buffer()));
  is_busy_ = !held;
  if (!held) return false;
  const NodeVerdict verdict =
      Classify(left_image_.data(), layout(), Expect(tree_, left_, 0, key_), crc());
  // A leaf that ends below the key has a neighbour that the parent does not know.
  if (verdict == NodeVerdict::kMovedRight) return false;
  if (verdict != NodeVerdict::kAccepted || IsMarked(left_image_.data()) ||
      !ReadLeafEntries(left_image_.data(), layout(), &entries_)) {
    unsound_.emplace(left_, Low(position_));
    return false;
  }
  for (LeafEntry& entry : entries_) {
    if (range_.low.IsAbove(entry.key) || !range_.high.IsAbove(entry.key)) continue;
    left_erased_.push_back(std::move(entry.key));
  }
  return true;
}

absl::StatusOr<bool> Absorption::TakeRight(size_t position) {
  const std::byte* const before =
      rights_.empty() ? left_image_.data() : rights_.back().image.data();
  Right right{.node = Child(position), .image = {}};
  PANDO_ASSIGN_OR_RETURN(right.image, context_.session.buffers().Lease(layout().node_bytes()));
  if (!locks_.Knows(right.node)) {
    unsound_.emplace(right.node, Low(position));
    return false;
  }
  PANDO_ASSIGN_OR_RETURN(const bool held, locks_.TryAdd(right.node, right.image.buffer()));
  if (!held) {
    is_busy_ = rights_.empty();
    return false;
  }
  const std::byte* const image = right.image.data();
  FenceScratch low_scratch, high_scratch;
  const bool sound = Classify(image, layout(), Expect(tree_, right.node, 0, Low(position)),
                              crc()) == NodeVerdict::kAccepted &&
                     !IsMarked(image) && ReadLeafEntries(image, layout(), &entries_);
  const bool fits =
      sound && RightOf(before) == right.node &&
      HighFence(before, layout(), &high_scratch) == LowFence(image, layout(), &low_scratch) &&
      ReserveOf(before) == ReserveOf(image) &&
      (entries_.empty() || !range_.low.IsAbove(LowFence(image, layout(), &low_scratch))) &&
      CutAfter(HighFence(image, layout(), &high_scratch), layout()) <= range_.high;
  if (!fits) {
    if (!sound) unsound_.emplace(right.node, Low(position));
    PANDO_RETURN_IF_ERROR(locks_.ReleaseLast());
    return false;
  }
  right.has_entries = !entries_.empty();
  right_erased_ += entries_.size();
  for (size_t i = 0; keys_ != nullptr && i < entries_.size(); ++i) {
    right_keys_.push_back(std::move(entries_[i].key));
  }
  rights_.push_back(std::move(right));
  return true;
}

absl::Status Absorption::Take() {
  PANDO_RETURN_IF_ERROR(DecodeInternal(parent_image_.data, layout(), &parent_));
  PANDO_ASSIGN_OR_RETURN(bool more, TakeLeft());
  for (size_t at = position_ + 1; more && at < children() && rights_.size() < kAbsorbedMax; ++at) {
    if (CutAfter(High(at), layout()) > range_.high) break;
    PANDO_ASSIGN_OR_RETURN(more, TakeRight(at));
  }
  return absl::OkStatus();
}

// M2: a reader of one of them finds nothing there from now on.
absl::Status Absorption::WriteErased() {
  std::vector<std::unique_ptr<WriteBack>> writes;
  std::vector<WriteBack*> all;
  for (Right& right : rights_) {
    const RemoteAddress at = right.node.address;
    WriteBack* to = nullptr;
    for (WriteBack* const one : all) {
      if (one->server() == at.server()) to = one;
    }
    if (to == nullptr) {
      writes.push_back(std::make_unique<WriteBack>(context_, tree_, at.server()));
      all.push_back(to = writes.back().get());
    }
    const LocalBuffer image = right.image.buffer();
    SetMarker(image.data, NodeState::kMerging, left_);
    // The marker says that all keys of the leaf are erased, so its line 0 comes after the cleared
    // slots.
    if (right.has_entries) {
      ClearBody(image.data, layout());
      SealNodeLevel(image.data, image.data, layout(), crc());
      PANDO_RETURN_IF_ERROR(to->AddNodeHeaderLast(at, image));
    } else {
      SealEntryLevel(image.data, 0, 1, crc());
      PANDO_RETURN_IF_ERROR(to->AddRaw(at, image.Slice(0, kLineBytes)));
    }
  }
  return WriteBack::FlushAll(context_, all);
}

absl::Status Absorption::WriteParent() {
  const auto first = parent_.entries.begin() + static_cast<ptrdiff_t>(position_);
  parent_.entries.erase(first, first + static_cast<ptrdiff_t>(rights_.size()));
  EncodeInternal(parent_, layout(), parent_image_.data, crc(), parent_image_.data);
  WriteBack writes(context_, tree_, parent_reference_.address.server());
  PANDO_RETURN_IF_ERROR(writes.AddNodeHeaderFirst(parent_reference_.address, parent_image_));
  return writes.Flush();
}

absl::Status Absorption::WriteSurvivor() {
  const LocalBuffer image = left_image_.buffer();
  const std::byte* const last = rights_.back().image.data();
  LeafEditor editor(image.data, layout(), crc());
  for (const std::string& key : left_erased_) PANDO_CHECK(editor.Erase(key));
  (void)editor.SealDirty(tree_.entry.shape.packet_bytes);
  FenceScratch scratch;
  SetRight(image.data, RightOf(last));
  SetHigh(image.data, layout(), HighFence(last, layout(), &scratch));
  SetMarker(image.data, NodeState::kLive, rights_.front().node);
  SealNodeLevel(image.data, image.data, layout(), crc());
  WriteBack writes(context_, tree_, left_.address.server());
  // Line 0 last: it raises `high` over the keys of the absorbed leaves, and so commits (rule M4).
  PANDO_RETURN_IF_ERROR(writes.AddNodeHeaderLast(left_.address, image));
  return writes.Flush();
}

// M5, from the last to the first.
absl::Status Absorption::WriteDead() {
  std::optional<WriteBack> writes;
  for (size_t i = rights_.size(); i-- > 0;) {
    const RemoteAddress at = rights_[i].node.address;
    const LocalBuffer image = rights_[i].image.buffer();
    if (!writes.has_value() || writes->server() != at.server()) {
      // Chains to two servers have no order: a leaf further right is dead before the one that leads
      // to it.
      if (writes.has_value()) PANDO_RETURN_IF_ERROR(writes->Flush());
      writes.emplace(context_, tree_, at.server());
    }
    SetMarker(image.data, NodeState::kDead, Reference{});
    SealEntryLevel(image.data, 0, 1, crc());
    PANDO_RETURN_IF_ERROR(writes->AddRaw(at, image.Slice(0, kLineBytes)));
  }
  return writes->Flush();
}

// Each step is complete before the next begins, as in a merge of two (merge.cpp): the markers keep
// out separators and updates; the parent forgets the leaves before they die, so that it never leads
// to a dead one; they die before the survivor's marker goes (rules M2 to M6).
absl::Status Absorption::Write() {
  PANDO_RETURN_IF_ERROR(WriteErased());
  PANDO_RETURN_IF_ERROR(WriteParent());
  PANDO_RETURN_IF_ERROR(WriteSurvivor());
  return WriteDead();
}

absl::Status Absorption::Finish() {
  const LocalBuffer image = left_image_.buffer();
  SetMarker(image.data, NodeState::kLive, Reference{});
  SealEntryLevel(image.data, 0, 1, crc());
  ChainLease chain(&context_.session.buffers());
  chain->Reset(left_.address.server());
  chain->Write(MemorySpace::kMain, left_.address.offset(), image.Slice(0, kLineBytes));
  return locks_.ReleaseTogether(chain.get());
}

absl::StatusOr<Absorbed> Absorption::Run(HeldLock parent, LocalBuffer parent_image) {
  parent_reference_ = parent.target().node;
  parent_image_ = parent_image;
  locks_.Adopt(std::move(parent));
  const absl::Status taken = Take();
  if (!taken.ok() || rights_.empty()) {
    const absl::Status released = locks_.ReleaseAll();
    PANDO_RETURN_IF_ERROR(taken);
    PANDO_RETURN_IF_ERROR(released);
    return Absorbed{.is_busy = is_busy_ || unsound_.has_value()};
  }
  const absl::Status written = Write();
  if (!written.ok()) {
    // What was written may have taken nodes out, and nobody else knows (rule C5).
    tree_.environment.allocator.NoteUncertain(tree_.id());
    (void)locks_.ReleaseAll();
    return WriteBackFailed(written);
  }
  const absl::Status finished = Finish();
  for (const Right& right : rights_) tree_.environment.allocator.Free(tree_.id(), right.node);
  if (!finished.ok()) {
    tree_.environment.allocator.NoteUncertain(tree_.id());
    return WriteBackFailed(finished);
  }
  context_.session.counters().merges.Add(rights_.size());
  tree_.environment.cache.Insert(tree_.id(), parent_reference_, parent_);
  const uint64_t erased = right_erased_ + left_erased_.size();
  if (keys_ != nullptr) {
    std::move(left_erased_.begin(), left_erased_.end(), std::back_inserter(*keys_));
    std::move(right_keys_.begin(), right_keys_.end(), std::back_inserter(*keys_));
  }
  FenceScratch scratch;
  return Absorbed{.leaves = rights_.size(),
                  .erased = erased,
                  .next = CutAfter(HighFence(left_image_.data(), layout(), &scratch), layout()),
                  .low = std::string(LowFence(left_image_.data(), layout(), &scratch))};
}

}  // namespace

LeavesAfter FindLeavesAfter(OperationContext& context, const TreeContext& tree,
                            std::string_view key, const KeyCut& end) {
  const EpochDomain::Guard guard(tree.environment.cache.epochs(), context.session.epoch_slot());
  const SearchKey search_key(key);
  const CachedNode* const parent = FindParentOfLeaf(tree, search_key);
  if (parent == nullptr) {
    Reference root;
    return {.known = tree.root.Load(&root) == 0};
  }
  LeavesAfter after{.known = true, .parent = parent->self(), .siblings = parent->child_count() - 1};
  for (uint32_t at = parent->ChildIndex(search_key) + 1; at < parent->child_count(); ++at) {
    const std::string high =
        at + 1 == parent->child_count() ? std::string(parent->high()) : parent->ChildLow(at + 1);
    if (CutAfter(high, tree.layout) > end || after.inside == kAbsorbedMax) break;
    ++after.inside;
  }
  return after;
}

absl::StatusOr<Absorbed> AbsorbErased(OperationContext& context, TreeContext& tree,
                                      std::string_view key, const KeyRange& range,
                                      std::vector<std::string>* keys) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  Descent descent(context, tree, key, /*level=*/1);
  HeldNode parent(context, tree, image.buffer());
  const absl::StatusOr<HeldNode::Attempt> held = parent.Hold(descent);
  if (!held.ok() && descent.above_root()) return Absorbed{};  // the only leaf
  PANDO_RETURN_IF_ERROR(held.status());
  if (*held != HeldNode::Attempt::kHeld) return Absorbed{.is_busy = true};
  Absorption absorption(context, tree, key, range, keys);
  absl::StatusOr<Absorbed> absorbed = absorption.Run(parent.TakeLock(), image.buffer());
  if (absorbed.ok() && absorbed->leaves == 0 && absorption.unsound().has_value()) {
    const auto& [node, low] = *absorption.unsound();
    PANDO_RETURN_IF_ERROR(LockAndRepair(context, tree, node, 0, low));
  }
  if (absorbed.ok() && absorbed->leaves > 0) {
    tree.environment.allocator.FlushIfMany(context, tree.id());
  }
  return absorbed;
}

}  // namespace pando
