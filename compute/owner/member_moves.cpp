// Ranges that are divided, and go from one living member to another (rules O10 to O12).
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/owner/collect.h"
#include "compute/owner/member.h"
#include "compute/owner/member_visit.h"
#include "compute/owner/members.h"
#include "compute/owner/turnstile.h"

namespace pando {
namespace {

// For so many looks of a waiter others let the wished one claim first.
constexpr int64_t kWishedLooks = 10;
constexpr size_t kWishesMax = 32;
// One that does not answer so long will not take it now.
constexpr int64_t kTakeNs = 200 * kMillisecondNs;
// Flushes before the one for which operations wait.
constexpr int kFlushesAhead = 2;
// Dirty records that a division may move in its step: some 10 ms.
constexpr size_t kDirtyMovedMax = 4096;
// Places of a partition that are looked at while it is locked, and as a part of its records.
constexpr size_t kFollowLooksMin = 8, kFollowLooksMax = 1024, kFollowSlices = 256;

absl::Status NotNow() { return absl::AbortedError("the range is being loaded, or has changed"); }

}  // namespace

absl::Status Member::Hold(OwnRange* range) {
  std::lock_guard lock(range->partition.mutex());
  if (range->state != OwnRange::State::kServing) return NotNow();
  range->SetState(OwnRange::State::kWaiting);
  return absl::OkStatus();
}

// --- Dividing.

absl::Status Member::SplitRange(OperationContext& context, OwnedTree* tree,
                                const std::string& border) {
  if (!IsOpen(tree)) return absl::FailedPreconditionError("the tree is being closed");
  PANDO_RETURN_IF_ERROR(SettlePending(context));
  OwnRange* const range = tree->FindOwn(border);
  if (range == nullptr || border == range->low || border.size() > kBorderBytesMax) {
    return absl::InvalidArgumentError("there is no own range that this border divides");
  }
  if (tree->OwnRanges().size() >= kRangesMax) {
    return absl::ResourceExhaustedError("this member has as many ranges as it may have");
  }
  {
    // A load (rule O8) is of a whole range. One that begins now finds the range divided before it
    // writes anything (Renew()).
    std::lock_guard lock(range->partition.mutex());
    if (range->state != OwnRange::State::kServing) return NotNow();
  }
  {
    // What is inserted has to be divided then, and other jobs wait for that: a turn at the flushes
    // now says that there will be another one soon.
    const Turnstile::Pass turn(flushing_.get(), context.deadline_ns());
    if (!turn.ok()) return NotNow();
  }
  // Meanwhile it serves: both entries are of the same term.
  RangeChange split = RangeChange::Split(range->mapped, border, stamps_.Next());
  const absl::Status settled = split.Settle(context, map_);
  if (!settled.ok()) {
    if (split.uncertain()) pending_ = std::move(split);
    return settled;
  }
  if (!split.won()) return absl::InternalError("the entry of a range of this member has changed");
  // Who flushes a record finds it where it was. Not before: flushes do not wait for the cluster
  // tree.
  const Turnstile::Pass flush(flushing_.get());
  Divide(tree, range, split);
  // FollowRecords() comes. Where a division comes true later nobody sees to it.
  OwnRange* const part = tree->FindOwn(split.lower().low);
  if (part != nullptr && part->high == border) part->behind = range->records;
  return absl::OkStatus();
}

void Member::Divide(OwnedTree* tree, OwnRange* range, const RangeChange& split) {
  auto lower = std::make_unique<OwnRange>(split.lower(), OwnRange::State::kServing);
  auto upper = std::make_unique<OwnRange>(split.range(), OwnRange::State::kServing, range->records);
  Partition& whole = range->partition;
  Partition& part = lower->partition;
  const std::lock_guard lock(whole.mutex());
  const std::lock_guard part_lock(part.mutex());
  if (range->state == OwnRange::State::kGone) return;
  const Sizes whole_before = SizesOf(whole), part_before = SizesOf(part);
  if (RuleHolds(Rule::kO10)) whole.MoveDirtyTo(lower->low, lower->high, &part);
  NoteChange(whole_before, whole);
  NoteChange(part_before, part);
  range->meter.DivideAt(lower->high, &lower->meter, &upper->meter);
  lower->lending = upper->lending = range->lending;
  lower->came_ns = upper->came_ns = range->came_ns;
  upper->looks_before = range->looks_before;  // it has the partition, and its clock
  upper->behind = std::move(range->behind);   // it has the partition that this one's records follow
  tree->Divide(range, std::move(lower), std::move(upper));
  std::lock_guard stats_lock(mutex_);
  ++stats_.splits;
}

absl::Status Member::FlushBelow(OperationContext& context, OwnedTree* tree, OwnRange* range,
                                const std::string& border) {
  for (int i = 0; i < kFlushesAhead; ++i) {
    {
      std::lock_guard lock(range->partition.mutex());
      if (range->partition.CountDirty(range->low, border) <= kDirtyMovedMax) break;
    }
    const Lsn durable = log_->durable();
    std::string from = range->low;
    do {
      // Others have their turn between two rounds.
      const Turnstile::Pass pass(flushing_.get(), context.deadline_ns());
      if (!IsOpen(tree)) return absl::FailedPreconditionError("the tree is being closed");
      if (!pass.ok() || context.expired()) {
        return context.DeadlineError("flushing what a division would move");
      }
      {
        std::lock_guard lock(range->partition.mutex());
        if (range->state != OwnRange::State::kServing) return NotNow();
      }
      std::vector<FlushItem> items;
      from = CollectDirty(context, range, durable, from, border, {}, &items);
      if (items.empty()) context.session.scheduler().Yield();  // looked at in vain
      const absl::Status flushed = FlushItems(context, tree, range, items).status();
      // What does not come to its leaf is moved.
      if (!flushed.ok() && !absl::IsDeadlineExceeded(flushed)) return flushed;
      FlushOverdue(context);  // of other keys, and other trees
    } while (!from.empty());
  }
  return absl::OkStatus();
}

void Member::FollowRecords(OperationContext& context, OwnedTree* tree) {
  for (OwnRange* const part : tree->OwnRanges()) {
    Partition::Place at;
    bool more = true;
    // Until somebody has given it up: what is flushed then is not forgotten behind.
    while (more && part->behind != nullptr && !context.expired() && IsOpen(tree)) {
      {
        const std::shared_ptr<Partition> behind = part->behind;
        // As Divide() takes them.
        const std::lock_guard lock(behind->mutex());
        const std::lock_guard part_lock(part->partition.mutex());
        if (part->state == OwnRange::State::kGone) break;
        const Sizes before = SizesOf(*behind), part_before = SizesOf(part->partition);
        const size_t looks =
            std::clamp(behind->records() / kFollowSlices, kFollowLooksMin, kFollowLooksMax);
        more = behind->MoveCleanTo(part->low, part->high, looks, &at, &part->partition);
        NoteChange(before, *behind);
        NoteChange(part_before, part->partition);
      }
      context.BackOff(1);  // for whoever needs one of them
    }
    // What has not followed is nobody's, and the clock takes it.
    if (part->behind == nullptr) continue;
    const std::lock_guard lock(part->partition.mutex());
    part->behind = nullptr;
  }
}

// --- Giving.

absl::Status Member::FlushAhead(OperationContext& context, OwnedTree* tree, OwnRange* range) {
  for (int i = 0; i < kFlushesAhead; ++i) {
    if (!IsOpen(tree)) return absl::FailedPreconditionError("the tree is being closed");
    Turnstile::Pass pass(flushing_.get(), context.deadline_ns());
    if (!pass.ok()) return context.DeadlineError("waiting for other flushes");
    {
      // Divided meanwhile, its records are another range's, which knows what is behind (rule O10).
      std::lock_guard lock(range->partition.mutex());
      if (range->state == OwnRange::State::kGone) return NotNow();
    }
    PANDO_RETURN_IF_ERROR(FlushRange(context, tree, range, &pass));
    (void)AdvanceBase(context);  // its records are in their leaves all the same
  }
  return absl::OkStatus();
}

absl::Status Member::GiveRange(OperationContext& context, OwnedTree* tree, OwnRange* range,
                               MemberId to) {
  if (!IsOpen(tree)) return absl::FailedPreconditionError("the tree is being closed");
  PANDO_RETURN_IF_ERROR(SettlePending(context));
  StopLending(&scheduler(), {&range, 1});
  // Nothing is decided any more from here, until the give succeeds or is taken back (O7, O11).
  if (RuleHolds(Rule::kO11)) PANDO_RETURN_IF_ERROR(Hold(range));
  PANDO_RETURN_IF_ERROR(HandOver(context, tree, range, to));
  std::lock_guard lock(mutex_);
  ++stats_.given;
  return absl::OkStatus();
}

bool Member::Tell(OperationContext& context, OwnedTree* tree, const MappedRange& range,
                  const Other& to, double rate) {
  if (to.id.nobody() || to.address.empty()) return false;
  const std::string value = EncodeRate(static_cast<uint64_t>(std::max(0.0, rate)));
  const PeerRequest request = {.operation = PeerRequest::Operation::kTake,
                               .tree_id = tree->id(),
                               .key = range.low,
                               .value = value};
  OperationContext asking(session_, std::min(context.deadline_ns(), NowNs() + kTakeNs));
  PeerAnswer answer;
  // If this one does not take it, the next member that needs it claims it.
  if (!AskInService(asking, to, request, &answer).ok() || answer.not_owner) return false;
  MappedRange taken = range;
  taken.entry = {.owner = to.id};
  tree->Learn(taken, to.address);
  return true;
}

// --- Taking.

bool Member::AwaitsWished(const MappedRange& range) {
  const MemberId wished = range.entry.wished;
  if (wished.nobody() || wished == self()) return false;
  const auto same = std::find_if(wishes_.begin(), wishes_.end(), [&](const RangeWish& wish) {
    return wish.range.entry.stamp == range.entry.stamp;
  });
  if (same != wishes_.end()) {
    same->last_ns = NowNs();
    return NowNs() - same->first_ns < kWishedLooks * retry_ns();
  }
  if (wishes_.size() == kWishesMax) wishes_.erase(wishes_.begin());
  wishes_.push_back({range, NowNs(), NowNs()});
  return true;
}

bool Member::IsOnItsWay(const OwnedTree& tree, std::string_view key) const {
  return std::any_of(wishes_.begin(), wishes_.end(), [&](const RangeWish& wish) {
    return wish.range.tree_id == tree.id() && wish.range.Covers(key) &&
           NowNs() < wish.last_ns + retry_ns() / 2 &&
           wish.last_ns - wish.first_ns < kWishedLooks * retry_ns();
  });
}

bool Member::TakeFor(OperationContext& context, OwnedTree* tree, std::string_view key,
                     uint64_t rate) {
  if (retired_.load(std::memory_order_acquire)) return false;
  const absl::Status taken =
      RunForCaller(context, [this, tree, key = std::string(key)](OperationContext& job) {
        const Turnstile::Pass pass(turnstile_.get());
        if (!IsOpen(tree)) return absl::FailedPreconditionError("the tree is being closed");
        // Since it was asked. Who asks looks for another one, and no peer is asked for a peer.
        if (retired_.load(std::memory_order_acquire)) return absl::AbortedError("it has left");
        std::erase_if(wishes_, [&](const RangeWish& wish) {
          return wish.range.tree_id == tree->id() && wish.range.Covers(key);
        });
        tree->Forget(key);
        return ObtainRange(job, tree, key);
      });
  OwnRange* const own = tree->FindOwn(key);
  if (!taken.ok() || own == nullptr) return false;
  std::lock_guard lock(own->partition.mutex());
  if (rate == 0 || own->state == OwnRange::State::kGone) return true;
  own->meter.Expect(static_cast<double>(rate));
  load_.fetch_add(rate, std::memory_order_relaxed);
  return true;
}

absl::Status Member::AskOtherToClaim(OperationContext& context, OwnedTree* tree,
                                     const std::string& key) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<Other> others, ListOthers(context, tree->id()));
  const PeerRequest request = {.operation = PeerRequest::Operation::kTake,
                               .tree_id = tree->id(),
                               .key = std::string_view(key).substr(0, kPeerKeyBytesMax)};
  for (const Other& other : others) {
    OperationContext asking(session_, std::min(context.deadline_ns(), NowNs() + kTakeNs));
    PeerAnswer answer;
    if (AskInService(asking, other, request, &answer).ok() && !answer.not_owner) {
      return absl::OkStatus();
    }
  }
  return absl::AbortedError(
      "this compute server has left the owners of keys (Client::Leave()), and no other one takes "
      "the key's range");
}

// --- For tests and for spreading: in coroutines of users' sessions.

absl::Status Member::Split(OperationContext& context, OwnedTree* tree, std::string_view border) {
  const auto split = [this, tree_id = tree->id(),
                      border = std::string(border)](OperationContext& job) -> absl::Status {
    const Visit visit(this, tree_id);
    OwnedTree* const open = visit.tree();
    if (open == nullptr) return absl::FailedPreconditionError("the tree is being closed");
    {
      const Turnstile::Pass pass(turnstile_.get());
      PANDO_RETURN_IF_ERROR(SplitRange(job, open, border));
    }
    FollowRecords(job, open);
    return absl::OkStatus();
  };
  return RunForCaller(context, split);
}

absl::Status Member::Give(OperationContext& context, OwnedTree* tree, std::string_view key,
                          MemberId to) {
  const auto give = [this, tree_id = tree->id(), key = std::string(key),
                     to](OperationContext& job) -> absl::Status {
    const Visit visit(this, tree_id);
    OwnedTree* const open = visit.tree();
    if (open == nullptr) return absl::FailedPreconditionError("the tree is being closed");
    PANDO_ASSIGN_OR_RETURN(const OwnerInfo other, Describe(job, to));
    MappedRange range;
    {
      const Turnstile::Pass pass(turnstile_.get());
      OwnRange* const own = open->FindOwn(key);
      if (own == nullptr) return absl::FailedPreconditionError("the range is another member's");
      range = {tree_id, own->low, own->high, {}};
      PANDO_RETURN_IF_ERROR(GiveRange(job, open, own, to));
    }
    (void)Tell(job, open, range, {to, other.address}, 0);
    return absl::OkStatus();
  };
  return RunForCaller(context, give);
}

}  // namespace pando
