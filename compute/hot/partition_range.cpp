// What happens to many records: flushes, eviction, scans, moves.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/rule.h"
#include "compute/hot/partition.h"

namespace pando {
namespace {

bool IsBefore(std::string_view key, std::string_view to) { return to.empty() || key < to; }

}  // namespace

bool Partition::MayCollect(const HotRecord* record, Lsn durable, bool refused) const {
  return !record->Has(HotRecord::kFlushing) && record->lsn() <= durable &&
         (refused || !record->Has(HotRecord::kRefused));
}

void Partition::Collect(HotRecord* record, std::vector<FlushItem>* out) {
  record->Set(HotRecord::kFlushing);
  out->push_back({.key = std::string(record->key()),
                  .value = std::string(record->value()),
                  .erased = record->state() == RecordState::kTombstone,
                  .lsn = record->lsn()});
}

void Partition::CollectDirty(std::string_view from, std::string_view to, Lsn durable, bool refused,
                             size_t max, std::vector<FlushItem>* out) {
  Path path;
  index_.Find(from, &path);
  for (size_t n = 0; n < max && index_.ToDirty(&path); index_.Next(&path)) {
    HotRecord* const record = pool_.At(index_.At(path));
    if (!IsBefore(record->key(), to)) return;
    if (!MayCollect(record, durable, refused)) continue;
    Collect(record, out);
    ++n;
  }
}

void Partition::CollectOldest(Lsn below, Lsn durable, bool tombstones, size_t max,
                              std::vector<FlushItem>* out) {
  std::array<RecordHandle, 2> next = {tombstones ? 0 : lists_[kPuts].first,
                                      lists_[kTombstones].first};
  const auto lsn_of = [this](RecordHandle handle) {
    return handle == 0 ? UINT64_MAX : pool_.At(handle)->lsn();
  };
  for (size_t n = 0; n < max;) {
    RecordHandle& lower = lsn_of(next[0]) < lsn_of(next[1]) ? next[0] : next[1];
    if (lower == 0) return;
    HotRecord* const record = pool_.At(lower);
    const HotRecord::DirtyPart part = record->dirty();
    if (part.lsn >= below || part.lsn > durable) return;
    if (MayCollect(record, durable, true)) {
      Collect(record, out);
      ++n;
    }
    lower = part.next;
  }
}

void Partition::EndFlush(const FlushItem& item, FlushResult result) {
  Path path;
  PANDO_CHECK(index_.Find(item.key, &path)) << "a record that is being flushed stays";
  const RecordHandle handle = index_.At(path);
  HotRecord* const record = pool_.At(handle);
  PANDO_CHECK(IsDirty(record->state()) && record->Has(HotRecord::kFlushing));
  record->Clear(HotRecord::kFlushing);
  if (result != FlushResult::kFailed) SetRefused(record, result == FlushResult::kRefused);
  if (result != FlushResult::kDone) return;
  if (record->lsn() != item.lsn && RuleHolds(Rule::kB3)) return;
  Unlink(path, handle);
  if (record->state() == RecordState::kTombstone) {
    --records_;
    Remove(&path, handle);
  } else {
    Store(&path, handle, RecordState::kClean, record->bits(), item.key, item.value);
  }
}

void Partition::SetRefused(HotRecord* record, bool refused) {
  if (record->Has(HotRecord::kRefused) == refused) return;
  const size_t bytes = record->key().size() + record->value().size();
  --AmountOf(record).records;
  AmountOf(record).bytes -= bytes;
  refused ? record->Set(HotRecord::kRefused) : record->Clear(HotRecord::kRefused);
  ++AmountOf(record).records;
  AmountOf(record).bytes += bytes;
}

size_t Partition::CountDirty(std::string_view from, std::string_view to) const {
  Path path;
  size_t end = dirty().records + refused().records;
  if (!to.empty()) {
    index_.Find(to, &path);
    end = index_.DirtyBefore(path);
  }
  index_.Find(from, &path);
  return end - std::min(end, index_.DirtyBefore(path));
}

Lsn Partition::LowestDirty() const {
  const Lsn put = LowestOf(lists_[kPuts]), tombstone = LowestOf(lists_[kTombstones]);
  return put == 0 || (tombstone != 0 && tombstone < put) ? tombstone : put;
}

size_t Partition::Evict(size_t bytes, size_t looks_max) {
  if (pool_.chunks() == 1) return 0;  // never had a record
  const size_t before = this->bytes();
  const auto freed = [&] { return before - std::min(before, this->bytes()); };
  const size_t first_slot = hand_slot_;
  // One more: of the chunk where it begins, what is before the hand comes last.
  for (size_t chunks = pool_.chunks() + 1;; --chunks) {
    if (hand_slot_ == 0 && chunks > 1 && pool_.IsSparse(hand_chunk_)) {
      looks_max -= std::min(looks_max, pool_.SlotsOf(hand_chunk_));
      MoveTogether(hand_chunk_);
    }
    const size_t last = chunks > 1 ? SIZE_MAX : first_slot;
    for (; hand_slot_ < std::min(last, pool_.SlotsOf(hand_chunk_)); ++hand_slot_) {
      if (freed() >= bytes || looks_max == 0) return freed();
      --looks_max;
      Look(pool_.HandleOf(hand_chunk_, hand_slot_));
    }
    if (chunks == 1) return freed();
    hand_slot_ = 0;
    if (++hand_chunk_ == pool_.chunks()) hand_chunk_ = 1;
  }
}

void Partition::Look(RecordHandle handle) {
  HotRecord* const record = pool_.At(handle);
  if (record->state() != RecordState::kClean) return;
  if (record->Has(HotRecord::kRef)) {
    record->Clear(HotRecord::kRef);
    return;
  }
  Path path;
  PANDO_CHECK(index_.Find(record->key(), &path));
  Remove(&path, handle);
  --records_;
}

void Partition::MoveTogether(size_t chunk) {
  pool_.Close(chunk);
  for (size_t slot = 0; slot < pool_.SlotsOf(chunk); ++slot) {
    const RecordHandle handle = pool_.HandleOf(chunk, slot);
    if (pool_.At(handle)->state() != RecordState::kAbsent) Move(handle);
  }
}

void Partition::Move(RecordHandle from) {
  const HotRecord* const record = pool_.At(from);
  Path path;
  PANDO_CHECK(index_.Find(record->key(), &path));
  const RecordHandle to = pool_.Allocate(record->bytes());
  std::memcpy(static_cast<void*>(pool_.At(to)), record, record->bytes());
  index_.Set(path, to);
  if (IsDirty(record->state())) {
    List& list = ListOf(record->state());
    const HotRecord::DirtyPart own = record->dirty();
    if (own.previous == 0) {
      list.first = to;
    } else {
      HotRecord::DirtyPart part = pool_.At(own.previous)->dirty();
      part.next = to;
      pool_.At(own.previous)->set_dirty(part);
    }
    if (own.next == 0) {
      list.last = to;
    } else {
      HotRecord::DirtyPart part = pool_.At(own.next)->dirty();
      part.previous = to;
      pool_.At(own.next)->set_dirty(part);
    }
  }
  pool_.Free(from);
}

void Partition::Scan(std::string_view from, std::string_view to, bool reverse,
                     absl::FunctionRef<bool(const Seen&)> see) const {
  Path path;
  if (!reverse) {
    index_.Find(from, &path);
  } else if (to.empty()) {
    index_.ToEnd(&path);
  } else {
    index_.Find(to, &path);
  }
  for (bool more = reverse ? index_.Previous(&path) : index_.ToRecord(&path); more;
       more = reverse ? index_.Previous(&path) : index_.Next(&path)) {
    const HotRecord* const record = pool_.At(index_.At(path));
    if (reverse ? record->key() < from : !IsBefore(record->key(), to)) return;
    if (record->state() == RecordState::kLoading) continue;
    if (!see({.key = record->key(),
              .value = record->value(),
              .erased = record->state() == RecordState::kTombstone,
              .lsn = record->lsn()})) {
      return;
    }
  }
}

void Partition::MoveTo(std::string_view from, std::string_view to, Partition* empty) {
  Path path;
  empty->index_.ToEnd(&path);
  PANDO_CHECK(!empty->index_.Previous(&path)) << "what is moved goes to an empty partition";
  // In LSN order, as the other's list needs it; what is clean first.
  std::vector<std::pair<Lsn, RecordHandle>> moving;
  index_.Find(from, &path);
  for (bool more = index_.ToRecord(&path); more; more = index_.Next(&path)) {
    const RecordHandle handle = index_.At(path);
    if (!IsBefore(pool_.At(handle)->key(), to)) break;
    moving.emplace_back(pool_.At(handle)->lsn(), handle);
  }
  std::stable_sort(moving.begin(), moving.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [lsn, handle] : moving) {
    HotRecord* const record = pool_.At(handle);
    PANDO_CHECK(index_.Find(record->key(), &path));
    if (record->state() == RecordState::kLoading) {
      LoadWaiter* const waiters = TakeWaiters(record);
      Remove(&path, handle);
      Wake(waiters, LoadWaiter::Outcome::kLook);
      continue;
    }
    Path place;
    empty->index_.Find(record->key(), &place);
    const RecordHandle moved =
        empty->Store(&place, 0, record->state(), record->bits(), record->key(), record->value());
    ++empty->records_;
    if (lsn != 0) {
      empty->Link(place, moved, lsn);
      Unlink(path, handle);
    }
    --records_;
    Remove(&path, handle);
  }
  empty->highest_ = highest_;
}

void Partition::Drop() {
  for (size_t chunk = 1; chunk < pool_.chunks(); ++chunk) {
    for (size_t slot = 0; slot < pool_.SlotsOf(chunk); ++slot) {
      HotRecord* const record = pool_.At(pool_.HandleOf(chunk, slot));
      if (record->state() != RecordState::kLoading) continue;
      Wake(TakeWaiters(record), LoadWaiter::Outcome::kLook);
    }
  }
  index_.Clear();
  pool_.Clear();
  lists_ = {};
  dirty_ = {};
  records_ = 0;
  hand_chunk_ = 1;
  hand_slot_ = 0;
}

void Partition::Check() const {
  size_t places = 0, records = 0, dirty = 0;
  for (size_t chunk = 1; chunk < pool_.chunks(); ++chunk) {
    for (size_t slot = 0; slot < pool_.SlotsOf(chunk); ++slot) {
      const HotRecord* const record = pool_.At(pool_.HandleOf(chunk, slot));
      if (record->state() == RecordState::kAbsent) continue;
      ++places;
      records += record->state() == RecordState::kLoading ? 0 : 1;
      dirty += IsDirty(record->state()) ? 1 : 0;
    }
  }
  PANDO_CHECK_EQ(index_.Check(), places);
  PANDO_CHECK_EQ(records, records_);
  PANDO_CHECK_EQ(dirty, dirty_[0].records + dirty_[1].records);
  std::array<Amount, 2> amounts;
  for (const List& list : lists_) {
    RecordHandle previous = 0;
    Lsn lsn = 0;
    for (RecordHandle handle = list.first; handle != 0; handle = pool_.At(handle)->dirty().next) {
      const HotRecord* const record = pool_.At(handle);
      PANDO_CHECK_EQ(record->dirty().previous, previous);
      PANDO_CHECK_GT(record->lsn(), lsn);
      PANDO_CHECK((record->state() == RecordState::kTombstone) == (&list == &lists_[kTombstones]));
      Amount& amount = amounts[record->Has(HotRecord::kRefused) ? 1 : 0];
      ++amount.records;
      amount.bytes += record->key().size() + record->value().size();
      previous = handle;
      lsn = record->lsn();
    }
    PANDO_CHECK_EQ(previous, list.last);
    PANDO_CHECK_LE(lsn, highest_);
  }
  for (size_t i = 0; i < amounts.size(); ++i) {
    PANDO_CHECK_EQ(amounts[i].records, dirty_[i].records);
    PANDO_CHECK_EQ(amounts[i].bytes, dirty_[i].bytes);
  }
  PANDO_CHECK_LE(pool_.bytes(), pool_.heap_bytes());
}

}  // namespace pando
