// Rules M and R1: a node under 3/8 full is merged with a neighbour under the same parent where both
// fit in 3/4, or one is an empty leaf; a root with a single child goes.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "compute/index/descend.h"
#include "compute/index/fill.h"
#include "compute/index/held_node.h"
#include "compute/index/hold.h"
#include "compute/index/lock_set.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"
#include "compute/index/write_back.h"

namespace pando {
namespace {

// A merge that meets locks in use is tried again so often.
constexpr int kAttemptsMax = 8;
constexpr int64_t kMergeAgainChains = 8;

// Two neighbours and their parent, all held (rule M1).
struct Trio {
  Reference parent, left, right;
  uint8_t level = 0;  // of left and right
  LocalBuffer parent_image, left_image, right_image;
  InternalNode parent_node;
  size_t entry = 0;  // of `right` in the parent
  // Low fences, of inner nodes: of the last child of left and the first one of right.
  std::string seam_left, seam_right;
};

bool MayMerge(const TreeContext& tree, const Trio& trio) {
  const NodeLayout& layout = tree.layout;
  FenceScratch high_scratch, low_scratch;
  const bool adjacent = RightOf(trio.left_image.data) == trio.right &&
                        HighFence(trio.left_image.data, layout, &high_scratch) ==
                            LowFence(trio.right_image.data, layout, &low_scratch);
  if (!adjacent && RuleHolds(Rule::kM1)) return false;
  return ReserveOf(trio.left_image.data) == ReserveOf(trio.right_image.data) &&
         FitTogether(trio.left_image.data, trio.right_image.data, trio.level, layout);
}

// The survivor's image: everything of both, `absorbing` the right one (rule M4).
absl::Status BuildSurvivor(const TreeContext& tree, Trio& trio) {
  const NodeLayout& layout = tree.layout;
  const bool crc = tree.environment.crc;
  std::byte* const left = trio.left_image.data;
  const std::byte* const right = trio.right_image.data;
  FenceScratch scratch;
  if (trio.level > 0) {
    InternalNode survivor, absorbed;
    PANDO_RETURN_IF_ERROR(DecodeInternal(left, layout, &survivor));
    PANDO_RETURN_IF_ERROR(DecodeInternal(right, layout, &absorbed));
    trio.seam_left = survivor.entries.empty() ? survivor.header.low : survivor.entries.back().key;
    trio.seam_right = absorbed.header.low;
    survivor.entries.push_back({absorbed.header.low, absorbed.header.leftmost});
    for (Separator& entry : absorbed.entries) survivor.entries.push_back(std::move(entry));
    survivor.header.right = absorbed.header.right;
    survivor.header.high = absorbed.header.high;
    survivor.header.peer = trio.right;
    EncodeInternal(survivor, layout, left, crc, left);
    return absl::OkStatus();
  }
  LeafEditor editor(left, layout, crc);
  SetRight(left, RightOf(right));
  SetHigh(left, layout, HighFence(right, layout, &scratch));
  SetMarker(left, NodeState::kLive, trio.right);
  editor.Absorb(right);
  SealNodeLevel(left, left, layout, crc);
  return absl::OkStatus();
}

// M3: the parent without the right node.
absl::Status WriteParent(OperationContext& context, TreeContext& tree, Trio* trio) {
  InternalNode& parent = trio->parent_node;
  parent.entries.erase(parent.entries.begin() + static_cast<ptrdiff_t>(trio->entry));
  EncodeInternal(parent, tree.layout, trio->parent_image.data, tree.environment.crc,
                 trio->parent_image.data);
  WriteBack writes(context, tree, trio->parent.address.server());
  // Line 0 first, for repair to trust: it rebuilds the entries from the child level, and skips the
  // right node, which is marked by now (rules C4, M2).
  PANDO_RETURN_IF_ERROR(writes.AddNodeHeaderFirst(trio->parent.address, trio->parent_image));
  return writes.Flush();
}

// M2 to M6 but for the releases. An error: a WRITE may have been made.
absl::Status WriteMerge(OperationContext& context, TreeContext& tree, Trio* trio) {
  // The marker comes first: from here on no separator is inserted for the right node (rule S3), and
  // until M6 nobody updates either copy of its keys.
  if (RuleHolds(Rule::kM2)) {
    PANDO_RETURN_IF_ERROR(WriteMarker(context, tree, trio->right.address, trio->right_image,
                                      NodeState::kMerging, trio->left));
  }
  // Before the right node is dead, so that no separator leads to a dead node (rule M7).
  if (RuleHolds(Rule::kM3)) PANDO_RETURN_IF_ERROR(WriteParent(context, tree, trio));

  // Line 0 comes last: it is the commit. A death before it leaves the added entries outside
  // the survivor's fences, where repair drops them, and the right node becomes live again (rules
  // C4, M7).
  PANDO_RETURN_IF_ERROR(BuildSurvivor(tree, *trio));
  WriteBack commit(context, tree, trio->left.address.server());
  PANDO_RETURN_IF_ERROR(RuleHolds(Rule::kM4)
                            ? commit.AddNodeHeaderLast(trio->left.address, trio->left_image)
                            : commit.AddNodeHeaderFirst(trio->left.address, trio->left_image));
  PANDO_RETURN_IF_ERROR(commit.Flush());

  const auto clear_absorbing = [&] {
    return WriteMarker(context, tree, trio->left.address, trio->left_image, NodeState::kLive,
                       Reference{});
  };
  // The right node dies before the survivor's marker goes. In the other order the survivor could be
  // updated while a reader with an old parent still gets an old value from the right node (rule
  // M6).
  if (!RuleHolds(Rule::kM6)) PANDO_RETURN_IF_ERROR(clear_absorbing());
  if (RuleHolds(Rule::kM5)) {
    PANDO_RETURN_IF_ERROR(WriteMarker(context, tree, trio->right.address, trio->right_image,
                                      NodeState::kDead, Reference{}));
  }
  if (!RuleHolds(Rule::kM3)) PANDO_RETURN_IF_ERROR(WriteParent(context, tree, trio));
  return RuleHolds(Rule::kM6) ? clear_absorbing() : absl::OkStatus();
}

// The level's node that covers the key is to be looked at.
struct Look {
  uint8_t level = 0;
  std::string key;
};

// One attempt at merging the child of a held parent that covers the key.
class MergeAttempt {
 public:
  MergeAttempt(OperationContext& context, TreeContext& tree, std::string_view key, uint8_t level)
      : context_(context), tree_(tree), key_(key), level_(level), locks_(context, tree) {}

  enum class Outcome {
    kNothing,  // not underfull (any more), or no neighbour fits
    kMerged,
    kBusy,       // somebody holds a lock
    kUnsound,    // a node has to be looked after first: `unsound()`
    kChangedUp,  // the parent has no second child
    kNoParent,   // the tree ends at the node's level
  };
  // `parent` is held, inspected and read into `parent_image`. Everything is released afterwards.
  absl::StatusOr<Outcome> Run(HeldLock parent, LocalBuffer parent_image);

  const Reference& unsound() const { return unsound_; }
  const std::string& unsound_low() const { return unsound_low_; }
  // After kMerged and kChangedUp: what is to be looked at next is added, the first one last.
  void AddNext(Outcome outcome, uint8_t lowest_level, std::vector<Look>* looks) const;

 private:
  bool parent_due() const;
  // The child at `position` (0: leftmost), locked and read. kMerged: go on.
  absl::StatusOr<Outcome> Take(size_t position, LocalBuffer image);
  absl::StatusOr<Outcome> TryPair(size_t left, size_t right, LocalBuffer other);
  absl::StatusOr<Outcome> RunLocked();
  const Reference& Child(size_t position) const {
    const InternalNode& node = trio_.parent_node;
    return position == 0 ? node.header.leftmost : node.entries[position - 1].child;
  }
  const std::string& Low(size_t position) const {
    const InternalNode& node = trio_.parent_node;
    return position == 0 ? node.header.low : node.entries[position - 1].key;
  }

  OperationContext& context_;
  TreeContext& tree_;
  const std::string_view key_;
  const uint8_t level_;
  LockSet locks_;
  Trio trio_;
  LocalBuffer child_image_;
  size_t position_ = 0;  // of the underfull child
  Reference unsound_;
  std::string unsound_low_;
  bool parent_underfull_ = false;
};

bool MergeAttempt::parent_due() const {
  const InternalNode& parent = trio_.parent_node;
  const bool alone = parent.header.low.empty() && parent.header.high.empty();  // the root
  return alone ? parent.entries.empty() : parent_underfull_;
}

void MergeAttempt::AddNext(Outcome outcome, uint8_t lowest_level, std::vector<Look>* looks) const {
  const bool merged = outcome == Outcome::kMerged;
  if (outcome == Outcome::kChangedUp || (merged && parent_due())) {
    looks->push_back({static_cast<uint8_t>(level_ + 1), trio_.parent_node.header.low});
  }
  if (!merged || level_ <= lowest_level) return;
  // Two children have become neighbours under one parent: what found none that fits may now.
  const auto below = static_cast<uint8_t>(level_ - 1);
  looks->push_back({below, trio_.seam_left});
  looks->push_back({below, trio_.seam_right});
}

absl::StatusOr<MergeAttempt::Outcome> MergeAttempt::Take(size_t position, LocalBuffer image) {
  const Reference node = Child(position);
  const auto unsound = [&] {
    unsound_ = node;
    unsound_low_ = Low(position);
    return Outcome::kUnsound;
  };
  if (!locks_.Knows(node)) return unsound();
  PANDO_ASSIGN_OR_RETURN(const bool held, locks_.TryAdd(node, image));
  if (!held) return Outcome::kBusy;
  const NodeVerdict verdict = Classify(
      image.data, tree_.layout, Expect(tree_, node, level_, Low(position)), tree_.environment.crc);
  const bool sound = verdict == NodeVerdict::kAccepted && !IsMarked(image.data);
  return sound ? Outcome::kMerged : unsound();
}

absl::StatusOr<MergeAttempt::Outcome> MergeAttempt::TryPair(size_t left, size_t right,
                                                            LocalBuffer other) {
  PANDO_ASSIGN_OR_RETURN(const Outcome taken, Take(left == position_ ? right : left, other));
  if (taken != Outcome::kMerged) return taken;
  trio_.left = Child(left);
  trio_.right = Child(right);
  trio_.entry = right - 1;
  trio_.left_image = left == position_ ? child_image_ : other;
  trio_.right_image = left == position_ ? other : child_image_;
  if (MayMerge(tree_, trio_)) return Outcome::kMerged;
  PANDO_RETURN_IF_ERROR(locks_.ReleaseLast());
  return Outcome::kNothing;
}

absl::StatusOr<MergeAttempt::Outcome> MergeAttempt::RunLocked() {
  const InternalNode& parent = trio_.parent_node;
  if (parent.entries.empty()) return Outcome::kChangedUp;
  while (position_ < parent.entries.size() && parent.entries[position_].key <= key_) ++position_;
  PANDO_ASSIGN_OR_RETURN(const Outcome child, Take(position_, child_image_));
  if (child != Outcome::kMerged) return child;
  if (!IsUnderfull(child_image_.data, level_, tree_.layout)) return Outcome::kNothing;
  PANDO_ASSIGN_OR_RETURN(const BufferLease other,
                         context_.session.buffers().Lease(tree_.layout.node_bytes()));
  Outcome outcome = Outcome::kNothing;
  if (position_ < parent.entries.size()) {
    PANDO_ASSIGN_OR_RETURN(outcome, TryPair(position_, position_ + 1, other.buffer()));
  }
  if (outcome == Outcome::kNothing && position_ > 0) {
    PANDO_ASSIGN_OR_RETURN(outcome, TryPair(position_ - 1, position_, other.buffer()));
  }
  if (outcome != Outcome::kMerged) return outcome;
  const absl::Status written = WriteMerge(context_, tree_, &trio_);
  if (!written.ok()) {
    // What was written may have taken the right node out, and nobody else knows (rule C5).
    tree_.environment.allocator.NoteUncertain(tree_.id());
    (void)locks_.ReleaseAll();
    return written;
  }
  return Outcome::kMerged;
}

absl::StatusOr<MergeAttempt::Outcome> MergeAttempt::Run(HeldLock parent, LocalBuffer parent_image) {
  trio_.parent = parent.target().node;
  trio_.level = level_;
  trio_.parent_image = parent_image;
  locks_.Adopt(std::move(parent));
  absl::StatusOr<Outcome> outcome = Outcome::kNothing;
  const absl::Status decoded = DecodeInternal(parent_image.data, tree_.layout, &trio_.parent_node);
  absl::StatusOr<BufferLease> child = context_.session.buffers().Lease(tree_.layout.node_bytes());
  if (!decoded.ok()) {
    outcome = decoded;
  } else if (!child.ok()) {
    outcome = child.status();
  } else {
    child_image_ = child->buffer();
    outcome = RunLocked();
  }
  const absl::Status released = locks_.ReleaseAll();
  if (!outcome.ok() || *outcome != Outcome::kMerged) return outcome;
  tree_.environment.allocator.Free(tree_.id(), trio_.right);
  PANDO_RETURN_IF_ERROR(released);
  context_.session.counters().merges.Add();
  IndexCache& cache = tree_.environment.cache;
  cache.Insert(tree_.id(), trio_.parent, trio_.parent_node);
  if (level_ > 0) {
    cache.Invalidate(trio_.left);
    cache.Invalidate(trio_.right);
  }
  parent_underfull_ =
      IsUnderfull(parent_image.data, static_cast<uint8_t>(level_ + 1), tree_.layout);
  return outcome;
}

// Holds the parent of the node and makes one attempt.
absl::StatusOr<MergeAttempt::Outcome> MergeOnce(OperationContext& context, TreeContext& tree,
                                                const Look& look, uint8_t lowest_level,
                                                std::vector<Look>* next) {
  using Outcome = MergeAttempt::Outcome;
  const auto parent_level = static_cast<uint8_t>(look.level + 1);
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  Descent descent(context, tree, look.key, parent_level);
  HeldNode parent(context, tree, image.buffer());
  const absl::StatusOr<HeldNode::Attempt> held = parent.Hold(descent);
  if (!held.ok() && descent.above_root()) return Outcome::kNoParent;
  PANDO_RETURN_IF_ERROR(held.status());
  if (*held != HeldNode::Attempt::kHeld) return Outcome::kBusy;
  MergeAttempt attempt(context, tree, look.key, look.level);
  PANDO_ASSIGN_OR_RETURN(const Outcome outcome, attempt.Run(parent.TakeLock(), image.buffer()));
  if (outcome == Outcome::kUnsound) {
    PANDO_RETURN_IF_ERROR(
        LockAndRepair(context, tree, attempt.unsound(), look.level, attempt.unsound_low()));
    return Outcome::kBusy;
  }
  attempt.AddNext(outcome, lowest_level, next);
  return outcome;
}

// Aborted: locks were in use all the time.
absl::Status MergeAt(OperationContext& context, TreeContext& tree, const Look& look,
                     uint8_t lowest_level, std::vector<Look>* next) {
  using Outcome = MergeAttempt::Outcome;
  // Not until the deadline, which bounds the waits only: on a busy machine every back-off may cost
  // the processor for longer than that, and what the last erases leave nobody would merge.
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const absl::StatusOr<Outcome> outcome = MergeOnce(context, tree, look, lowest_level, next);
    PANDO_RETURN_IF_ERROR(outcome.status());
    if (*outcome == Outcome::kNoParent) return ShrinkRoot(context, tree, look.level);
    if (*outcome != Outcome::kBusy) {
      tree.environment.allocator.FlushIfMany(context, tree.id());
      return absl::OkStatus();
    }
    context.BackOff(kMergeAgainChains);
  }
  return absl::AbortedError("merging: locks are in use");
}

}  // namespace

absl::Status MergeUnderfull(OperationContext& context, TreeContext& tree, uint8_t level,
                            std::string_view key) {
  std::vector<Look> looks = {{level, std::string(key)}};
  absl::Status first;
  while (!looks.empty()) {
    const Look look = std::move(looks.back());
    looks.pop_back();
    const absl::Status status = MergeAt(context, tree, look, level, &looks);
    if (status.ok()) continue;
    const bool busy = absl::IsAborted(status);
    // An emptied leaf nobody may erase from again. Of levels above the next merge below asks again.
    if (look.level == 0 && (busy || absl::IsDeadlineExceeded(status))) context.underfull = look.key;
    if (!busy) return status;
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace pando
