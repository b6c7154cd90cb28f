#include "compute/owner/owned_tree.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/owner/member.h"

namespace pando {
namespace {

// How long a READ may take that others wait for, in chain times (rule T3).
constexpr int64_t kPatienceChains = 8;

// Of hits without the mutex one of so many takes it, and is noted for all of them (rule O13). Which
// one is that does not follow the order in which keys are used.
constexpr uint64_t kHitsNoted = 32;
bool IsNoted(const SessionContext& session) {
  uint64_t hits = session.counters().owned_hits.value();
  return SplitMix64(&hits) % kHitsNoted == 0;
}

}  // namespace

OwnedTree::OwnedTree(TreeContext* leaves, Member* member)
    : leaves_(*leaves), member_(*member), read_leases_(&member->lease().clock()) {
  if (leaves->entry.shape.has_cells) cells_.emplace(leaves);
}

// --- Ranges.

OwnRange* OwnedTree::FindOwn(std::string_view key) const {
  const Ranges* const ranges = ranges_.load(std::memory_order_acquire);
  if (ranges == nullptr || ranges->empty()) return nullptr;
  OwnRange* range = ranges->front();
  if (ranges->size() > 1) {
    const auto above =
        std::upper_bound(ranges->begin(), ranges->end(), key,
                         [](std::string_view k, const OwnRange* one) { return k < one->low; });
    if (above == ranges->begin()) return nullptr;
    range = *std::prev(above);
  }
  return range->Covers(key) ? range : nullptr;
}

std::vector<OwnRange*> OwnedTree::OwnRanges() const {
  const Ranges* const ranges = ranges_.load(std::memory_order_acquire);
  return ranges == nullptr ? Ranges() : *ranges;
}

void OwnedTree::SetRanges(std::vector<OwnRange*> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const OwnRange* a, const OwnRange* b) { return a->low < b->low; });
  auto list = std::make_unique<Ranges>(std::move(ranges));
  ranges_.store(list.get(), std::memory_order_release);
  all_lists_.push_back(std::move(list));
}

OwnRange* OwnedTree::Add(std::unique_ptr<OwnRange> range) {
  OwnRange* const added = range.get();
  std::lock_guard lock(ranges_mutex_);
  all_ranges_.push_back(std::move(range));
  Ranges ranges = OwnRanges();
  ranges.push_back(added);
  SetRanges(std::move(ranges));
  return added;
}

void OwnedTree::Divide(OwnRange* range, std::unique_ptr<OwnRange> lower,
                       std::unique_ptr<OwnRange> upper) {
  {
    std::lock_guard lock(ranges_mutex_);
    Ranges ranges = OwnRanges();
    std::erase(ranges, range);
    for (std::unique_ptr<OwnRange>* const part : {&lower, &upper}) {
      ranges.push_back(part->get());
      all_ranges_.push_back(std::move(*part));
    }
    SetRanges(std::move(ranges));
  }
  range->SetState(OwnRange::State::kGone);
}

void OwnedTree::Remove(OwnRange* range) {
  {
    std::lock_guard lock(ranges_mutex_);
    Ranges ranges = OwnRanges();
    std::erase(ranges, range);
    SetRanges(std::move(ranges));
  }
  std::lock_guard lock(range->partition.mutex());
  range->SetState(OwnRange::State::kGone);
}

absl::Status OwnedTree::DroppedError() const {
  return absl::FailedPreconditionError(absl::StrCat("tree '", leaves_.entry.name, "' was dropped"));
}

absl::Status OwnedTree::AwaitServing(OperationContext& context, OwnRange* range, Lock* lock) {
  range->Charge(context.session, /*records=*/1);
  if (range->state != OwnRange::State::kWaiting) [[likely]]
    return absl::OkStatus();
  Parking parking(&context.session.scheduler());
  bool in_time = true;
  range->waiting.push_back(&parking);
  while (range->state == OwnRange::State::kWaiting && in_time) {
    lock->unlock();
    in_time = parking.ParkUntil(context.deadline_ns());
    lock->lock();
  }
  // Unpark() is called under the mutex: nobody comes late.
  std::erase(range->waiting, &parking);
  return in_time ? absl::OkStatus() : context.DeadlineError("waiting for the key's range");
}

// --- Answers.

absl::Status OwnedTree::AwaitLease(OperationContext& context) {
  if (context.session.fenced()) [[unlikely]]
    return FencedError();
  if (member_.lease().Held()) [[likely]]
    return absl::OkStatus();
  if (member_.lease().ended()) return FencedError();
  if (member_.lease().AwaitHeld(&context.session.scheduler(), context.deadline_ns())) {
    return absl::OkStatus();
  }
  if (member_.lease().ended()) return FencedError();
  return context.DeadlineError("waiting for the serving lease");
}

absl::Status OwnedTree::ConcludeRead(OperationContext& context, Lsn lsn) {
  if (lsn > member_.log().durable() && RuleHolds(Rule::kT3)) [[unlikely]]
    PANDO_RETURN_IF_ERROR(member_.log().AwaitDurable(context, lsn));
  return RuleHolds(Rule::kO5) ? AwaitLease(context) : absl::OkStatus();
}

absl::Status OwnedTree::ConcludeWrite(OperationContext& context, Lsn lsn) {
  // No look at the clock: what is durable landed before this member could be fenced at its log's
  // server, so the next owner has read it (rules D2, D3).
  if (!RuleHolds(Rule::kT4)) return absl::OkStatus();
  const absl::Status durable = member_.log().AwaitDurable(context, lsn);
  if (durable.ok() || !RuleHolds(Rule::kT6)) [[likely]]
    return durable;
  return OutcomeUnknownError(absl::StrCat(
      "the write was sent to the log, and may or may not have arrived: ", durable.ToString()));
}

// --- Reads.

absl::Status OwnedTree::AwaitLoad(OperationContext& context, OwnRange* range, std::string_view key,
                                  const Partition::View& view, Lock* lock, bool* is_absent) {
  struct Waiter : LoadWaiter {
    explicit Waiter(Scheduler* scheduler) : parking(scheduler) {}
    Parking parking;
  } waiter(&context.session.scheduler());
  waiter.wake = [](LoadWaiter* self) { static_cast<Waiter*>(self)->parking.Unpark(); };
  Partition& partition = range->partition;
  partition.Wait(view.record, &waiter);
  const int64_t patience_ns = context.session.NowNs() + context.session.WaitNs(kPatienceChains);
  lock->unlock();
  waiter.parking.ParkUntil(std::min(patience_ns, context.deadline_ns()));
  lock->lock();
  // The reader has not come back for so long: its session does not poll, and the next
  // waiter tries itself (rule T3).
  if (partition.StopWaiting(key, &waiter)) {
    if (context.expired()) return context.DeadlineError("waiting for another's read of the leaf");
    const Member::Sizes before = Member::SizesOf(partition);
    partition.AbandonLoad(key, view.load);
    member_.NoteChange(before, partition);
  }
  *is_absent =
      waiter.outcome == LoadWaiter::Outcome::kNotFound && range->state == OwnRange::State::kServing;
  return absl::OkStatus();
}

absl::StatusOr<Load> OwnedTree::ReadLeaf(OperationContext& context, OwnRange* range,
                                         std::string_view key, const Partition::View& view,
                                         Lock* lock, std::optional<std::string>* found) {
  Partition& partition = range->partition;
  context.session.counters().owned_misses.Add();
  const Member::Sizes without = Member::SizesOf(partition);
  const Load load = partition.BeginLoad(view, key);
  member_.NoteChange(without, partition);
  lock->unlock();
  std::string value;
  const absl::Status status = GetKey(context, leaves_, key, &value);
  lock->lock();
  range->Charge(context.session, /*records=*/1);
  if (!status.ok() && !absl::IsNotFound(status)) {
    const Member::Sizes before = Member::SizesOf(partition);
    partition.AbandonLoad(key, load);
    member_.NoteChange(before, partition);
    return status;
  }
  found->reset();
  if (status.ok()) *found = std::move(value);
  return load;
}

bool OwnedTree::KeepLoaded(OperationContext& context, OwnRange* range, std::string_view key,
                           Load load, const std::optional<std::string>& found) {
  Partition& partition = range->partition;
  const Member::Sizes before = Member::SizesOf(partition);
  const bool counts =
      partition.EndLoad(key, load, found, member_.MayKeep(context.session.random()));
  member_.NoteChange(before, partition);
  member_.Evict(&partition);
  return counts && range->state == OwnRange::State::kServing;
}

void OwnedTree::Show(OwnRange* range, const Partition::View& view) {
  // It was used before.
  if (!view.record->Has(HotRecord::kRef)) return;
  const Member::Sizes before = Member::SizesOf(range->partition);
  range->partition.Show(view);
  member_.NoteChange(before, range->partition);
}

std::optional<absl::Status> OwnedTree::GetHere(OperationContext& context, std::string_view key,
                                               std::string* value) {
  const uint64_t hash = HashOf(key);
  while (true) {
    OwnRange* const range = FindOwn(key);
    if (range == nullptr) return std::nullopt;
    range->partition.Prefetch(hash);
    const bool noted = IsNoted(context.session);
    Lsn shown_lsn;
    const bool shown = range->partition.FindShown(key, hash, noted ? nullptr : value, &shown_lsn);
    if (shown && !noted) {
      OwnRange::ChargeShown(context.session);
      context.session.counters().owned_hits.Add();
      return ConcludeRead(context, shown_lsn);
    }
    Lock lock(range->partition.mutex());
    PANDO_RETURN_IF_ERROR(AwaitServing(context, range, &lock));
    if (range->state != OwnRange::State::kServing) continue;
    range->meter.Note(key, shown ? kHitsNoted : 1);
    const Partition::View view = range->partition.Find(key, hash);
    bool is_absent = false;
    std::optional<std::string> found;
    switch (view.state) {
      case RecordState::kClean:
      case RecordState::kDirty:
        if (!shown) Show(range, view);
        range->partition.Touch(view.record);
        value->assign(view.value);
        lock.unlock();
        context.session.counters().owned_hits.Add();
        return ConcludeRead(context, view.lsn);
      case RecordState::kTombstone:
        context.session.counters().owned_hits.Add();
        is_absent = true;
        break;
      case RecordState::kLoading:
        PANDO_RETURN_IF_ERROR(AwaitLoad(context, range, key, view, &lock, &is_absent));
        if (!is_absent) continue;
        break;
      case RecordState::kAbsent: {
        PANDO_ASSIGN_OR_RETURN(const Load load, ReadLeaf(context, range, key, view, &lock, &found));
        if (!KeepLoaded(context, range, key, load, found)) continue;
        is_absent = !found.has_value();
        break;
      }
    }
    lock.unlock();
    PANDO_RETURN_IF_ERROR(ConcludeRead(context, view.lsn));
    if (is_absent) return KeyNotFound();
    *value = *std::move(found);
    return absl::OkStatus();
  }
}

// --- Of the whole tree.

absl::Status OwnedTree::Flush(OperationContext& context) { return member_.Flush(context, this); }

absl::Status OwnedTree::BulkLoad(OperationContext& context, NextEntry next) {
  const absl::Status obtained = member_.Obtain(context, this, "");
  OwnRange* const range = FindOwn("");
  if (range == nullptr || !range->low.empty() || !range->high.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "bulk load: this compute server does not own the whole tree: load it where no other one "
        "has it open (",
        obtained.message(), ")"));
  }
  {
    Lock lock(range->partition.mutex());
    PANDO_RETURN_IF_ERROR(AwaitServing(context, range, &lock));
    if (range->state != OwnRange::State::kServing) {
      return absl::FailedPreconditionError("bulk load: the tree is changing hands; try again");
    }
    range->SetState(OwnRange::State::kWaiting);
  }
  // What was written before is in the leaves, where the load finds it. Clean records and answers
  // that keys are absent are of an empty tree, then.
  absl::Status status = member_.Flush(context, this);
  const bool is_clean = status.ok();
  member_.StopLending(&context.session.scheduler(), {&range, 1});
  // What is in the log of before, erases too, must not be replayed over what is loaded. Nothing is
  // appended meanwhile.
  if (is_clean) status = member_.BeginLoad(context, this, range, member_.log().next_lsn());
  if (status.ok()) status = BulkLoadTree(context, leaves_, next);
  Lock lock(range->partition.mutex());
  // One that is gone was divided just before (rule O10), and its records are others'.
  if (range->state != OwnRange::State::kWaiting) return status;
  const Member::Sizes before = Member::SizesOf(range->partition);
  if (is_clean) range->partition.Drop();
  member_.NoteChange(before, range->partition);
  range->SetState(OwnRange::State::kServing);
  return status;
}

}  // namespace pando
