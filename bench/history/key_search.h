// The search behind CheckKey() (key_checker.h): what it keeps, and its steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "bench/history/key_checker.h"

namespace pando::history {

inline constexpr size_t kSlots = 256;  // operations in progress at once
inline constexpr int32_t kSomeValue = -1;
inline constexpr size_t kNone = SIZE_MAX;

// Operations in progress that have taken effect, by slot.
struct SlotSet {
  std::array<uint64_t, kSlots / 64> words{};

  bool Has(size_t slot) const { return (words[slot / 64] >> (slot % 64) & 1) != 0; }
  void Add(size_t slot) { words[slot / 64] |= uint64_t{1} << (slot % 64); }
  void Remove(size_t slot) { words[slot / 64] &= ~(uint64_t{1} << (slot % 64)); }
  friend bool operator==(const SlotSet&, const SlotSet&) = default;
};

struct Configuration {
  int32_t state = kAbsent;  // kSomeValue: present, and nobody will ask which value
  uint16_t unknown_stores = 0, unknown_deletes = 0;  // used up
  SlotSet done;

  bool present() const { return state != kAbsent; }
  friend bool operator==(const Configuration&, const Configuration&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Configuration& c) {
    return H::combine(std::move(h), c.state, c.unknown_stores, c.unknown_deletes, c.done.words);
  }
};

// What was said of one key, and what can have happened so far.
class Search {
 public:
  using Kind = KeyOperation::Kind;

  // `upserts`: nullptr, or there are some and values are what that knows.
  Search(int32_t initial, std::vector<KeyOperation> operations, const KeyLimits& limits,
         const UpsertFunctions* upserts = nullptr)
      : initial_(initial),
        operations_(std::move(operations)),
        limits_(limits),
        upserts_(upserts),
        unique_(upserts == nullptr) {
    if (upserts == nullptr) NumberValues();
  }

  KeyVerdict Run();

 private:
  // What is known of one value: its store and its reads.
  struct Value {
    size_t stores = 0;
    size_t store = kNone;              // the last seen
    size_t reads_to_come = 0;          // not yet called
    size_t deadline = kNone;           // position of the first return among store and reads
    size_t first_read_return = kNone;  // an operation; swaps and conditional erases read, too
    size_t taker = kNone;              // the swap or conditional erase that took it away for sure
    bool may_be_taken = false;         // by one of unknown outcome
    bool leads_to_erase = false;       // over swaps, to a conditional erase
  };
  struct Event {
    int64_t time_ns;
    bool is_return;
    size_t operation;
  };

  static bool IsStore(const KeyOperation& o) {
    return o.kind == Kind::kPut || o.kind == Kind::kInsert || o.kind == Kind::kUpdate ||
           o.kind == Kind::kSwap;
  }
  static bool ErasesAny(Kind kind) { return kind == Kind::kDelete || kind == Kind::kClear; }
  static bool Takes(const KeyOperation& o) {
    return o.kind == Kind::kSwap || o.kind == Kind::kEraseIf;
  }

  // Of unknown outcome, and kept apart from others of its kind until it can happen no more. (One
  // that leads to a conditional erase may happen at any time here: that asks for too much, and is
  // rare.)
  bool IsBounded(const KeyOperation& o) const {
    if (!o.unknown || o.latest_ns == INT64_MAX) return false;
    if (!unique_) return true;
    const bool is_kind = o.kind == Kind::kDelete || o.kind == Kind::kPut || o.kind == Kind::kInsert;
    return is_kind && !values_[o.value].leads_to_erase;
  }
  KeyVerdict Violation(size_t operation, const char* why) const {
    return {Verdict::kViolation, why, operation};
  }
  void NumberValues();
  bool CollectValues(KeyVerdict* verdict);
  bool SettleUnknown(KeyVerdict* verdict);
  bool SettleStore(const Value& value, bool* changed, KeyVerdict* verdict);
  bool CollectTakers(KeyVerdict* verdict);
  bool NoteRead(size_t operation, int32_t of, KeyVerdict* verdict);
  void MakeEvents();
  bool OnCall(size_t operation);
  bool OnReturn(size_t operation, KeyVerdict* verdict);
  // From now on one of unknown outcome has happened, or never will.
  bool OnLatest(size_t operation);
  // Of what can have happened, into reached_: everything after which this one has. False: too much.
  bool Force(size_t operation);
  void Retire(size_t operation);
  void Settle(Configuration* c) const;
  bool SwapOnce(Configuration* c) const;
  void SettleOnce(Configuration* c) const;
  void Take(Configuration* c, size_t operation) const;
  void Expand(const Configuration& c, size_t forced);
  void ExpandAny(const Configuration& c);
  // What the operation leaves, if it can happen.
  std::optional<int32_t> Effect(const Configuration& c, size_t operation) const;
  void ExpandAbsent(const Configuration& c);
  void ExpandPresent(const Configuration& c, size_t forced);
  void ExpandTaken(const Configuration& c);
  void TryRootOf(const Configuration& c, int32_t value);
  void TryStore(const Configuration& c, size_t store);
  void Reach(Configuration next);
  // Nothing more will be asked of its value, nor of those that swaps make of it: all of them have
  // been called.
  bool IsWhole(size_t store) const;
  // It is done, as whole, with its swaps.
  void TakeWhole(Configuration* c, size_t store) const;
  bool IsPending(size_t operation) const { return slot_of_[operation] != kNone; }
  size_t Deadline(size_t operation) const;
  // The pending one of a kind, not done and whole, with the earliest deadline. `unknown`: of
  // unknown outcome, or none of these.
  size_t Earliest(const Configuration& c, Kind kind, bool unknown = false) const;
  bool MayBecomeAbsent(const Configuration& c, size_t deadline) const;

  int32_t initial_;
  std::vector<KeyOperation> operations_;
  const KeyLimits limits_;
  const UpsertFunctions* const upserts_;
  bool unique_;  // each value is stored once: the facts of the header may be used

  std::vector<Value> values_;  // by number, [kAbsent] is unused
  std::vector<bool> dropped_;
  std::vector<bool> settled_;            // stores of unknown outcome, which a read has told
  std::vector<size_t> return_position_;  // in events_; kNone: never
  std::vector<Event> events_;
  std::vector<size_t> delete_calls_;                   // positions in events_, ascending
  size_t now_ = 0;                                     // position in events_
  uint16_t unknown_stores_ = 0, unknown_deletes_ = 0;  // called so far

  std::vector<size_t> pending_;  // operations
  std::vector<size_t> slot_of_;  // by operation
  std::vector<size_t> free_slots_;
  std::vector<Configuration> configurations_;
  size_t looked_at_ = 0;

  // Of the expansion in progress.
  size_t forced_ = kNone;
  std::vector<Configuration> frontier_;
  absl::flat_hash_set<Configuration> seen_, reached_;
};

}  // namespace pando::history
