// What happens to one record.
#include "compute/hot/partition.h"

#include <atomic>

#include "common/base/check.h"
#include "common/base/rule.h"

namespace pando {
namespace {

std::atomic<uint64_t> loads{0};  // numbers given so far, in this process
// The front may take one of so many bytes.
constexpr size_t kRecordsToFront = 8;

}  // namespace

Partition::~Partition() { Drop(); }

Partition::View Partition::Find(std::string_view key, uint64_t hash) const {
  View view;
  view.hash = hash;
  view.place = table_.Find(key, hash);
  if (view.place == nullptr) return view;
  HotRecord* const record = pool_.At(*view.place);
  view.state = record->state();
  view.flushing = record->Has(HotRecord::kFlushing);
  view.record = record;
  if (view.state == RecordState::kLoading) {
    view.load = {record->load().load};
    return view;
  }
  view.value = record->value();
  if (IsDirty(view.state)) view.lsn = LsnOf(record);
  return view;
}

RecordHandle Partition::Store(RecordHandle* place, uint64_t hash, RecordState state, uint8_t bits,
                              std::string_view key, std::string_view value) {
  const size_t bytes = HotRecord::BytesOf(state, key.size(), value.size());
  const RecordHandle old = place == nullptr ? 0 : *place;
  if (old != 0 && RecordPool::SlotBytes(bytes) == RecordPool::SlotBytes(pool_.At(old)->bytes())) {
    pool_.At(old)->Write(state, bits, key, value);
    return old;
  }
  const RecordHandle handle = pool_.Allocate(bytes);
  pool_.At(handle)->Write(state, bits, key, value);
  if (old == 0) {
    table_.Insert(hash, handle);
  } else {
    *place = handle;
    pool_.Free(old);
  }
  return handle;
}

void Partition::Remove(RecordHandle* place, uint64_t hash) {
  const RecordHandle handle = *place;
  const HotRecord* const record = pool_.At(handle);
  if (record->Has(HotRecord::kShown)) [[unlikely]]
    front_.Hide(record->key(), hash);
  table_.Erase(place, hash);
  pool_.Free(handle);
}

void Partition::RemoveClean(RecordHandle* place, uint64_t hash) {
  ++now_.clean_removed;
  --records_;
  Remove(place, hash);
}

void Partition::AddToOrder(std::string_view key, RecordHandle handle, Path* path) {
  PANDO_CHECK(!index_.FindInLeaf(key, path)) << "a record was clean and had a place in the order";
  index_.Insert(path, key, handle);
}

void Partition::AddToOrder(std::string_view key, RecordHandle handle) {
  Path path;
  index_.FindLeaf(key, &path);
  AddToOrder(key, handle, &path);
}

void Partition::FindInOrder(std::string_view key, Path* path) const {
  PANDO_CHECK(index_.Find(key, path)) << "what is dirty has its place in the order";
}

void Partition::TakeFromOrder(std::string_view key) {
  Path path;
  FindInOrder(key, &path);
  index_.Erase(&path);
}

void Partition::NoteDirty(HotRecord* record, Lsn lsn) {
  PANDO_CHECK_GT(lsn, highest_) << "messages of a partition come in the order of their LSNs";
  if (lsn >> 31 != highest_ >> 31) [[unlikely]] {
    const Lsn lowest = lsns_.lowest();
    PANDO_CHECK(lowest == kNoLsn || lsn - lowest < uint64_t{1} << 31)
        << "a record is dirty since message " << lowest << ", and this is " << lsn
        << ": halves of their numbers do not tell them apart";
  }
  highest_ = lsn;
  record->set_dirty({static_cast<uint32_t>(lsn)});
  lsns_.Add(lsn);
  if (record->state() == RecordState::kTombstone) tombstones_.Add(lsn);
  if (IsOwed(record)) ++owed_;
  Amount& amount = AmountOf(record);
  ++amount.records;
  amount.bytes += record->key().size() + record->value().size();
}

void Partition::NoteClean(const HotRecord* record) {
  lsns_.Remove(LsnOf(record));
  if (record->state() == RecordState::kTombstone) tombstones_.Remove(LsnOf(record));
  if (IsOwed(record)) --owed_;
  Amount& amount = AmountOf(record);
  --amount.records;
  amount.bytes -= record->key().size() + record->value().size();
}

void Partition::Write(RecordState state, const View& view, std::string_view key,
                      std::string_view value, Lsn lsn) {
  PANDO_CHECK(!key.empty() && key.size() <= HotRecord::kKeyBytesMax)
      << key.size() << " bytes of key";
  PANDO_CHECK_LE(value.size(), HotRecord::kValueBytesMax);
  uint8_t bits = 0;
  LoadWaiter* waiters = nullptr;
  const RecordHandle old = view.place == nullptr ? 0 : *view.place;
  const bool was_dirty = IsDirty(view.state);
  Path path;
  bool moves = false;
  // Its place in the order is on its way while the record is written.
  if (!was_dirty) index_.FindLeaf(key, &path);
  if (old != 0) {
    // A second use; and a flush in flight stays one.
    bits = view.record->bits() | HotRecord::kRef;
    // An erase needs no memory of memory servers: it has a chance of its own.
    if (state == RecordState::kTombstone) bits &= static_cast<uint8_t>(~HotRecord::kRefused);
    if (was_dirty) {
      NoteClean(view.record);
      const size_t bytes = HotRecord::BytesOf(state, key.size(), value.size());
      moves = RecordPool::SlotBytes(bytes) != RecordPool::SlotBytes(view.record->bytes());
      if (moves) FindInOrder(key, &path);
    }
    if (view.state == RecordState::kLoading) {
      waiters = TakeWaiters(view.record);
      ++records_;
    }
  } else {
    ++records_;
  }
  const RecordHandle handle = Store(view.place, view.hash, state, bits, key, value);
  HotRecord* const record = pool_.At(handle);
  // What was owed of the key still is: its leaf does not have it (rule B4).
  if (!was_dirty || !RuleHolds(Rule::kB4)) SetNotOwed(record);
  NoteDirty(record, lsn);
  if (record->Has(HotRecord::kShown) && !ChangeShown(view.hash, record, lsn)) {
    record->Clear(HotRecord::kShown);
  }
  if (!was_dirty) {
    AddToOrder(key, handle, &path);
  } else if (moves) {
    index_.Set(path, handle);
  }
  Wake(waiters, LoadWaiter::Outcome::kLook);
}

void Partition::Renew(std::string_view key, Lsn lsn) {
  const View view = Find(key);
  PANDO_CHECK(IsDirty(view.state)) << "only a dirty record is appended again";
  NoteClean(view.record);
  if (!RuleHolds(Rule::kB4)) SetNotOwed(view.record);
  NoteDirty(view.record, lsn);
  if (view.record->Has(HotRecord::kShown)) ChangeShown(view.hash, view.record, lsn);
}

void Partition::Show(const View& view) {
  PANDO_CHECK(view.state == RecordState::kClean || view.state == RecordState::kDirty);
  const size_t records_bytes = bytes() - front_.bytes();
  if (front_.Show(view.record->key(), view.hash, view.value, view.lsn,
                  records_bytes / kRecordsToFront)) {
    view.record->Set(HotRecord::kShown);
  }
}

bool Partition::ChangeShown(uint64_t hash, const HotRecord* record, Lsn lsn) {
  if (!RuleHolds(Rule::kT9Put)) return true;
  if (record->state() == RecordState::kDirty) {
    return front_.Change(record->key(), hash, record->value(), lsn);
  }
  front_.Hide(record->key(), hash);
  return false;
}

Load Partition::BeginLoad(const View& view, std::string_view key) {
  PANDO_CHECK(!key.empty() && key.size() <= HotRecord::kKeyBytesMax)
      << key.size() << " bytes of key";
  PANDO_CHECK(view.place == nullptr) << "a load begins where there is no record";
  const Load load{loads.fetch_add(1, std::memory_order_relaxed) + 1};
  const RecordHandle handle = Store(nullptr, view.hash, RecordState::kLoading, 0, key, {});
  pool_.At(handle)->set_load({.load = load.number, .first = nullptr});
  return load;
}

bool Partition::EndLoad(std::string_view key, Load load, std::optional<std::string_view> value,
                        bool keep) {
  const View view = Find(key);
  const bool is_own =
      view.place != nullptr && (IsOfLoad(view.record, load) ||
                                (view.state == RecordState::kLoading && !RuleHolds(Rule::kT2)));
  if (!is_own) return false;
  LoadWaiter* const waiters = TakeWaiters(view.record);
  if (value.has_value() && (keep || waiters != nullptr) && bytes() < kBytesMax) {
    PANDO_CHECK_LE(value->size(), HotRecord::kValueBytesMax);
    Store(view.place, view.hash, RecordState::kClean, waiters != nullptr ? HotRecord::kRef : 0, key,
          *value);
    ++records_;
  } else {
    Remove(view.place, view.hash);
  }
  Wake(waiters, value.has_value() ? LoadWaiter::Outcome::kLook : LoadWaiter::Outcome::kNotFound);
  return true;
}

bool Partition::AbandonLoad(std::string_view key, Load load) {
  const View view = Find(key);
  if (view.place == nullptr || !IsOfLoad(view.record, load)) return false;
  DropLoad(view.place, view.hash);
  return true;
}

void Partition::DropLoad(RecordHandle* place, uint64_t hash) {
  LoadWaiter* const waiters = TakeWaiters(pool_.At(*place));
  Remove(place, hash);
  Wake(waiters, LoadWaiter::Outcome::kLook);
}

void Partition::Wait(HotRecord* placeholder, LoadWaiter* waiter) {
  PANDO_CHECK(placeholder->state() == RecordState::kLoading && waiter->next == nullptr);
  waiter->outcome = LoadWaiter::Outcome::kWaiting;
  HotRecord::LoadPart part = placeholder->load();
  if (part.first == nullptr) {
    waiter->previous = waiter->next = waiter;
    part.first = waiter;
    placeholder->set_load(part);
    return;
  }
  waiter->next = part.first;
  waiter->previous = part.first->previous;
  waiter->previous->next = part.first->previous = waiter;
}

bool Partition::StopWaiting(std::string_view key, LoadWaiter* waiter) {
  if (waiter->next == nullptr) return false;
  HotRecord* const placeholder = Find(key).record;
  PANDO_CHECK(placeholder != nullptr && placeholder->state() == RecordState::kLoading)
      << "a waiter waits for a placeholder";
  HotRecord::LoadPart part = placeholder->load();
  if (part.first == waiter) {
    part.first = waiter->next == waiter ? nullptr : waiter->next;
    placeholder->set_load(part);
  }
  waiter->next->previous = waiter->previous;
  waiter->previous->next = waiter->next;
  waiter->previous = waiter->next = nullptr;
  return true;
}

LoadWaiter* Partition::TakeWaiters(HotRecord* record) {
  HotRecord::LoadPart part = record->load();
  LoadWaiter* const first = part.first;
  part.first = nullptr;
  record->set_load(part);
  return first;
}

void Partition::Wake(LoadWaiter* first, LoadWaiter::Outcome outcome) {
  if (first == nullptr) return;
  first->previous->next = nullptr;
  while (first != nullptr) {
    LoadWaiter* const next = first->next;
    first->previous = first->next = nullptr;
    first->outcome = outcome;
    first->wake(first);
    first = next;
  }
}

}  // namespace pando
