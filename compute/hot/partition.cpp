// What happens to one record.
#include "compute/hot/partition.h"

#include <atomic>

#include "common/base/check.h"

namespace pando {
namespace {

std::atomic<uint64_t> loads{0};  // numbers given so far, in this process

}  // namespace

Partition::~Partition() { Drop(); }

Partition::View Partition::Find(std::string_view key) const {
  Path path;
  if (!index_.Find(key, &path)) return {};
  HotRecord* const record = pool_.At(index_.At(path));
  View view{
      .state = record->state(), .flushing = record->Has(HotRecord::kFlushing), .record = record};
  if (view.state == RecordState::kLoading) {
    view.load = {record->load().load};
  } else {
    view.value = record->value();
    view.lsn = record->lsn();
  }
  return view;
}

RecordHandle Partition::Store(Path* path, RecordHandle old, RecordState state, uint8_t bits,
                              std::string_view key, std::string_view value) {
  const size_t bytes = HotRecord::BytesOf(state, key.size(), value.size());
  if (old != 0 && RecordPool::SlotBytes(bytes) == RecordPool::SlotBytes(pool_.At(old)->bytes())) {
    pool_.At(old)->Write(state, bits, key, value);
    return old;
  }
  const RecordHandle handle = pool_.Allocate(bytes);
  pool_.At(handle)->Write(state, bits, key, value);
  if (old == 0) {
    index_.Insert(path, key, handle);
  } else {
    index_.Set(*path, handle);
    pool_.Free(old);
  }
  return handle;
}

void Partition::Remove(Path* path, RecordHandle handle) {
  index_.Erase(path);
  pool_.Free(handle);
}

void Partition::Link(const Path& path, RecordHandle handle, Lsn lsn) {
  PANDO_CHECK_GT(lsn, highest_) << "messages of a partition come in the order of their LSNs";
  highest_ = lsn;
  HotRecord* const record = pool_.At(handle);
  List& list = ListOf(record->state());
  record->set_dirty({.lsn = lsn, .previous = list.last, .next = 0});
  if (list.last == 0) {
    list.first = handle;
  } else {
    HotRecord* const last = pool_.At(list.last);
    HotRecord::DirtyPart part = last->dirty();
    part.next = handle;
    last->set_dirty(part);
  }
  list.last = handle;
  Amount& amount = AmountOf(record);
  ++amount.records;
  amount.bytes += record->key().size() + record->value().size();
  index_.CountDirty(path, 1);
}

void Partition::Unlink(const Path& path, RecordHandle handle) {
  const HotRecord* const record = pool_.At(handle);
  List& list = ListOf(record->state());
  const HotRecord::DirtyPart own = record->dirty();
  if (own.previous == 0) {
    list.first = own.next;
  } else {
    HotRecord::DirtyPart part = pool_.At(own.previous)->dirty();
    part.next = own.next;
    pool_.At(own.previous)->set_dirty(part);
  }
  if (own.next == 0) {
    list.last = own.previous;
  } else {
    HotRecord::DirtyPart part = pool_.At(own.next)->dirty();
    part.previous = own.previous;
    pool_.At(own.next)->set_dirty(part);
  }
  Amount& amount = AmountOf(record);
  --amount.records;
  amount.bytes -= record->key().size() + record->value().size();
  index_.CountDirty(path, -1);
}

void Partition::Write(RecordState state, std::string_view key, std::string_view value, Lsn lsn) {
  PANDO_CHECK(!key.empty() && key.size() <= HotRecord::kKeyBytesMax)
      << key.size() << " bytes of key";
  PANDO_CHECK_LE(value.size(), HotRecord::kValueBytesMax);
  Path path;
  RecordHandle old = 0;
  uint8_t bits = 0;
  LoadWaiter* waiters = nullptr;
  if (index_.Find(key, &path)) {
    old = index_.At(path);
    HotRecord* const record = pool_.At(old);
    // A second use; and a flush in flight stays one.
    bits = record->bits() | HotRecord::kRef;
    if (IsDirty(record->state())) Unlink(path, old);
    if (record->state() == RecordState::kLoading) {
      waiters = TakeWaiters(record);
      ++records_;
    }
  } else {
    ++records_;
  }
  Link(path, old = Store(&path, old, state, bits, key, value), lsn);
  Wake(waiters, LoadWaiter::Outcome::kLook);
}

void Partition::Put(std::string_view key, std::string_view value, Lsn lsn) {
  Write(RecordState::kDirty, key, value, lsn);
}

void Partition::Erase(std::string_view key, Lsn lsn) {
  Write(RecordState::kTombstone, key, {}, lsn);
}

void Partition::Renew(std::string_view key, Lsn lsn) {
  Path path;
  PANDO_CHECK(index_.Find(key, &path)) << "only a dirty record is appended again";
  const RecordHandle handle = index_.At(path);
  PANDO_CHECK(IsDirty(pool_.At(handle)->state())) << "only a dirty record is appended again";
  Unlink(path, handle);
  Link(path, handle, lsn);
}

Load Partition::BeginLoad(std::string_view key) {
  PANDO_CHECK(!key.empty() && key.size() <= HotRecord::kKeyBytesMax)
      << key.size() << " bytes of key";
  Path path;
  PANDO_CHECK(!index_.Find(key, &path)) << "a load begins where there is no record";
  const Load load{loads.fetch_add(1, std::memory_order_relaxed) + 1};
  const RecordHandle handle = Store(&path, 0, RecordState::kLoading, 0, key, {});
  pool_.At(handle)->set_load({.load = load.number, .first = nullptr});
  return load;
}

bool Partition::EndLoad(std::string_view key, Load load, std::optional<std::string_view> value,
                        bool keep) {
  Path path;
  if (!index_.Find(key, &path)) return false;
  const RecordHandle handle = index_.At(path);
  if (!IsOfLoad(pool_.At(handle), load)) return false;
  LoadWaiter* const waiters = TakeWaiters(pool_.At(handle));
  if (value.has_value() && (keep || waiters != nullptr) && bytes() < kBytesMax) {
    PANDO_CHECK_LE(value->size(), HotRecord::kValueBytesMax);
    Store(&path, handle, RecordState::kClean, waiters != nullptr ? HotRecord::kRef : 0, key,
          *value);
    ++records_;
  } else {
    Remove(&path, handle);
  }
  Wake(waiters, value.has_value() ? LoadWaiter::Outcome::kLook : LoadWaiter::Outcome::kNotFound);
  return true;
}

bool Partition::AbandonLoad(std::string_view key, Load load) {
  Path path;
  if (!index_.Find(key, &path)) return false;
  const RecordHandle handle = index_.At(path);
  if (!IsOfLoad(pool_.At(handle), load)) return false;
  LoadWaiter* const waiters = TakeWaiters(pool_.At(handle));
  Remove(&path, handle);
  Wake(waiters, LoadWaiter::Outcome::kLook);
  return true;
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
  Path path;
  PANDO_CHECK(index_.Find(key, &path)) << "a waiter waits for a placeholder";
  HotRecord* const placeholder = pool_.At(index_.At(path));
  PANDO_CHECK(placeholder->state() == RecordState::kLoading);
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
