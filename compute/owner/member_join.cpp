// How a member joins: log, `l`, lease, then `m` (rule O9), also while memory servers are full (rule
// W7).
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "compute/core/extent_calls.h"
#include "compute/owner/client_state.h"
#include "compute/owner/member.h"
#include "compute/owner/members.h"
#include "compute/owner/to_caller.h"
#include "compute/owner/turnstile.h"

namespace pando {

LogRoom::Parts Member::LogRoomParts() {
  return {
      .self = self(),
      .wished_bytes = options_.log_bytes,
      .control = &control_,
      .members = &members_,
      .map = &map_,
      .is_gone = is_gone_,
      .list_ended = [this](OperationContext& context) { return ListEnded(context); },
      .bring_to_leaves = [this](OperationContext& context,
                                MemberId ended) { (void)Recover(context, ended); },
      .free_lost = [this](OperationContext& context) { (void)FreeLostExtents(context); },
  };
}

absl::Status Member::Join(int64_t deadline_ns) {
  const auto join = [this](OperationContext& context) {
    // Who ends with this looks no second time: a smaller log is better than none.
    log_room_.LimitPatience((context.deadline_ns() - NowNs()) / 2);
    while (true) {
      absl::Status joined;
      {
        const Turnstile::Pass pass(turnstile_.get(), context.deadline_ns());
        if (!pass.ok()) return TurnError(context);
        joined = JoinCluster(context);
      }
      if (absl::IsAborted(joined)) {
        scheduler().SleepUntil(std::min(NowNs() + kRetryNsMax, context.deadline_ns()));
      }
      if (!absl::IsAborted(joined) || context.expired()) return joined;
    }
  };
  return ToCaller(RunBlocking(deadline_ns, join), "connect again, with more time if need be");
}

absl::Status Member::JoinToOwn(OperationContext& context, MemberId owner) {
  const absl::Status joined = JoinCluster(context);
  if (!absl::IsResourceExhausted(joined)) return joined;
  bool others_may = log_room_.others_may_join(NowNs());
  if (owner.nobody()) return others_may ? absl::AbortedError(joined.message()) : joined;
  const auto recovery = FindEntry<RecoveryEntry>(context, map_, owner);
  if (recovery.ok() && !recovery->claimant.nobody() && recovery->claimant != self()) {
    PANDO_ASSIGN_OR_RETURN(const ClientLiveness state,
                           AskClientState(context, control_, catalog_server_, recovery->claimant));
    others_may = others_may || state == ClientLiveness::kJoined;
  }
  return others_may ? absl::AbortedError(joined.message()) : joined;
}

absl::StatusOr<std::vector<MemberId>> Member::ListEnded(OperationContext& context) {
  // A recovery may have come to an end but for its own entry.
  PANDO_ASSIGN_OR_RETURN(const MemberEntries<LogEntry> logs, ListEntries<LogEntry>(context, map_));
  PANDO_ASSIGN_OR_RETURN(const MemberEntries<RecoveryEntry> recoveries,
                         ListEntries<RecoveryEntry>(context, map_));
  std::vector<MemberId> members;
  for (const auto& [member, log] : logs) members.push_back(member);
  for (const auto& [member, recovery] : recoveries) members.push_back(member);
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  std::vector<MemberId> ended;
  for (const MemberId member : members) {
    if (member == self()) continue;
    PANDO_ASSIGN_OR_RETURN(const ClientLiveness state,
                           AskClientState(context, control_, catalog_server_, member));
    if (!HasEnded(state)) continue;
    NoteEnded(member);
    ended.push_back(member);
  }
  return ended;
}

absl::Status Member::JoinCluster(OperationContext& context) {
  if (joined_.load(std::memory_order_acquire)) return absl::OkStatus();
  if (retired_.load(std::memory_order_acquire)) {
    return absl::FailedPreconditionError("this compute server has left the owners of keys");
  }
  if (log_ == nullptr) {
    PANDO_ASSIGN_OR_RETURN(const LogExtent extent, log_room_.Obtain(context));
    auto log = RedoLog::Create(context, {.extent = extent,
                                         .log_id = self().incarnation,
                                         .packet_bytes = packet_bytes_,
                                         .moves = true,
                                         .times = times_});
    if (!log.ok()) {
      const bool nothing_sent = absl::IsDeadlineExceeded(log.status()) ||
                                absl::IsResourceExhausted(log.status()) ||
                                absl::IsInvalidArgument(log.status());
      if (nothing_sent) {
        (void)FreeExtent(context, control_, extent, self().incarnation);
      } else {
        log_room_.NoteUnsure(extent);
      }
      return Annotate(log.status(), "the redo log of this compute server");
    }
    log_ = *std::move(log);
    log_entry_ = {.stamp = stamps_.Next(), .extent = extent, .epoch = 1};
    has_log_.store(true, std::memory_order_release);
  }
  // Rule O9: the log's entry, then the lease, then the member's entry. A client that recovers this
  // member can find its log from the first append on.
  PANDO_ASSIGN_OR_RETURN(
      const bool has_log,
      SettleChange(context, map_, ChangeEntry(self(), std::nullopt, log_entry_)));
  if (!has_log) return absl::InternalError("the cluster tree has a log of this very incarnation");
  PANDO_RETURN_IF_ERROR(RenewLease(context));
  if (member_entry_.stamp == Stamp{}) {
    member_entry_ = {
        .stamp = stamps_.Next(), .state = MemberEntry::State::kServing, .address = address_};
  }
  PANDO_ASSIGN_OR_RETURN(
      const bool is_member,
      SettleChange(context, map_, ChangeEntry(self(), std::nullopt, member_entry_)));
  if (!is_member) return absl::InternalError("this very incarnation is a member already");
  joined_.store(true, std::memory_order_release);
  StartLoop(&Member::LeaseLoop);
  StartLoop(&Member::TendLoop);
  StartLoop(&Member::LogLoop);
  StartLoop(&Member::FlushLoop);
  StartLoop(&Member::LookLoop);
  StartLoop(&Member::MeasureLoop);
  if (options_.lend_after_ns >= 0) StartLoop(&Member::LendLoop);
  StartLoop(&Member::SpreadLoop);
  return absl::OkStatus();
}

absl::Status Member::LeaveToNobody(OperationContext& context, const MappedRange& range) {
  RangeChange change = RangeChange::GiveUp(range, /*wished=*/{}, stamps_.Next());
  const absl::Status settled = change.Settle(context, map_);
  if (change.uncertain()) pending_ = std::move(change);
  return settled;
}

}  // namespace pando
