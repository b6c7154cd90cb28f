#include "compute/owner/log_room.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/time_constants.h"
#include "compute/core/extent_calls.h"
#include "compute/core/fence_calls.h"
#include "compute/log/read_log.h"
#include "compute/owner/find_extent.h"
#include "compute/owner/members.h"

namespace pando {
namespace {

// Whoever found no room looks again after this.
constexpr int64_t kRoomAgainNs = 200 * kMillisecondNs;
// Somebody else may have got the room a moment ago, and owns the key in a moment.
constexpr int64_t kOthersJoinNs = kSecondNs;
// After nobody has asked for so long this wait begins anew; for the silent, after twice as long as
// they are waited for: who asks now and then, for a shorter time, comes to the end of that, too.
constexpr int64_t kAnewNs = kSecondNs;
// As ClientOptions::log_bytes.
constexpr uint64_t kLogBytesMin = 64 << 10;
// Of what is asked of a server that may say nothing.
constexpr int64_t kAskNs = kSecondNs;

}  // namespace

absl::StatusOr<LogExtent> LogRoom::Obtain(OperationContext& context) {
  SessionContext& session = context.session;
  // Who waits asks again at once. Since when something was so for others, some time ago, says
  // nothing of how long it is so now.
  const int64_t quiet_ns = session.NowNs() - asked_ns_;
  if (quiet_ns > kAnewNs) no_room_since_ns_ = 0;
  if (quiet_ns > 2 * silent_ns_max_) unanswered_since_ns_ = 0;
  absl::Status freed = FreeUnsure(context);
  absl::StatusOr<LogExtent> extent = freed.ok() ? Find(context) : std::move(freed);
  asked_ns_ = session.NowNs();
  return extent;
}

absl::StatusOr<LogExtent> LogRoom::Find(OperationContext& context) {
  const auto now_ns = [&] { return context.session.NowNs(); };
  if (now_ns() < again_ns_) return no_room_;
  const int64_t begun_ns = now_ns();
  ExtentSearch search(parts_.control, parts_.members->Ids());
  absl::StatusOr<LogExtent> extent = search.Find(context, parts_.wished_bytes);
  const absl::Status refusal = extent.status();
  if (extent.ok()) unanswered_since_ns_ = 0;
  if (!absl::IsResourceExhausted(refusal)) return extent;
  if (search.all_answered()) {
    unanswered_since_ns_ = 0;
  } else {
    // A log stays as small as it is made. So who is silent for a moment is waited for.
    if (unanswered_since_ns_ == 0) unanswered_since_ns_ = begun_ns;
    if (now_ns() < unanswered_since_ns_ + silent_ns_max_) {
      return absl::AbortedError(
          absl::StrCat("a memory server that does not answer may have room for a redo log, others "
                       "have not: ",
                       refusal.message()));
    }
  }
  if (search.largest_bytes() < parts_.wished_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a redo log of ", parts_.wished_bytes,
                     " bytes fits into no memory server that answers: the largest has ",
                     search.largest_bytes(), "; use a smaller log_bytes"));
  }
  // Who says nothing leaves time for those behind, of so many, and for a smaller log.
  const auto part = [&](size_t of) {
    const int64_t left_ns = std::max<int64_t>(0, context.deadline_ns() - now_ns());
    const int64_t share_ns = std::min(left_ns / 2 / static_cast<int64_t>(of), kAskNs);
    return OperationContext(context,
                            search.all_answered() ? context.deadline_ns() : now_ns() + share_ns);
  };
  // Rule W7: where an ended member has its log, its server gives what it has kept, once nothing of
  // the ended one is in flight there any more.
  PANDO_ASSIGN_OR_RETURN(const std::vector<MemberId> ended, parts_.list_ended(context));
  for (size_t i = 0; i < ended.size(); ++i) {
    const absl::StatusOr<LogEntry> log = FindEntry<LogEntry>(context, *parts_.map, ended[i]);
    if (!log.ok()) continue;
    OperationContext fencing = part(ended.size() - i);
    (void)AwaitFence(fencing, *parts_.control, log->extent.server, ended[i].compute_server,
                     ended[i].incarnation);
  }
  if (!ended.empty()) extent = search.Find(context, parts_.wished_bytes);
  // What ended members have left comes to the leaves as far as these have room, for nobody: a log
  // that nobody needs is freed.
  if (absl::IsResourceExhausted(extent.status())) {
    for (size_t i = 0; i < ended.size(); ++i) {
      OperationContext bringing = part(ended.size() - i);
      parts_.bring_to_leaves(bringing, ended[i]);
    }
    OperationContext freeing = part(1);
    parts_.free_lost(freeing);
    extent = search.Find(context, parts_.wished_bytes);
  }
  // Less will do.
  for (uint64_t bytes = parts_.wished_bytes / 2;
       bytes >= kLogBytesMin && absl::IsResourceExhausted(extent.status()); bytes /= 2) {
    extent = search.Find(context, bytes);
  }
  if (extent.ok() && extent->bytes < parts_.wished_bytes) {
    PANDO_LOG(WARNING) << "memory servers have " << extent->bytes << " bytes for a log instead of "
                       << parts_.wished_bytes;
  }
  if (extent.ok()) {
    no_room_since_ns_ = 0;
  } else if (absl::IsResourceExhausted(extent.status())) {
    no_room_ = refusal;  // of all that was wished
    if (no_room_since_ns_ == 0) no_room_since_ns_ = now_ns();
    again_ns_ = now_ns() + kRoomAgainNs;
    return refusal;
  }
  return extent;
}

bool LogRoom::others_may_join(int64_t now_ns) const {
  return no_room_since_ns_ != 0 && now_ns < no_room_since_ns_ + kOthersJoinNs;
}

absl::Status LogRoom::FreeUnsure(OperationContext& context) {
  SessionContext& session = context.session;
  absl::Status first;
  std::vector<LogExtent> left;
  for (const LogExtent& extent : std::exchange(unsure_, {})) {
    if (parts_.is_gone(extent.server) || session.LifeOf(extent.server) != extent.server_life)
      continue;
    // A READ that comes through: nothing that was sent before can land any more (rule L5).
    OperationContext reading(context, std::min(context.deadline_ns(), session.NowNs() + kAskNs));
    absl::Status clean =
        ReadLog(reading, extent, parts_.self.incarnation, /*epoch=*/1, [](Lsn, const LogMessage&) {
          return absl::OkStatus();
        }).status();
    if (clean.ok() || absl::IsDataLoss(clean)) {
      clean = FreeExtent(reading, *parts_.control, extent, parts_.self.incarnation).status();
      if (clean.ok()) continue;
    }
    left.push_back(extent);
    // Who answers nothing grants no other one either, and keeps nobody from another server.
    OperationContext asking(&session, session.NowNs() + kAskNs);
    if (ListExtents(asking, *parts_.control, extent.server).ok()) first.Update(clean);
  }
  unsure_ = std::move(left);
  return first.ok() ? first : Annotate(first, "what was to be the redo log of this compute server");
}

}  // namespace pando
