// How a member gives up what it owns, and leaves (rules O7, O9, O14).
#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/core/extent_calls.h"
#include "compute/owner/log_move.h"
#include "compute/owner/member.h"
#include "compute/owner/member_visit.h"
#include "compute/owner/members.h"
#include "compute/owner/turnstile.h"

namespace pando {

void Member::ServeAgain(OwnRange* range) {
  std::lock_guard lock(range->partition.mutex());
  if (range->state == OwnRange::State::kWaiting) range->SetState(OwnRange::State::kServing);
}

absl::Status Member::GiveUp(OperationContext& context, OwnedTree* tree, OwnRange* range) {
  {
    // From here on nothing is decided and no READ counts; what was decided before is durable, or
    // said to be unknown, and in the records.
    std::lock_guard lock(range->partition.mutex());
    if (range->state == OwnRange::State::kGone) return absl::OkStatus();
    range->SetState(OwnRange::State::kWaiting);
  }
  return HandOver(context, tree, range, /*wished=*/{});
}

int64_t Member::ShareEndNs(OperationContext& context, size_t ranges) const {
  // Some also where another one has used up all of it, as whoever has sent a WRITE to a leaf that
  // is out of reach waits beyond its deadline.
  const int64_t left_ns = context.deadline_ns() - NowNs();
  const int64_t share_ns = left_ns / static_cast<int64_t>(std::max<size_t>(1, ranges));
  return NowNs() + std::max(share_ns, kShareNsMin);
}

absl::Status Member::GiveUpOrDiscard(OperationContext& context, OwnedTree* tree) {
  absl::Status first;
  const std::vector<OwnRange*> ranges = tree->OwnRanges();
  StopLending(&scheduler(), ranges);
  for (OwnRange* const range : ranges) {
    // A flush tries again what has failed, to its deadline. Leaves that are out of reach are no
    // reason to keep other ranges.
    OperationContext attempt(
        session_, std::min(ShareEndNs(context, tree->OwnRanges().size()), NowNs() + kJobNsMin));
    const absl::Status given_up = GiveUp(attempt, tree, range);
    if (given_up.ok() || !first.ok()) continue;
    first = given_up;
    if (DiscardIfDropped(tree)) return absl::OkStatus();
  }
  if (!first.ok() || tree->OwnRanges().empty()) return first;
  // A split whose outcome was not known, and is now (SettlePending()).
  if (DiscardIfDropped(tree)) return absl::OkStatus();
  return absl::AbortedError("a range was divided while it was given up");
}

// Rule O8. Also where there is no time left: records that nobody brings to their leaves would hold
// the log's base for good.
bool Member::DiscardIfDropped(OwnedTree* tree) {
  OperationContext asking(session_, NowNs() + kJobNsMin);
  const absl::StatusOr<bool> exists = IsInCatalog(asking, tree->id());
  if (!exists.ok() || *exists) return false;
  tree->NoteDropped();
  Discard(tree);
  return true;
}

bool Member::OwnsSome() const {
  const std::vector<OwnedTree*> trees = OpenTrees();
  return std::any_of(trees.begin(), trees.end(),
                     [](const OwnedTree* tree) { return !tree->OwnRanges().empty(); });
}

absl::Status Member::HandOver(OperationContext& context, OwnedTree* tree, OwnRange* range,
                              MemberId wished) {
  absl::Status status;
  if (RuleHolds(Rule::kO7)) status = FlushRange(context, tree, range, /*pass=*/nullptr);
  // One change at a time.
  if (status.ok()) status = SettlePending(context);
  if (status.ok()) {
    std::lock_guard lock(range->partition.mutex());
    if (range->state == OwnRange::State::kGone) {
      status = absl::AbortedError("it was divided");
    } else if (!range->IsClean() && RuleHolds(Rule::kO7) && RuleHolds(Rule::kO11) &&
               RuleHolds(Rule::kW6Flush)) {
      // Its flush would come late, to what the next owner has written.
      status = absl::AbortedError("some of it is not in its leaves yet");
    }
  }
  if (!status.ok()) {
    ServeAgain(range);
    return status;
  }
  // It was stopped before, while the range served: there is nothing to wait for, mostly.
  StopLending(&scheduler(), {&range, 1});
  RangeChange change = RangeChange::GiveUp(range->mapped, wished, stamps_.Next());
  status = change.Settle(context, map_);
  if (!status.ok() && !change.uncertain()) {
    ServeAgain(range);
    return status;
  }
  // Also where that is not known yet: nothing of the range is in the log alone.
  if (!status.ok()) pending_ = std::move(change);
  // In these variants it may be in the middle of a flush.
  std::optional<Turnstile::Pass> flush;
  if (!RuleHolds(Rule::kO7) || !RuleHolds(Rule::kO11)) flush.emplace(flushing_.get());
  tree->Remove(range);
  DropRecords(range);
  return absl::OkStatus();
}

// --- Leaving: at the turnstile.

absl::Status Member::KeptError() {
  return absl::FailedPreconditionError(
      "this compute server has closed an owned tree and could not bring all records to their "
      "leaves: they are in its log; close the client, and the next one that needs them takes them "
      "over");
}

absl::Status Member::LeaveCluster(OperationContext& context) {
  if (keeps_entries_.load(std::memory_order_relaxed)) return KeptError();
  PANDO_RETURN_IF_ERROR(SettlePending(context));
  if (keeps_entries_.load(std::memory_order_relaxed)) return KeptError();
  if (OwnsSome()) return absl::AbortedError("this compute server owns ranges of trees still");
  // The last one to leave leaves nothing that no tree needs. It is not what its time is for.
  OperationContext looking(session_, std::min(context.deadline_ns(), NowNs() + kJobNsMin));
  (void)LookForEnded(looking);
  // Claims that were won late, and never served.
  PANDO_ASSIGN_OR_RETURN(const std::vector<MappedRange> left, ListRangesOf(context, map_, self()));
  for (const MappedRange& range : left) {
    if (!RuleHolds(Rule::kO14)) break;
    RangeChange change = RangeChange::GiveUp(range, /*wished=*/{}, stamps_.Next());
    const absl::Status settled = change.Settle(context, map_);
    if (!settled.ok() && change.uncertain()) pending_ = std::move(change);
    PANDO_RETURN_IF_ERROR(settled);
  }
  // The log is freed below, and others get its memory: a chain of a session that is in use, or of
  // the service, must not land there then.
  const Turnstile::Pass flush(flushing_.get());
  while (!log_->idle() && !log_failed() && RuleHolds(Rule::kO9)) {
    if (context.expired()) return context.DeadlineError("waiting for the log's last writes");
    scheduler().SleepUntil(std::min(NowNs() + retry_ns(), context.deadline_ns()));
  }
  const Turnstile::Pass log_turn(log_move_->turnstile());
  PANDO_RETURN_IF_ERROR(log_move_->SettleEntry(context, &log_entry_));
  erases_entries_ = true;
  PANDO_RETURN_IF_ERROR(
      SettleChange(context, map_, ChangeEntry(self(), member_entry_, std::nullopt)).status());
  PANDO_RETURN_IF_ERROR(
      SettleChange(context, map_, ChangeEntry(self(), log_entry_, std::nullopt)).status());
  joined_.store(false, std::memory_order_release);
  has_log_.store(false, std::memory_order_release);
  // What a log that has failed had in flight may land as long as this client's queue pairs live.
  // Others free it when they are gone, as no entry names it.
  frees_log_ = (log_->idle() && log_->failure().ok()) || !RuleHolds(Rule::kO9);
  return FreeLog(context);
}

absl::Status Member::FreeLog(OperationContext& context) {
  if (!frees_log_) return absl::OkStatus();
  const absl::Status freed =
      FreeExtent(context, control_, log_entry_.extent, self().incarnation).status();
  // With its memory server it is gone, or freed by others, as no entry names it.
  if (!freed.ok() && !absl::IsUnavailable(freed)) return freed;
  frees_log_ = false;
  return absl::OkStatus();
}

// --- Leaving while trees are in use.

absl::Status Member::GiveAll(OperationContext& context, OwnedTree* tree) {
  absl::StatusOr<std::vector<Other>> listed = ListOthers(context, tree->id());
  std::vector<Other> others = listed.ok() ? *std::move(listed) : std::vector<Other>();
  absl::Status first;
  for (OwnRange* const range : tree->OwnRanges()) {
    // What cannot be flushed is no reason to keep other ranges.
    OperationContext flushing(session_, ShareEndNs(context, Places().size()));
    const absl::Status ahead = FlushAhead(flushing, tree, range);
    if (!absl::IsAborted(ahead)) first.Update(ahead);  // as below
    if (!ahead.ok()) continue;
    const auto least = std::min_element(others.begin(), others.end(), [](auto& a, auto& b) {
      return a.operations_per_s < b.operations_per_s;
    });
    const Other to = least == others.end() ? Other() : *least;
    double rate;
    {
      std::lock_guard lock(range->partition.mutex());
      rate = range->meter.operations_per_s();
    }
    {
      const Turnstile::Pass pass(turnstile_.get(),
                                 std::max(context.deadline_ns(), NowNs() + kJobNsMin));
      if (!pass.ok()) return TurnError(context);
      OperationContext giving(session_, ShareEndNs(context, Places().size()));
      const absl::Status given = GiveRange(giving, tree, range, to.id);
      // Divided meanwhile: its parts come with the next call.
      if (!absl::IsAborted(given)) first.Update(given);
      if (!given.ok()) continue;
    }
    if (least == others.end()) continue;
    if (Tell(context, tree, {tree->id(), range->low, range->high, {}}, to, rate)) {
      least->operations_per_s += rate;
    } else {
      others.erase(least);
    }
  }
  return first;
}

absl::Status Member::GiveEverything(OperationContext& context) {
  for (int64_t pause_ns = retry_ns(); OwnsSome(); pause_ns = std::min(2 * pause_ns, kRetryNsMax)) {
    absl::Status given;
    for (const uint32_t tree_id : OpenTreeIds()) {
      if (context.expired() && !given.ok()) break;
      const Visit visit(this, tree_id);
      if (visit.tree() != nullptr) given.Update(GiveAll(context, visit.tree()));
    }
    if (!OwnsSome()) break;
    if (session_->fenced()) return FencedError();
    if (log_failed()) return log_->failure();
    if (context.expired()) {
      return given.ok() ? context.DeadlineError("giving all ranges to others") : given;
    }
    scheduler().SleepUntil(std::min(NowNs() + pause_ns, context.deadline_ns()));
  }
  return absl::OkStatus();
}

absl::Status Member::Retire(int64_t deadline_ns) {
  return RunBlocking(deadline_ns, [this](OperationContext& context) -> absl::Status {
    // One at a time: a call that is over may take back what another one relies on.
    const Turnstile::Pass alone(retiring_.get(), context.deadline_ns());
    if (!alone.ok()) return context.DeadlineError("waiting for another call that leaves");
    // It could not end well: nothing is given away for that.
    if (keeps_entries_.load(std::memory_order_relaxed)) return KeptError();
    // From now on nothing is claimed; what was begun is over when it is this job's turn.
    retired_.store(true, std::memory_order_release);
    const auto goes_on = [this](absl::Status why) {
      // A member whose entries may be gone already takes nothing any more.
      if (!erases_entries_) retired_.store(false, std::memory_order_release);
      return why;
    };
    while (true) {
      const absl::Status given = GiveEverything(context);
      if (!given.ok()) return goes_on(given);
      const Turnstile::Pass pass(turnstile_.get(), context.deadline_ns());
      if (!pass.ok()) return goes_on(TurnError(context));
      // Also one that has not joined yet, and got so far that it has a log.
      if (!has_log_.load(std::memory_order_acquire)) return FreeLog(context);
      const absl::Status left = LeaveCluster(context);
      // A claim that was won late: that goes, too.
      if (absl::IsAborted(left) && !context.expired()) continue;
      return left.ok() ? left : goes_on(left);
    }
  });
}

}  // namespace pando
