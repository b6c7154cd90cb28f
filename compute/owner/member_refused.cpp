// Records that memory servers have no room for (rule B3): they stay dirty, are tried again, and get
// new messages where the old ones hold the log's base (rule W5).
#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/owner/collect.h"
#include "compute/owner/flush.h"
#include "compute/owner/member.h"

namespace pando {
namespace {

// How often what was refused is tried again, and how much of it.
constexpr int64_t kTryRefusedNs = 200 * kMillisecondNs;
constexpr size_t kTryMax = 64;
// While others flush what is dirty.
constexpr int64_t kLessDirtyChains = 16;
// Dirty records that are looked at while their partition is locked.
constexpr size_t kLooksAtOnce = 8192;

}  // namespace

absl::Status Member::Refusal(bool overfills) const {
  if (!is_refusing()) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  // Leaves that cannot be reached: those of other keys can, as whoever looks first has seen.
  if (IsServerGone(refused_)) return overfills ? refused_ : absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("memory servers take no new keys for now; reads, updates and erases go on (",
                   refused_.ok() ? "they have just refused one" : refused_.message(), ")"));
}

bool Member::refused_is_full() const {
  return refused_bytes_.load(std::memory_order_relaxed) >= DirtyBytesMax();
}

absl::Status Member::AppendAdopted(OperationContext& context, const MappedRange& range,
                                   const std::vector<FlushItem>& refused, const absl::Status& why) {
  size_t bytes = 0;
  for (const FlushItem& item : refused) {
    bytes += item.key.size() + item.value.size() + kDirtyOverheadBytes;
  }
  // As of those that are refused while they serve (rule B3): so much may be dirty.
  const auto check_fits = [&] {
    const size_t all = refused_bytes_.load(std::memory_order_relaxed) + bytes;
    if (all <= DirtyBytesMax()) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        ToText(range.entry.owner), " has left more records that memory servers have no room for (",
        why.message(), ") than this compute server may keep"));
  };
  PANDO_RETURN_IF_ERROR(check_fits());
  // What is dirty here may be refused next: there is to be less of it first.
  adopting_bytes_.store(bytes, std::memory_order_relaxed);
  const absl::Cleanup adopted_or_not = [this] {
    adopting_bytes_.store(0, std::memory_order_relaxed);
    WakeWriters();
  };
  while (dirty_bytes_.load(std::memory_order_relaxed) >= DirtyBytesMaxNow()) {
    if (stopping_.load(std::memory_order_acquire)) return absl::AbortedError("it is being closed");
    if (context.expired()) return context.DeadlineError("flushing records to their leaves");
    // Nothing is appended yet.
    if (hurries_.load() > 0) return absl::AbortedError("the recovery goes on later");
    KickFlush();
    context.BackOff(kLessDirtyChains);
  }
  PANDO_RETURN_IF_ERROR(check_fits());
  const auto records = std::make_shared<Partition>();
  adopted_ =
      AdoptedRecords{.tree_id = range.tree_id, .records = records, .since = log_->next_lsn()};
  const absl::Status appended = [&]() -> absl::Status {
    Lsn last = kNoLsn;
    for (const FlushItem& item : refused) {
      const auto reserve = [&](int64_t deadline_ns) {
        OperationContext waiting(session_, deadline_ns);
        return log_->Reserve(waiting, item.key.size(), item.value.size(),
                             RedoLog::Purpose::kReserve);
      };
      absl::StatusOr<RedoLog::Reservation> room = reserve(NowNs());
      if (!room.ok()) {
        // Messages take less once they have their batch.
        if (last != kNoLsn) PANDO_RETURN_IF_ERROR(log_->AwaitDurable(context, last));
        KickFlush();
        room = reserve(context.deadline_ns());
      }
      PANDO_RETURN_IF_ERROR(room.status());
      last = log_->Append(*std::move(room),
                          {.kind = item.erased ? LogMessage::Kind::kErase : LogMessage::Kind::kPut,
                           .tree_id = range.tree_id,
                           .key = item.key,
                           .value = item.erased ? std::string_view() : item.value});
      std::lock_guard lock(records->mutex());
      const Sizes before = SizesOf(*records);
      if (item.erased) {
        records->Erase(item.key, last);
      } else {
        records->Put(item.key, item.value, last);
      }
      NoteChange(before, *records);
    }
    return log_->AwaitDurable(context, last);
  }();
  if (!appended.ok()) {
    DropAdopted();
    return appended;
  }
  {
    std::lock_guard lock(records->mutex());
    const Sizes before = SizesOf(*records);
    std::vector<FlushItem> items;
    (void)records->CollectDirty("", "", log_->durable(), /*refused=*/true, SIZE_MAX, &items);
    for (const FlushItem& item : items) records->EndFlush(item, FlushResult::kRefused);
    NoteChange(before, *records);
  }
  std::lock_guard lock(mutex_);
  refused_ = why;
  stats_.adopted_messages += refused.size();
  return absl::OkStatus();
}

void Member::DropAdopted() {
  if (!adopted_.has_value()) return;
  const std::shared_ptr<Partition> records = std::exchange(adopted_, std::nullopt)->records;
  std::lock_guard lock(records->mutex());
  const Sizes before = SizesOf(*records);
  records->Drop();
  NoteChange(before, *records);
}

void Member::NoteRefusing() {
  // What another session is told meanwhile counts.
  const std::lock_guard refusing_lock(refusing_mutex_);
  bool refusing = false;
  for (const OwnedTree* const tree : OpenTrees()) {
    for (OwnRange* const range : tree->OwnRanges()) {
      std::lock_guard lock(range->partition.mutex());
      refusing = refusing || range->partition.refused().records > 0;
    }
  }
  is_refusing_.store(refusing, std::memory_order_relaxed);
}

// What memory servers have refused is tried again, a little at a time (rule B3).
void Member::TryRefused(OperationContext& context) {
  if (NowNs() < try_refused_ns_) return;
  try_refused_ns_ = NowNs() + kTryRefusedNs;
  for (const auto& [tree, range] : Places()) {
    // As long as all of it is taken: there is memory again.
    bool all_taken = true;
    while (all_taken && !context.expired()) {
      std::vector<FlushItem> items;
      {
        std::lock_guard lock(range->partition.mutex());
        if (range->partition.refused().records == 0) {
          range->NoteAllTried();
          break;
        }
      }
      // Where others go, it may fit: round and round.
      range->try_from =
          CollectDirty(context, range, log_->durable(), std::max(range->try_from, range->low), "",
                       {.refused = true, .records_max = kTryMax}, &items);
      all_taken = FlushItems(context, tree, range, items).ok() && !items.empty();
      if (range->try_from.empty()) range->NoteAllTried();
      FlushOverdue(context);
      if (flushing_->is_wanted()) break;  // the next range has its turn, and then who waits
    }
  }
  const std::vector<Place> places = Places();
  if (std::ranges::none_of(places, [](const Place& place) { return place.range->full.load(); })) {
    std::lock_guard lock(mutex_);
    if (absl::IsResourceExhausted(refused_)) refused_ = LeavesGoneError();
  }
  NoteRefusing();
}

void Member::SeeDirty(OperationContext& context, OwnRange* range,
                      absl::FunctionRef<void(const Partition::Seen&)> see) {
  std::string from = range->low;
  bool more = true;
  while (more) {
    size_t looks = 0;
    more = false;
    {
      std::lock_guard lock(range->partition.mutex());
      range->partition.Scan(from, "", /*reverse=*/false, [&](const Partition::Seen& seen) {
        more = looks++ == kLooksAtOnce;
        if (more) {
          from = seen.key;
        } else {
          see(seen);
        }
        return !more;
      });
      range->Charge(context.session, looks);
    }
    if (more) context.session.scheduler().Yield();
  }
}

size_t Member::AppendAgain(OperationContext& context, Lsn below, bool erases) {
  struct Refused {
    Lsn lsn;
    const OwnedTree* tree;
    OwnRange* range;
    std::string key;
    size_t value_bytes;
  };
  std::vector<Refused> oldest;
  // What is not appended again holds the base. What is behind it would take the last of the room,
  // and free none.
  Lsn held = std::min(below, kept_lsn_);
  if (adopted_.has_value()) held = std::min(held, adopted_->since);
  for (const auto& [tree, range] : Places()) {
    SeeDirty(context, range, [&, tree = tree, range = range](const Partition::Seen& seen) {
      if (seen.lsn >= below) return;
      if (!seen.refused && !(erases && seen.erased)) {
        held = std::min(held, seen.lsn);
        return;
      }
      oldest.push_back({.lsn = seen.lsn,
                        .tree = tree,
                        .range = range,
                        .key = std::string(seen.key),
                        .value_bytes = seen.value.size()});
    });
  }
  std::erase_if(oldest, [held](const Refused& refused) { return refused.lsn > held; });
  std::sort(oldest.begin(), oldest.end(),
            [](const Refused& a, const Refused& b) { return a.lsn < b.lsn; });
  size_t appended = 0;
  bool has_tombstones = false;
  Lsn last = kNoLsn;
  for (size_t i = 0; i < oldest.size();) {
    const Refused& refused = oldest[i];
    // Nobody makes room but this session: there is some, or there is none.
    OperationContext now(session_, NowNs());
    absl::StatusOr<RedoLog::Reservation> room =
        log_->Reserve(now, refused.key.size(), refused.value_bytes, RedoLog::Purpose::kReserve);
    if (!room.ok()) {
      // Messages take less once they have their batch.
      OperationContext soon(context, std::min(context.deadline_ns(), NowNs() + kJobNsMin));
      if (last == kNoLsn || !log_->AwaitDurable(soon, last).ok()) break;
      last = kNoLsn;
      continue;
    }
    ++i;
    std::lock_guard lock(refused.range->partition.mutex());
    Partition& partition = refused.range->partition;
    const Partition::View view = partition.Find(refused.key);
    const bool erased = view.state == RecordState::kTombstone;
    if (!erased && view.state != RecordState::kDirty) continue;  // it is in its leaf
    if (view.lsn != refused.lsn) continue;                       // it is newer
    last = log_->Append(*std::move(room),
                        {.kind = erased ? LogMessage::Kind::kErase : LogMessage::Kind::kPut,
                         .tree_id = refused.tree->id(),
                         .key = refused.key,
                         .value = erased ? std::string_view() : view.value});
    partition.Renew(refused.key, last);
    has_tombstones = has_tombstones || erased;
    ++appended;
  }
  if (has_tombstones) appended_.NoteAppendedAgain();  // rule B5
  return appended;
}

}  // namespace pando
