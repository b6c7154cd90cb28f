// What happens to many records: flushes, eviction, scans, moves.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/rule.h"
#include "compute/hot/partition.h"

namespace pando {
namespace {

// With fewer bytes of records to one of the front it is too large.
constexpr size_t kRecordsToFrontMin = 4;
// Records that CollectDirty() fetches before it looks at them.
constexpr uint32_t kFetchedAhead = 8;
// Places that the clock looks ahead, for the buckets of what it may free.
constexpr size_t kClockAhead = 4;

bool IsBefore(std::string_view key, std::string_view to) { return to.empty() || key < to; }

}  // namespace

void Partition::Collect(HotRecord* record, std::vector<FlushItem>* out) {
  record->Set(HotRecord::kFlushing);
  table_.Prefetch(HashOf(record->key()));  // for EndFlush(), soon
  out->push_back({.key = std::string(record->key()),
                  .value = std::string(record->value()),
                  .erased = record->state() == RecordState::kTombstone,
                  .lsn = LsnOf(record),
                  .owing = owing_});
}

std::string Partition::CollectDirty(std::string_view from, std::string_view to, Lsn durable,
                                    bool refused, size_t max, std::vector<FlushItem>* out,
                                    Lsn below, size_t looks_max, bool tombstones, bool owed) {
  Path path;
  index_.Find(from, &path);
  bool more = index_.ToRecord(&path);
  for (uint32_t ahead = 1; more && ahead < kFetchedAhead; ++ahead) {
    index_.PrefetchAhead(path, ahead);
  }
  for (; more; more = index_.Next(&path), --looks_max) {
    index_.PrefetchAhead(path, kFetchedAhead);
    HotRecord* const record = pool_.At(index_.At(path));
    if (!IsBefore(record->key(), to)) break;
    if (max == 0 || looks_max == 0) return std::string(record->key());
    const Lsn lsn = LsnOf(record);
    if (lsn > durable && RuleHolds(Rule::kB3Durable)) continue;
    if (record->Has(HotRecord::kFlushing) || lsn >= below) continue;
    if (record->Has(HotRecord::kRefused) && !refused) continue;
    if (tombstones && record->state() != RecordState::kTombstone) continue;
    if (owed && !IsOwed(record)) continue;
    Collect(record, out);
    --max;
  }
  return "";
}

void Partition::Owe() {
  PANDO_CHECK_EQ(owed_, 0u) << "what was owed comes to its leaf first";
  ++owing_;  // all that is dirty now is on the other side
  owed_ = dirty().records + refused().records;
}

void Partition::EndFlush(const FlushItem& item, FlushResult result, uint64_t hash) {
  const View view = Find(item.key, hash);
  HotRecord* const record = view.record;
  PANDO_CHECK(IsDirty(view.state) && record->Has(HotRecord::kFlushing))
      << "a record that is being flushed stays";
  record->Clear(HotRecord::kFlushing);
  if (result != FlushResult::kFailed) {
    // A tombstone, only if it was the erase itself that had no chance.
    const bool is_of_it = view.state == RecordState::kDirty || item.erased;
    SetRefused(record, result == FlushResult::kRefused && is_of_it);
  }
  if (result != FlushResult::kDone) return;
  if (view.lsn != item.lsn && RuleHolds(Rule::kB3)) {
    // Its leaf has what it was when it was collected: after what is owed, if that was after Owe().
    if (item.owing == owing_ && IsOwed(record)) {
      --owed_;
      SetNotOwed(record);
    }
    return;
  }
  NoteClean(record);
  TakeFromOrder(item.key);
  if (view.state == RecordState::kTombstone) {
    --records_;
    Remove(view.place, view.hash);
  } else {
    ++now_.puts_flushed;
    Store(view.place, view.hash, RecordState::kClean, record->bits(), item.key, item.value);
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
    end = index_.RecordsBefore(path);
  }
  index_.Find(from, &path);
  return end - std::min(end, index_.RecordsBefore(path));
}

size_t Partition::Evict(size_t bytes, size_t looks_max) {
  if (pool_.chunks() == 1) return 0;  // never had a record
  const size_t before = this->bytes();
  const auto freed = [&] { return before - std::min(before, this->bytes()); };
  const size_t first_slot = hand_slot_;
  // Of records that are elsewhere by now. It comes again as large as it should be.
  if (front_.bytes() > (before - front_.bytes()) / kRecordsToFrontMin) front_.Shrink();
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
      ++looks_;
      if (hand_slot_ + kClockAhead < pool_.SlotsOf(hand_chunk_)) {
        const HotRecord* const next =
            pool_.At(pool_.HandleOf(hand_chunk_, hand_slot_ + kClockAhead));
        if (next->state() == RecordState::kClean && !next->Has(HotRecord::kRef)) {
          table_.Prefetch(HashOf(next->key()));
        }
      }
      Look(pool_.HandleOf(hand_chunk_, hand_slot_));
    }
    if (chunks == 1) return freed();
    hand_slot_ = 0;
    if (++hand_chunk_ == pool_.chunks()) hand_chunk_ = 1;
  }
}

void Partition::Look(RecordHandle handle) {
  HotRecord* const record = pool_.At(handle);
  const bool goes_dirty = record->state() == RecordState::kDirty &&
                          !record->Has(HotRecord::kFlushing) && !RuleHolds(Rule::kT7);
  if (record->state() != RecordState::kClean && !goes_dirty) return;
  if (record->Has(HotRecord::kRef)) {
    record->Clear(HotRecord::kRef);
    return;
  }
  const uint64_t hash = HashOf(record->key());
  // Hits in the front do not touch the record.
  if (record->Has(HotRecord::kShown) && front_.TakeUsed(record->key(), hash)) return;
  if (goes_dirty) {
    NoteClean(record);
    TakeFromOrder(record->key());
  }
  RemoveClean(table_.Find(handle, hash), hash);
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
  const RecordHandle to = pool_.Allocate(record->bytes());
  std::memcpy(static_cast<void*>(pool_.At(to)), record, record->bytes());
  *table_.Find(from, HashOf(record->key())) = to;
  if (IsDirty(record->state())) {
    Path path;
    FindInOrder(record->key(), &path);
    index_.Set(path, to);
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
    if (!see({.key = record->key(),
              .value = record->value(),
              .erased = record->state() == RecordState::kTombstone,
              .refused = record->Has(HotRecord::kRefused),
              .lsn = LsnOf(record)})) {
      return;
    }
  }
}

void Partition::MoveDirtyTo(std::string_view from, std::string_view to, Partition* empty) {
  PANDO_CHECK_EQ(empty->pool_.chunks(), 1u) << "what is moved goes to an empty partition";
  // In LSN order, as the other counts them.
  std::vector<std::pair<Lsn, RecordHandle>> moving;
  Path path;
  index_.Find(from, &path);
  for (bool more = index_.ToRecord(&path); more; more = index_.Next(&path)) {
    const RecordHandle handle = index_.At(path);
    if (!IsBefore(pool_.At(handle)->key(), to)) break;
    moving.emplace_back(LsnOf(pool_.At(handle)), handle);
  }
  std::sort(moving.begin(), moving.end());
  empty->owing_ = owing_;
  for (const auto& [lsn, handle] : moving) {
    const HotRecord* const record = pool_.At(handle);
    const uint64_t hash = HashOf(record->key());
    const RecordHandle moved = empty->Store(nullptr, hash, record->state(), record->bits(),
                                            record->key(), record->value());
    ++empty->records_;
    empty->NoteDirty(empty->pool_.At(moved), lsn);
    empty->AddToOrder(record->key(), moved);
    NoteClean(record);
    TakeFromOrder(record->key());
    --records_;
    Remove(table_.Find(handle, hash), hash);
  }
  empty->highest_ = highest_;
}

bool Partition::MoveCleanTo(std::string_view from, std::string_view to, size_t looks_max, Place* at,
                            Partition* other) {
  for (; at->chunk < pool_.chunks(); ++at->chunk, at->slot = 0) {
    for (; at->slot < pool_.SlotsOf(at->chunk); ++at->slot) {
      if (looks_max-- == 0) return true;
      const RecordHandle handle = pool_.HandleOf(at->chunk, at->slot);
      const HotRecord* const record = pool_.At(handle);
      const RecordState state = record->state();
      if (state != RecordState::kClean && state != RecordState::kLoading) continue;
      if (record->key() < from || !IsBefore(record->key(), to)) continue;
      const uint64_t hash = HashOf(record->key());
      RecordHandle* const place = table_.Find(handle, hash);
      if (state == RecordState::kLoading) {
        DropLoad(place, hash);
        continue;
      }
      const bool is_there = other->table_.Find(record->key(), hash) != nullptr;
      if (!is_there && other->bytes() < kBytesMax) {
        other->Store(nullptr, hash, state, record->bits(), record->key(), record->value());
        ++other->records_;
      }
      RemoveClean(place, hash);
    }
  }
  return false;
}

void Partition::Forget(std::string_view key) {
  const View view = Find(key);
  if (view.state == RecordState::kLoading) DropLoad(view.place, view.hash);
  if (view.state == RecordState::kClean) RemoveClean(view.place, view.hash);
}

template <typename Each>
void Partition::ForEach(Each each) const {
  for (size_t chunk = 1; chunk < pool_.chunks(); ++chunk) {
    for (size_t slot = 0; slot < pool_.SlotsOf(chunk); ++slot) {
      const RecordHandle handle = pool_.HandleOf(chunk, slot);
      HotRecord* const record = pool_.At(handle);
      if (record->state() != RecordState::kAbsent) each(handle, record);
    }
  }
}

void Partition::Drop() {
  ForEach([](RecordHandle, HotRecord* record) {
    if (record->state() != RecordState::kLoading) return;
    Wake(TakeWaiters(record), LoadWaiter::Outcome::kLook);
  });
  ++now_.puts_flushed, ++now_.clean_removed;
  front_.Clear();
  table_.Clear();
  index_.Clear();
  pool_.Clear();
  lsns_.Clear();
  tombstones_.Clear();
  dirty_ = {};
  owed_ = 0;
  records_ = 0;
  hand_chunk_ = 1;
  hand_slot_ = 0;
}

void Partition::Check() const {
  size_t places = 0, records = 0, dirty = 0, tombstones = 0, owed = 0;
  std::array<Amount, 2> amounts;
  ForEach([&](RecordHandle, const HotRecord* record) {
    ++places;
    records += record->state() == RecordState::kLoading ? 0 : 1;
    if (!IsDirty(record->state())) return;
    ++dirty;
    if (IsOwed(record)) ++owed;
    if (record->state() == RecordState::kTombstone) {
      ++tombstones;
      PANDO_CHECK_LE(tombstones_.lowest(), LsnOf(record));
    }
    Amount& amount = amounts[record->Has(HotRecord::kRefused) ? 1 : 0];
    ++amount.records;
    amount.bytes += record->key().size() + record->value().size();
    PANDO_CHECK_LE(LsnOf(record), highest_);
    PANDO_CHECK_LE(lsns_.lowest(), LsnOf(record));
    Path path;
    PANDO_CHECK(index_.Find(record->key(), &path) && pool_.At(index_.At(path)) == record);
  });
  PANDO_CHECK_EQ(table_.Check(), places);
  PANDO_CHECK_EQ(index_.Check(), dirty);
  PANDO_CHECK_EQ(records, records_);
  PANDO_CHECK_EQ(dirty, lsns_.count());
  PANDO_CHECK_EQ(owed, owed_);
  PANDO_CHECK_EQ(tombstones, tombstones_.count());
  for (size_t i = 0; i < amounts.size(); ++i) {
    PANDO_CHECK_EQ(amounts[i].records, dirty_[i].records);
    PANDO_CHECK_EQ(amounts[i].bytes, dirty_[i].bytes);
  }
  PANDO_CHECK_LE(pool_.bytes(), pool_.heap_bytes());
  front_.Check([&](std::string_view key, std::string_view value, Lsn lsn) {
    const View view = Find(key);
    PANDO_CHECK(view.state == RecordState::kClean || view.state == RecordState::kDirty);
    PANDO_CHECK(view.record->Has(HotRecord::kShown) && view.value == value);
    PANDO_CHECK(view.lsn == lsn || view.state == RecordState::kClean);
  });
}

}  // namespace pando
