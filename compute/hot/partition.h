// The in-memory side of one owned range of one tree: hot records, and writes that their leaves do
// not have yet (rules T1, T2). It knows no coroutines, no log and no fabric: it is the state that
// rules T3 to T9, B3 and W5 speak of, and each of its functions is one step of them.
//
// Thread safety: mutex() is the callers' to lock, around everything but the constructor,
// FindShown(), Prefetch() and PrefetchForWrite(); the ownership check, the LSN from the log and the
// change of the record are one step under it (rule T4). It is never held across a suspension. What
// functions return (views, records) is good while it is held.
// Invariants:
//   1. A key has one record or none. LSNs of a partition only rise, and each is that of one key's
//      newest message.
//   2. A dirty record or tombstone stays until a flush of exactly its LSN has ended well (rule
//      B3). Only clean records are evicted (rule T7).
//   3. A READ counts only if the placeholder of its own load is still there (rule T3): whatever
//      else became of the record meanwhile, dirty, flushed and evicted included, ends the load.
//      That is what pins are for in rules T2 and T3; numbers of loads are never used again, in no
//      partition of the process.
//   4. A waiter is woken once: when its placeholder goes, whatever the cause.
//   5. At most one flush of a record is in flight (rule B3).
//   6. Finding, touching and waiting allocate nothing.
//   7. A clean record of 8/8 takes at most 28 bytes of heap, a dirty one 40; others key + value +
//      16, and + 38. (A quarter of the slots of each size may be free besides: record_pool.h.) The
//      front grows to an eighth of that on top, at most, or to eight slots. Where records go it
//      stays as large, until Evict() finds that it has more than a quarter.
//   8. What is dirty, and nothing else, has a place in the order of keys.
//   9. What FindShown() finds is a clean or dirty record as Find() would say it in that call, but
//      that the LSN of a clean one may be that of its last message, which is durable (rule T9).
// Keys have 1 to 240 bytes, values up to 255 (CHECKed). Keys and values that are passed lie outside
// the partition.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/base/busy_periods.h"
#include "common/base/spinning_mutex.h"
#include "common/wire/lsn.h"
#include "compute/hot/load_waiter.h"
#include "compute/hot/lsn_counts.h"
#include "compute/hot/record.h"
#include "compute/hot/record_front.h"
#include "compute/hot/record_index.h"
#include "compute/hot/record_pool.h"
#include "compute/hot/record_table.h"

namespace pando {

// A message on its way to its leaf: a copy.
struct FlushItem {
  std::string key, value;
  bool erased = false;
  Lsn lsn = 0;
  uint64_t owing = 0;  // Partition::owing() when it was collected
};

enum class FlushResult : uint8_t {
  kDone,
  kFailed,   // stays dirty: again later
  kRefused,  // stays dirty: memory servers do not take it, and it does not count for the high mark
             // (rule B3)
};

// One READ of a leaf for one key.
struct Load {
  uint64_t number = 0;  // 0: none

  friend bool operator==(const Load&, const Load&) = default;
};

class Partition {
 public:
  // Of records: beyond, nothing more is kept as clean.
  static constexpr size_t kBytesMax = RecordPool::kBytesMax / 2;

  struct View {
    RecordState state = RecordState::kAbsent;
    bool flushing = false;
    std::string_view value;       // of a clean or dirty one
    Lsn lsn = 0;                  // to wait for before it is shown; 0: durable
    Load load;                    // of a placeholder
    HotRecord* record = nullptr;  // for Touch() and Wait(), until anything else is called

   private:
    friend class Partition;
    uint64_t hash = 0;
    RecordHandle* place = nullptr;
  };
  struct Amount {
    size_t records = 0, bytes = 0;  // of keys and values
  };

  Partition() = default;
  ~Partition();
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;

  using Mutex = SpinningMutex;
  Mutex& mutex() { return mutex_; }
  // When that is held, where time is simulated.
  BusyPeriods& busy() { return busy_; }

  // --- Rule T9.
  // Any thread, without the mutex. True: it is shown. Else that says nothing. `value` may be
  // nullptr. `hash` is HashOf(key).
  bool FindShown(std::string_view key, uint64_t hash, std::string* value, Lsn* lsn) const {
    return front_.Find(key, hash, value, lsn);
  }
  // A clean or dirty record as Find() has just said, in a range that serves, which is popular: it
  // is shown from now on, unless its place has one that was found since.
  void Show(const View& view);
  // Nothing is shown, until Show(): the range does not serve any more.
  void StopShowing() { front_.Close(); }

  // --- Rules T3 to T5.
  // Any thread, without the mutex. Of a key that Find() is asked for soon: its bucket comes nearer.
  void Prefetch(uint64_t hash) const { table_.Prefetch(hash); }
  // The same, and its place in the front, which a write has to change.
  void PrefetchForWrite(uint64_t hash) const {
    table_.Prefetch(hash);
    front_.Prefetch(hash);
  }
  // Under the mutex, of a record that will be looked at soon.
  void PrefetchRecord(uint64_t hash) const { table_.PrefetchRecord(hash); }
  View Find(std::string_view key) const { return Find(key, HashOf(key)); }
  View Find(std::string_view key, uint64_t hash) const;
  void Touch(HotRecord* record) { record->Set(HotRecord::kRef); }
  // The key's newest message, whatever was there. Waiters of a placeholder are woken: they find it.
  void Put(std::string_view key, std::string_view value, Lsn lsn) {
    Write(RecordState::kDirty, Find(key), key, value, lsn);
  }
  // A tombstone, also where nothing was.
  void Erase(std::string_view key, Lsn lsn) {
    Write(RecordState::kTombstone, Find(key), key, {}, lsn);
  }
  // The same where Find(key) has just said `view`: nothing was called since.
  void Put(const View& view, std::string_view key, std::string_view value, Lsn lsn) {
    Write(RecordState::kDirty, view, key, value, lsn);
  }
  void Erase(const View& view, std::string_view key, Lsn lsn) {
    Write(RecordState::kTombstone, view, key, {}, lsn);
  }
  // The message of a dirty record was appended again (rule W5): same value, new LSN.
  void Renew(std::string_view key, Lsn lsn);

  // A READ of the leaf begins: where Find() said kAbsent.
  Load BeginLoad(std::string_view key) { return BeginLoad(Find(key), key); }
  Load BeginLoad(const View& view, std::string_view key);
  // It was answered; nullopt: the leaf does not have the key. False: it does not count, the caller
  // looks again. Else the record is kept as clean if `keep`, or if somebody waits for it.
  bool EndLoad(std::string_view key, Load load, std::optional<std::string_view> value, bool keep);
  // It failed, or its reader has not polled for too long (by whom Wait()s: View::load): the
  // placeholder goes, if it is still of this load, and waiters try themselves. The READ does not
  // count any more.
  bool AbandonLoad(std::string_view key, Load load);
  // On a placeholder. The waiter is new, or done with an earlier wait.
  void Wait(HotRecord* placeholder, LoadWaiter* waiter);
  // Must be called before the waiter goes, after the last Wait(). True: it was still waiting.
  bool StopWaiting(std::string_view key, LoadWaiter* waiter);

  // --- Rules B2, B3, W5. What is collected is marked flushing and must come back by EndFlush().
  // Taken is only what is not flushing, with LSNs up to `durable`: who takes more waits before it
  // is flushed. What was refused only if `refused`; what holds the base only, with LSNs below
  // `below`. In key order: of the keys from <= key < to (to empty: no end). Ends when `max` are
  // taken or `looks_max` were looked at: returns where the next call goes on; "": there are no
  // more. `tombstones`: those alone (rule B5); `owed`: what is owed alone.
  std::string CollectDirty(std::string_view from, std::string_view to, Lsn durable, bool refused,
                           size_t max, std::vector<FlushItem>* out, Lsn below = UINT64_MAX,
                           size_t looks_max = SIZE_MAX, bool tombstones = false, bool owed = false);
  // Rule B4. What is dirty now is owed from now on: until its leaf has what the record has now, or
  // something newer, whatever is written to it meanwhile. Nothing may be owed before (CHECKed).
  void Owe();
  size_t owed() const { return owed_; }      // records
  uint64_t owing() const { return owing_; }  // how often Owe() was called
  void EndFlush(const FlushItem& item, FlushResult result) {
    EndFlush(item, result, HashOf(item.key));
  }
  void EndFlush(const FlushItem& item, FlushResult result, uint64_t hash);
  // How many of these keys are dirty or tombstones, without looking at each: for grouping them by
  // level-1 node.
  size_t CountDirty(std::string_view from, std::string_view to) const;
  // At or below the lowest LSN that a dirty record has (lsn_counts.h); 0: none is dirty.
  Lsn LowestDirty() const { return lsns_.lowest(); }
  // LowestDirty() tells messages from `next` on from those before. Those are yet to come.
  void DivideLsns(Lsn next) { lsns_.Divide(next); }
  // The same of tombstones alone (rule B5), and how many there are.
  Lsn LowestTombstone() const { return tombstones_.lowest(); }
  void DivideTombstones(Lsn next) { tombstones_.Divide(next); }
  size_t tombstones() const { return tombstones_.count(); }

  // --- Rule K7. Whether a key that has no record may have had one in between, of a put that a
  // flush has brought to its leaf: a READ of the leaf from before that moment may not say what it
  // has.
  struct Moment {
    uint64_t puts_flushed = 0, clean_removed = 0;
  };
  Moment now() const { return now_; }
  bool MayHaveForgotten(const Moment& since) const {
    return now_.puts_flushed != since.puts_flushed && now_.clean_removed != since.clean_removed;
  }

  // --- Rule T7. Frees clean records that were not used since the clock last came by, until so many
  // bytes() are gone, it has gone round once, or has looked at so many places (one takes some
  // nanoseconds). Returns what it has freed.
  size_t Evict(size_t bytes, size_t looks_max = SIZE_MAX);
  // So many places the clock has looked at.
  uint64_t looks() const { return looks_; }

  // --- Rule T8. What is dirty of the keys from <= key < to (to empty: no end) in order, or in
  // descending order: what leaves may not have. `see` returns false to stop.
  struct Seen {
    std::string_view key, value;
    bool erased, refused;
    Lsn lsn;
  };
  void Scan(std::string_view from, std::string_view to, bool reverse,
            absl::FunctionRef<bool(const Seen&)> see) const;

  // --- Rule O10. A partition is divided in two steps.
  // What is dirty of these keys moves to an empty partition, whose mutex is held as well. Flushes
  // in flight end over there.
  void MoveDirtyTo(std::string_view from, std::string_view to, Partition* empty);
  // Then what is clean of them follows, unless the key has a record there. Loads of these keys end,
  // their waiters begin anew. Looks at so many places, from `at` on. False: that was all.
  struct Place {
    size_t chunk = 1, slot = 0;
  };
  bool MoveCleanTo(std::string_view from, std::string_view to, size_t looks_max, Place* at,
                   Partition* other);
  // What is clean, or loading, of a key that is another partition's now is not to follow any more.
  void Forget(std::string_view key);

  // --- Rule O7.
  // Forgets everything, what is dirty included; waiters are woken.
  void Drop();

  size_t records() const { return records_; }  // placeholders not
  // The front's included.
  size_t bytes() const { return pool_.bytes() + table_.bytes() + index_.bytes() + front_.bytes(); }
  size_t heap_bytes() const {
    return pool_.heap_bytes() + table_.bytes() + index_.bytes() + front_.bytes();
  }
  // Dirty records and tombstones that count for the high mark, and those that were refused.
  const Amount& dirty() const { return dirty_[0]; }
  const Amount& refused() const { return dirty_[1]; }

  // For tests: aborts unless the invariants hold.
  void Check() const;

 private:
  using Path = RecordIndex::Path;

  static void Wake(LoadWaiter* first, LoadWaiter::Outcome outcome);

  // Of a dirty record.
  Lsn LsnOf(const HotRecord* record) const {
    return highest_ - static_cast<uint32_t>(static_cast<uint32_t>(highest_) - record->dirty().lsn);
  }
  // Of a dirty record.
  bool IsOwed(const HotRecord* record) const {
    return record->Has(HotRecord::kOdd) != (owing_ % 2 == 1);
  }
  // Of one that does not count as dirty.
  void SetNotOwed(HotRecord* record) const {
    owing_ % 2 == 1 ? record->Set(HotRecord::kOdd) : record->Clear(HotRecord::kOdd);
  }
  Amount& AmountOf(const HotRecord* record) {
    return dirty_[record->Has(HotRecord::kRefused) ? 1 : 0];
  }
  bool IsOfLoad(const HotRecord* record, Load load) const {
    return record->state() == RecordState::kLoading && record->load().load == load.number;
  }
  // A message: kDirty or kTombstone.
  void Write(RecordState state, const View& view, std::string_view key, std::string_view value,
             Lsn lsn);
  // Puts a record in place of what is there (nullptr: nothing), which does not count as dirty.
  // Without its part.
  RecordHandle Store(RecordHandle* place, uint64_t hash, RecordState state, uint8_t bits,
                     std::string_view key, std::string_view value);
  void Remove(RecordHandle* place, uint64_t hash);
  void RemoveClean(RecordHandle* place, uint64_t hash);
  // Of a placeholder: it goes, whoever waits for it looks again.
  void DropLoad(RecordHandle* place, uint64_t hash);
  // A dirty record's place in the order of keys: it has none yet; it has one; it has none any more.
  void AddToOrder(std::string_view key, RecordHandle handle);
  void AddToOrder(std::string_view key, RecordHandle handle, Path* path);  // after FindLeaf()
  void FindInOrder(std::string_view key, Path* path) const;
  void TakeFromOrder(std::string_view key);
  // Of a dirty record, its bytes and its LSN, which it gets, count from now on; or no more.
  void NoteDirty(HotRecord* record, Lsn lsn);
  void NoteClean(const HotRecord* record);
  void SetRefused(HotRecord* record, bool refused);
  void Collect(HotRecord* record, std::vector<FlushItem>* out);
  // The waiters of a placeholder, to be woken once it is gone.
  static LoadWaiter* TakeWaiters(HotRecord* record);
  // Of all there are, in the order of their slots.
  template <typename Each>
  void ForEach(Each each) const;
  // Of a record that the front may show: it has changed. False: it is not shown (any more).
  bool ChangeShown(uint64_t hash, const HotRecord* record, Lsn lsn);
  // The clock's: the record goes, or has been seen.
  void Look(RecordHandle handle);
  // What a chunk has goes to others of its size.
  void MoveTogether(size_t chunk);
  void Move(RecordHandle from);

  RecordFront front_;        // read by all: nothing that is written often shares its lines
  alignas(64) Mutex mutex_;  // alone: others look at it while it is held
  alignas(64) BusyPeriods busy_;
  RecordPool pool_;
  RecordTable table_{&pool_};
  RecordIndex index_{&pool_};  // of what is dirty
  LsnCounts lsns_;             // of what is dirty
  LsnCounts tombstones_;       // of it, what are tombstones
  std::array<Amount, 2> dirty_;
  size_t records_ = 0;
  Lsn highest_ = 0;
  uint64_t owing_ = 0;
  size_t owed_ = 0;
  Moment now_;
  size_t hand_chunk_ = 1, hand_slot_ = 0;  // of the clock
  uint64_t looks_ = 0;
};

}  // namespace pando
