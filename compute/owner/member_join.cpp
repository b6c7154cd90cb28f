// How a member joins: log, `l`, lease, then `m` (rule O9), and where its log comes from while
// memory servers are full (rule W7).
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/base/time_constants.h"
#include "compute/core/extent_calls.h"
#include "compute/core/fence_calls.h"
#include "compute/log/read_log.h"
#include "compute/owner/client_state.h"
#include "compute/owner/find_extent.h"
#include "compute/owner/member.h"
#include "compute/owner/members.h"

namespace pando {
namespace {

// Whoever found no room looks again after this.
constexpr int64_t kRoomAgainNs = 200 * kMillisecondNs;
// Somebody else may have got the room a moment ago, and owns the key in a moment.
constexpr int64_t kOthersJoinNs = kSecondNs;
// Before a smaller log will do because memory servers that may have room say nothing.
constexpr int64_t kAnswerNsMax = 5 * kSecondNs;
// As ClientOptions::log_bytes.
constexpr uint64_t kLogBytesMin = 64 << 10;

}  // namespace

absl::StatusOr<LogExtent> Member::ObtainExtent(OperationContext& context) {
  if (NowNs() < room_again_ns_) return no_room_;
  ExtentSearch search(&control_, members_.Ids());
  absl::StatusOr<LogExtent> extent = search.Find(context, options_.log_bytes);
  const absl::Status refusal = extent.status();
  if (extent.ok()) unanswered_since_ns_ = 0;
  if (!absl::IsResourceExhausted(refusal)) return extent;
  if (search.all_answered()) {
    unanswered_since_ns_ = 0;
  } else {
    // A log stays as small as it is made. So who is silent for a moment is waited for.
    if (unanswered_since_ns_ == 0) unanswered_since_ns_ = NowNs();
    if (NowNs() < unanswered_since_ns_ + kAnswerNsMax) {
      return absl::AbortedError(
          absl::StrCat("a memory server that does not answer may have room for a redo log, others "
                       "have not: ",
                       refusal.message()));
    }
  }
  if (search.largest_bytes() < options_.log_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a redo log of ", options_.log_bytes,
                     " bytes fits into no memory server that answers: the largest has ",
                     search.largest_bytes(), "; use a smaller log_bytes"));
  }
  // Who says nothing leaves time for a smaller log.
  const auto part = [&] {
    const int64_t left_ns = std::max<int64_t>(0, context.deadline_ns() - NowNs());
    return OperationContext(context, search.all_answered()
                                         ? context.deadline_ns()
                                         : NowNs() + std::min(left_ns / 2, kJobNsMin));
  };
  // Rule W7: where an ended member has its log, its server gives what it has kept, once nothing of
  // the ended one is in flight there any more.
  PANDO_ASSIGN_OR_RETURN(const std::vector<MemberId> ended, ListEnded(context));
  OperationContext fencing = part();
  for (const MemberId member : ended) {
    const absl::StatusOr<LogEntry> log = FindEntry<LogEntry>(context, map_, member);
    if (!log.ok()) continue;
    (void)AwaitFence(fencing, control_, log->extent.server, member.compute_server,
                     member.incarnation);
  }
  if (!ended.empty()) extent = search.Find(context, options_.log_bytes);
  // What ended members have left comes to the leaves as far as these have room, for nobody: a log
  // that nobody needs is freed.
  if (absl::IsResourceExhausted(extent.status())) {
    OperationContext freeing = part();
    for (const MemberId member : ended) (void)Recover(freeing, member);
    (void)FreeLostExtents(freeing);
    extent = search.Find(context, options_.log_bytes);
  }
  // Less will do.
  for (uint64_t bytes = options_.log_bytes / 2;
       bytes >= kLogBytesMin && absl::IsResourceExhausted(extent.status()); bytes /= 2) {
    extent = search.Find(context, bytes);
  }
  if (extent.ok() && extent->bytes < options_.log_bytes) {
    PANDO_LOG(WARNING) << "memory servers have " << extent->bytes << " bytes for a log instead of "
                       << options_.log_bytes;
  }
  if (extent.ok()) {
    no_room_since_ns_ = 0;
  } else if (absl::IsResourceExhausted(extent.status())) {
    no_room_ = refusal;  // of all that was wished
    if (no_room_since_ns_ == 0) no_room_since_ns_ = NowNs();
    room_again_ns_ = NowNs() + kRoomAgainNs;
    return refusal;
  }
  return extent;
}

absl::Status Member::JoinToOwn(OperationContext& context, MemberId owner) {
  const absl::Status joined = JoinCluster(context);
  if (!absl::IsResourceExhausted(joined)) return joined;
  bool others_may = no_room_since_ns_ != 0 && NowNs() < no_room_since_ns_ + kOthersJoinNs;
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

absl::Status Member::FreeUnsure(OperationContext& context) {
  absl::Status first;
  std::vector<LogExtent> left;
  for (const LogExtent& extent : std::exchange(unsure_extents_, {})) {
    if (is_gone_(extent.server) || session_->LifeOf(extent.server) != extent.server_life) continue;
    // A READ that comes through: nothing that was sent before can land any more (rule L5).
    OperationContext reading(context, std::min(context.deadline_ns(), NowNs() + kJobNsMin));
    absl::Status clean =
        ReadLog(reading, extent, self().incarnation, /*epoch=*/1, [](Lsn, const LogMessage&) {
          return absl::OkStatus();
        }).status();
    if (clean.ok() || absl::IsDataLoss(clean)) {
      clean = FreeExtent(reading, control_, extent, self().incarnation).status();
      if (clean.ok()) continue;
    }
    left.push_back(extent);
    // Who answers nothing grants no other one either, and keeps nobody from another server.
    OperationContext asking(session_, NowNs() + kJobNsMin);
    if (ListExtents(asking, control_, extent.server).ok()) first.Update(clean);
  }
  unsure_extents_ = std::move(left);
  return first.ok() ? first : Annotate(first, "what was to be the redo log of this compute server");
}

absl::Status Member::JoinCluster(OperationContext& context) {
  if (joined_.load(std::memory_order_acquire)) return absl::OkStatus();
  if (retired_.load(std::memory_order_acquire)) {
    return absl::FailedPreconditionError("this compute server has left the owners of keys");
  }
  if (log_ == nullptr) {
    PANDO_RETURN_IF_ERROR(FreeUnsure(context));
    PANDO_ASSIGN_OR_RETURN(const LogExtent extent, ObtainExtent(context));
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
        unsure_extents_.push_back(extent);
      }
      return Annotate(log.status(), "the redo log of this compute server");
    }
    log_ = *std::move(log);
    log_entry_ = {.stamp = stamps_.Next(), .extent = extent, .epoch = 1};
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
