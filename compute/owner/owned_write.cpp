// Writes of an owned tree: decided in memory, acknowledged from the log (rules T4 to T6).
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/index/write_decision.h"
#include "compute/owner/member.h"
#include "compute/owner/owned_tree.h"

namespace pando {
namespace {

// Puts of one call that are appended before anybody waits for the first of them.
constexpr size_t kRunMax = 64;

// Of broken variants: between two steps that should be one.
void LetOthers(OperationContext& context, std::unique_lock<Partition::Mutex>* lock) {
  lock->unlock();
  context.session.scheduler().SleepUntil(context.session.NowNs() + context.session.WaitNs(1));
  lock->lock();
}

}  // namespace

// What a write makes of its key.
struct OwnedTree::Decision {
  WriteEffect effect = WriteEffect::kNone;
  std::string computed;  // by an upsert
  absl::Status result;
};

std::optional<Lsn> OwnedTree::Store(OwnRange* range, RedoLog::Reservation* reservation,
                                    const Partition::View& view, std::string_view key,
                                    std::optional<std::string_view> value) {
  Partition& partition = range->partition;
  const LogMessage message = {
      .kind = value.has_value() ? LogMessage::Kind::kPut : LogMessage::Kind::kErase,
      .tree_id = id(),
      .key = key,
      .value = value.value_or(std::string_view())};
  const std::optional<Lsn> lsn = reservation->holds_room()
                                     ? member_.log().Append(std::move(*reservation), message)
                                     : member_.TryAppend(message);
  if (!lsn.has_value()) return std::nullopt;
  const Member::Sizes before = Member::SizesOf(partition);
  if (value.has_value()) {
    partition.Put(view, key, *value, *lsn);
  } else {
    partition.Erase(view, key, *lsn);
  }
  member_.NoteChange(before, partition);
  member_.Evict(&partition);
  return lsn;
}

bool OwnedTree::Overfills(const Partition::View& view, size_t value_bytes) const {
  const bool is_dirty = view.state == RecordState::kDirty || view.state == RecordState::kTombstone;
  return is_dirty && view.record->Has(HotRecord::kRefused) && value_bytes > view.value.size() &&
         member_.refused_is_full();
}

OwnedTree::Decision OwnedTree::Decide(const WriteOperation& operation,
                                      std::optional<std::string_view> present,
                                      std::string* answer) const {
  Decision decision;
  if (operation.kind != WriteKind::kUpsert) {
    decision.effect = DecideWrite(
        operation, present.has_value(), [&] { return *present; }, &decision.result, answer);
    return decision;
  }
  decision.effect = DecideUpsert(operation, present, leaves_.layout.value_bytes_max(),
                                 &decision.computed, &decision.result, answer);
  if (decision.effect == WriteEffect::kStore && answer != nullptr) {
    answer->assign(decision.computed);
  }
  return decision;
}

std::optional<absl::StatusOr<Lsn>> OwnedTree::AppendBlind(OperationContext& context,
                                                          std::string_view key,
                                                          std::optional<std::string_view> value,
                                                          Replaced* replaced) {
  const size_t value_bytes = value.has_value() ? value->size() : 0;
  const uint64_t hash = HashOf(key);
  RedoLog::Reservation reservation;
  while (true) {
    OwnRange* const range = FindOwn(key);
    if (range == nullptr) return std::nullopt;
    range->partition.PrefetchForWrite(hash);
    PANDO_RETURN_IF_ERROR(AwaitLease(context));
    Lock lock(range->partition.mutex());
    PANDO_RETURN_IF_ERROR(AwaitServing(context, range, &lock));
    if (range->state != OwnRange::State::kServing) continue;
    range->meter.Note(key);
    PANDO_ASSIGN_OR_RETURN(const bool waited, AwaitUnlent(context, range, &lock));
    if (waited) [[unlikely]]
      continue;
    if (!RuleHolds(Rule::kT4Hold)) LetOthers(context, &lock);
    const Partition::View view = range->partition.Find(key, hash);
    if (replaced != nullptr) [[unlikely]]
      NoteReplaced(*range, view, replaced);
    const std::optional<Lsn> lsn = Store(range, &reservation, view, key, value);
    if (lsn.has_value()) [[likely]]
      return *lsn;
    lock.unlock();
    PANDO_ASSIGN_OR_RETURN(reservation, member_.ReserveForWrite(context, key.size(), value_bytes));
    // While it waited memory servers may have begun to refuse new keys (rule B3).
    if (value.has_value() && member_.is_refusing()) return kNoLsn;
  }
}

std::optional<absl::Status> OwnedTree::WriteKnowing(OperationContext& context,
                                                    const WriteOperation& operation,
                                                    std::string* answer, Appended* appended) {
  // Whatever the decision, it fits into what is reserved.
  const size_t value_bytes = operation.kind == WriteKind::kUpsert ? leaves_.layout.value_bytes_max()
                                                                  : operation.value.size();
  const uint64_t hash = HashOf(operation.key);
  RedoLog::Reservation reservation;
  while (true) {
    OwnRange* const range = FindOwn(operation.key);
    if (range == nullptr) return std::nullopt;
    range->partition.PrefetchForWrite(hash);
    PANDO_RETURN_IF_ERROR(AwaitLease(context));
    Lock lock(range->partition.mutex());
    PANDO_RETURN_IF_ERROR(AwaitServing(context, range, &lock));
    if (range->state != OwnRange::State::kServing) continue;
    range->meter.Note(operation.key);
    PANDO_ASSIGN_OR_RETURN(const bool waited, AwaitUnlent(context, range, &lock));
    if (waited) [[unlikely]]
      continue;
    Partition::View view = range->partition.Find(operation.key, hash);
    std::optional<std::string> found;
    std::optional<std::string_view> present;
    Load load;  // a READ that counts: its placeholder is still there
    switch (view.state) {
      case RecordState::kClean:
      case RecordState::kDirty:
        present = view.value;
        [[fallthrough]];
      case RecordState::kTombstone:
        range->partition.Touch(view.record);
        context.session.counters().owned_hits.Add();
        break;
      case RecordState::kLoading: {
        bool is_absent;
        PANDO_RETURN_IF_ERROR(AwaitLoad(context, range, operation.key, view, &lock, &is_absent));
        continue;  // what was absent then may be there now
      }
      case RecordState::kAbsent: {
        PANDO_ASSIGN_OR_RETURN(load, ReadLeaf(context, range, operation.key, view, &lock, &found));
        view = range->partition.Find(operation.key);
        const bool counts = view.state == RecordState::kLoading && view.load == load &&
                            range->state == OwnRange::State::kServing &&
                            // Else it was lent meanwhile, and waits for that.
                            (range->lending.MayWrite() || !RuleHolds(Rule::kO15Write));
        if (!counts) {
          KeepLoaded(context, range, operation.key, load, found);
          continue;
        }
        if (found.has_value()) present = *found;
        if (!RuleHolds(Rule::kT5Hold)) {
          LetOthers(context, &lock);
          view = range->partition.Find(operation.key);
        }
        break;
      }
    }
    const Decision decision = Decide(operation, present, answer);
    const bool stores = decision.effect == WriteEffect::kStore;
    const std::string_view value =
        operation.kind == WriteKind::kUpsert ? decision.computed : operation.value;
    // Where memory servers refuse new keys they are not taken into the log either (rule B3).
    absl::Status refusal;
    if (decision.effect != WriteEffect::kNone && member_.is_refusing()) {
      const bool overfills = stores && Overfills(view, value.size());
      if (stores && (!present.has_value() || overfills)) refusal = member_.Refusal(overfills);
      // Its leaf may be out of reach, and there is no room for more of those: whoever READs it is
      // told.
      if (view.state == RecordState::kClean && member_.refused_is_full()) {
        const Member::Sizes before = Member::SizesOf(range->partition);
        range->partition.Forget(operation.key);
        member_.NoteChange(before, range->partition);
        continue;
      }
    }
    if (decision.effect == WriteEffect::kNone || !refusal.ok()) {
      if (load != Load()) KeepLoaded(context, range, operation.key, load, found);
      lock.unlock();
      PANDO_RETURN_IF_ERROR(refusal);
      PANDO_RETURN_IF_ERROR(ConcludeRead(context, RuleHolds(Rule::kT5) ? view.lsn : kNoLsn));
      return decision.result;
    }
    std::optional<CellReference> replaced;
    if (appended != nullptr && present.has_value()) replaced = CellOfStored(*present);
    const std::optional<Lsn> lsn = Store(range, &reservation, view, operation.key,
                                         stores ? std::optional(value) : std::nullopt);
    if (lsn.has_value()) [[likely]] {
      lock.unlock();
      if (appended == nullptr) return ConcludeWrite(context, *lsn);
      *appended = {.lsn = *lsn, .replaced = replaced};
      return absl::OkStatus();
    }
    if (load != Load()) KeepLoaded(context, range, operation.key, load, found);
    lock.unlock();
    PANDO_ASSIGN_OR_RETURN(reservation,
                           member_.ReserveForWrite(context, operation.key.size(), value_bytes));
  }
}

std::optional<absl::Status> OwnedTree::WriteHere(OperationContext& context,
                                                 const WriteOperation& operation,
                                                 std::string* answer) {
  if (cells_.has_value()) [[unlikely]]
    return WriteWithCells(context, operation, answer);
  if (operation.kind != WriteKind::kPut || member_.is_refusing()) [[unlikely]] {
    return WriteKnowing(context, operation, answer);
  }
  const std::optional<absl::StatusOr<Lsn>> lsn =
      AppendBlind(context, operation.key, operation.value);
  if (!lsn.has_value()) return std::nullopt;
  PANDO_RETURN_IF_ERROR(lsn->status());
  if (**lsn == kNoLsn) [[unlikely]]
    return WriteKnowing(context, operation, answer);
  return ConcludeWrite(context, **lsn);
}

size_t OwnedTree::WriteRun(OperationContext& context, absl::Span<const RunWrite> writes) {
  if (cells_.has_value()) return WriteRunWithCells(context, writes);
  std::array<Lsn, kRunMax> lsns;
  size_t appended = 0;
  while (appended < std::min(writes.size(), kRunMax)) {
    const WriteOperation& operation = *writes[appended].operation;
    if (operation.kind != WriteKind::kPut || member_.is_refusing()) break;
    const std::optional<absl::StatusOr<Lsn>> lsn =
        AppendBlind(context, operation.key, operation.value);
    if (!lsn.has_value() || (lsn->ok() && **lsn == kNoLsn)) break;
    lsns[appended] = lsn->value_or(kNoLsn);
    *writes[appended++].result = lsn->status();
    if (!lsn->ok()) break;
  }
  if (appended == 0) {
    *writes[0].result = Write(context, *writes[0].operation, writes[0].answer);
    return 1;
  }
  for (size_t i = 0; i < appended; ++i) {
    if (writes[i].result->ok()) *writes[i].result = ConcludeWrite(context, lsns[i]);
  }
  return appended;
}

}  // namespace pando
