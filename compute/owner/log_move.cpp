#include "compute/owner/log_move.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/base/time_constants.h"
#include "compute/owner/flush.h"

namespace pando {
namespace {

// Keys that are looked for in one hold of a partition's mutex.
constexpr size_t kKeysMax = 256;
// Of the change of `l`: nothing is acknowledged before it is known.
constexpr int64_t kCommitNsMax = 10 * kSecondNs;

absl::Status KeptError() {
  return absl::FailedPreconditionError(
      "an owned tree was closed before all of its records were in their leaves, and the log that "
      "has them cannot be written again: close the client");
}

absl::Status OtherEntryError() {
  return absl::FailedPreconditionError(
      "the cluster tree has another log of this compute server, or none: it was taken for dead");
}

}  // namespace

absl::Status LogMove::Run(OperationContext& context, RedoLog* log, LogEntry* entry) {
  const Turnstile::Pass pass(&turnstile_);
  PANDO_RETURN_IF_ERROR(SettleEntry(context, entry));
  if (log->failure().ok()) return absl::OkStatus();
  if (parts_.kept_lsn() != kNoneKept) return KeptError();
  PANDO_RETURN_IF_ERROR(CheckEntry(context, *entry));
  if (is_stuck_) PANDO_RETURN_IF_ERROR(Touch(context, entry));
  // Not the server that the log has failed on. In another life it is as good as any; and where the
  // last attempt has come to name its extent after all, that is not why it failed.
  const ServerId server = entry->extent.server;
  const bool to_blame = entry->epoch != blameless_epoch_ &&
                        context.session.LifeOf(server) == entry->extent.server_life;
  // For as many attempts as it takes: one that had more than it asked for may have failed, too.
  const uint64_t bytes = std::max({entry->extent.bytes, log->extent_bytes(), bytes_});
  has_begun_ = true;
  const absl::StatusOr<LogExtent> found =
      parts_.find_extent(context, bytes, to_blame ? server : ServerId{0}, failed_on_);
  if (absl::IsUnavailable(found.status())) {  // there is no other one
    return absl::ResourceExhaustedError(found.status().message());
  }
  PANDO_RETURN_IF_ERROR(found.status());
  const LogExtent extent = *found;
  epoch_ = std::max(epoch_, entry->epoch) + 1;
  const LogEntry desired = {.stamp = parts_.stamps->Next(), .extent = extent, .epoch = epoch_};
  bool is_written = false;
  const absl::Status moved = log->Move(
      context, extent, epoch_, [&] { return AppendAgain(context, log); },
      [&]() -> absl::Status {
        is_written = true;
        if (parts_.kept_lsn() < log->base()) return absl::AbortedError(KeptError().message());
        if (!RuleHolds(Rule::kW6Entry)) return absl::OkStatus();
        const absl::Status committed = Commit(context, desired, entry);
        is_stuck_ = !committed.ok() && !change_.has_value();
        return committed;
      });
  if (moved.ok()) bytes_ = 0;
  // It may answer, and no chain come through to it: another one comes first the next time.
  failed_on_ = moved.ok() || is_written ? ServerId{0} : extent.server;
  // Now it has failed where the entry says that the log is.
  if (moved.ok() || (!is_written && extent.server == server)) blameless_epoch_ = 0;
  if (!absl::IsResourceExhausted(moved)) return moved;
  bytes_ = 2 * extent.bytes;
  return absl::AbortedError(moved.message());
}

// --- What is dirty.

std::vector<std::string> LogMove::SomeKeys(Partition* records, Lsn below, std::string* from) {
  std::vector<std::string> keys;
  size_t looks = 0;
  std::string next;
  std::lock_guard lock(records->mutex());
  records->Scan(*from, "", /*reverse=*/false, [&](const Partition::Seen& seen) {
    if (looks++ == kKeysMax) {
      next = seen.key;
      return false;
    }
    if (seen.lsn < below) keys.emplace_back(seen.key);
    return true;
  });
  *from = std::move(next);
  return keys;
}

absl::Status LogMove::AppendAgain(OperationContext& context, RedoLog* log) const {
  if (!RuleHolds(Rule::kW6Dirty)) return absl::OkStatus();
  const Lsn below = log->base();
  // A range may be divided meanwhile, and its records be where this has been already. The last
  // round finds nothing, and nobody else runs while it looks.
  for (bool found = true; found;) {
    found = false;
    for (const Source& source : parts_.sources()) {
      std::string from;
      do {
        const std::vector<std::string> keys = SomeKeys(source.records.get(), below, &from);
        for (const std::string& key : keys) {
          PANDO_RETURN_IF_ERROR(AppendAgain(context, log, source, key, below));
        }
        if (keys.empty()) continue;
        found = true;
        context.session.scheduler().Yield();
      } while (!from.empty());
    }
  }
  return absl::OkStatus();
}

absl::Status LogMove::AppendAgain(OperationContext& context, RedoLog* log, const Source& source,
                                  const std::string& key, Lsn below) const {
  for (bool again : {false, true}) {
    {
      std::lock_guard lock(source.records->mutex());
      const Partition::View view = source.records->Find(key);
      const bool erased = view.state == RecordState::kTombstone;
      if (!erased && view.state != RecordState::kDirty) return absl::OkStatus();
      if (view.lsn >= below) return absl::OkStatus();
      const std::optional<Lsn> lsn =
          log->TryAppend({.kind = erased ? LogMessage::Kind::kErase : LogMessage::Kind::kPut,
                          .tree_id = source.tree_id,
                          .key = key,
                          .value = erased ? std::string_view() : view.value},
                         RedoLog::Purpose::kMove);
      if (lsn.has_value()) {
        source.records->Renew(key, *lsn);
        return absl::OkStatus();
      }
    }
    PANDO_RETURN_IF_ERROR(log->failure());
    // Messages take less once they have their batch.
    if (!again) PANDO_RETURN_IF_ERROR(log->AwaitComplete(context, log->next_lsn() - 1));
  }
  return absl::ResourceExhaustedError("a log of that size has no room for what is dirty");
}

// --- The log's entry.

absl::Status LogMove::SettleEntry(OperationContext& context, LogEntry* entry) {
  if (!change_.has_value()) return absl::OkStatus();
  MapChange& change = change_->first;
  const absl::Status settled = change.Settle(context, *parts_.map);
  if (!settled.ok()) {
    if (!change.uncertain()) change_.reset();  // nothing has happened, and nothing will
    return settled;
  }
  const bool done = change.decision() == MapChange::Decision::kDone;
  if (done) {
    if (change_->second.epoch != entry->epoch) blameless_epoch_ = change_->second.epoch;
    *entry = change_->second;
  }
  change_.reset();
  if (done) return absl::OkStatus();
  return OtherEntryError();
}

absl::Status LogMove::CheckEntry(OperationContext& context, const LogEntry& entry) const {
  const auto now = FindEntry<LogEntry>(context, *parts_.map, parts_.self);
  if (absl::IsNotFound(now.status())) return OtherEntryError();
  if (IsServerGone(now.status())) return absl::ResourceExhaustedError(now.status().message());
  PANDO_RETURN_IF_ERROR(now.status());
  return now->stamp == entry.stamp ? absl::OkStatus() : OtherEntryError();
}

absl::Status LogMove::Touch(OperationContext& context, LogEntry* entry) {
  LogEntry same = *entry;
  same.stamp = parts_.stamps->Next();
  PANDO_RETURN_IF_ERROR(Commit(context, same, entry));
  is_stuck_ = false;
  return absl::OkStatus();
}

absl::Status LogMove::Commit(OperationContext& context, const LogEntry& desired, LogEntry* entry) {
  change_ = {ChangeEntry(parts_.self, *entry, desired), desired};
  OperationContext settling(&context.session, context.session.NowNs() + kCommitNsMax);
  return SettleEntry(settling, entry);
}

}  // namespace pando
