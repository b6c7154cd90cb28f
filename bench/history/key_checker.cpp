#include "bench/history/key_checker.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace pando::history {
namespace {

using Kind = KeyOperation::Kind;

constexpr size_t kSlots = 256;  // operations in progress at once
constexpr int32_t kSomeValue = -1;
constexpr size_t kNone = SIZE_MAX;

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

class Search {
 public:
  Search(int32_t initial, std::vector<KeyOperation> operations, const KeyLimits& limits)
      : initial_(initial), operations_(std::move(operations)), limits_(limits) {
    NumberValues();
  }

  KeyVerdict Run();

 private:
  // What is known of one value: its store and its reads.
  struct Value {
    size_t stores = 0;
    size_t store = kNone;              // the last seen
    size_t reads_to_come = 0;          // not yet called
    size_t deadline = kNone;           // position of the first return among store and reads
    size_t first_read_return = kNone;  // an operation
  };
  struct Event {
    int64_t time_ns;
    bool is_return;
    size_t operation;
  };

  static bool IsStore(const KeyOperation& o) {
    return o.kind == Kind::kPut || o.kind == Kind::kInsert || o.kind == Kind::kUpdate;
  }

  KeyVerdict Violation(size_t operation, const char* why) const {
    return {Verdict::kViolation, why, operation};
  }
  void NumberValues();
  bool CollectValues(KeyVerdict* verdict);
  bool SettleUnknown(KeyVerdict* verdict);
  void MakeEvents();
  bool OnCall(size_t operation);
  bool OnReturn(size_t operation, KeyVerdict* verdict);
  void Settle(Configuration* c) const;
  void SettleOnce(Configuration* c) const;
  void Take(Configuration* c, size_t operation) const;
  void Expand(const Configuration& c, size_t forced);
  void ExpandAny(const Configuration& c);
  void ExpandAbsent(const Configuration& c);
  void ExpandPresent(const Configuration& c, size_t forced);
  void Reach(Configuration next);
  bool IsWhole(size_t store) const { return values_[operations_[store].value].reads_to_come == 0; }
  size_t Deadline(size_t operation) const;
  // The pending one of a kind, not done and whole, with the earliest deadline.
  size_t Earliest(const Configuration& c, Kind kind) const;
  bool MayBecomeAbsent(const Configuration& c, size_t deadline) const;

  int32_t initial_;
  std::vector<KeyOperation> operations_;
  const KeyLimits limits_;
  bool unique_ = true;  // each value is stored once: the facts of the header may be used

  std::vector<Value> values_;  // by number, [kAbsent] is unused
  std::vector<bool> dropped_;
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

// Values are small numbers from here on.
void Search::NumberValues() {
  absl::flat_hash_map<int32_t, int32_t> numbers = {{kAbsent, kAbsent}};
  const auto number = [&](int32_t value) {
    return numbers.emplace(value, static_cast<int32_t>(numbers.size())).first->second;
  };
  initial_ = number(initial_);
  for (KeyOperation& o : operations_) o.value = number(o.value);
  values_.resize(numbers.size());
}

// Finds the values' stores and reads. False: verdict.
bool Search::CollectValues(KeyVerdict* verdict) {
  const size_t count = operations_.size();
  dropped_.resize(count);
  if (initial_ != kAbsent) values_[initial_].stores = 1;
  for (size_t i = 0; i < count; ++i) {
    const KeyOperation& o = operations_[i];
    if (!IsStore(o)) continue;
    Value& value = values_[o.value];
    value.store = i;
    unique_ &= ++value.stores == 1;
  }
  for (size_t i = 0; i < count; ++i) {
    const KeyOperation& o = operations_[i];
    dropped_[i] = o.unknown && (o.kind == Kind::kSee || o.kind == Kind::kSeePresent);
    if (dropped_[i] || o.kind != Kind::kSee || o.value == kAbsent) continue;
    Value& value = values_[o.value];
    if (value.stores == 0) {
      *verdict = Violation(i, "it read a value that nobody had stored");
      return false;
    }
    ++value.reads_to_come;
    const size_t first = value.first_read_return;
    if (first == kNone || o.return_ns < operations_[first].return_ns) value.first_read_return = i;
  }
  return !unique_ || SettleUnknown(verdict);
}

// A store of unknown outcome whose value was read took effect before the first of these reads
// returned.
bool Search::SettleUnknown(KeyVerdict* verdict) {
  for (const Value& value : values_) {
    if (value.store == kNone) continue;
    KeyOperation& store = operations_[value.store];
    if (value.first_read_return != kNone) {
      const int64_t first_ns = operations_[value.first_read_return].return_ns;
      if (first_ns < store.call_ns) {
        *verdict = Violation(value.first_read_return, "it read a value before that was stored");
        return false;
      }
      if (!store.unknown) continue;
      store.unknown = false;
      store.return_ns = first_ns;
    } else if (store.unknown && store.kind == Kind::kUpdate) {
      dropped_[value.store] = true;  // nobody can tell whether it happened
    }
  }
  return true;
}

void Search::MakeEvents() {
  for (size_t i = 0; i < operations_.size(); ++i) {
    if (dropped_[i]) continue;
    events_.push_back({operations_[i].call_ns, false, i});
    if (!operations_[i].unknown) events_.push_back({operations_[i].return_ns, true, i});
  }
  std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.is_return < b.is_return;
  });
  return_position_.assign(operations_.size(), kNone);
  for (size_t at = 0; at < events_.size(); ++at) {
    const size_t i = events_[at].operation;
    const KeyOperation& o = operations_[i];
    if (!events_[at].is_return) {
      if (o.kind == Kind::kDelete) delete_calls_.push_back(at);
      continue;
    }
    return_position_[i] = at;
    if (o.value == kAbsent) continue;
    Value& value = values_[o.value];
    if (value.deadline == kNone) value.deadline = at;
  }
}

KeyVerdict Search::Run() {
  KeyVerdict verdict;
  if (!CollectValues(&verdict)) return verdict;
  MakeEvents();
  slot_of_.assign(operations_.size(), kNone);
  for (size_t slot = kSlots; slot-- > 0;) free_slots_.push_back(slot);
  Configuration first;
  first.state = initial_;
  Settle(&first);
  configurations_.push_back(first);
  for (now_ = 0; now_ < events_.size(); ++now_) {
    const Event& event = events_[now_];
    if (event.is_return ? !OnReturn(event.operation, &verdict) : !OnCall(event.operation)) {
      if (verdict.verdict == Verdict::kCorrect) verdict.verdict = Verdict::kUndecided;
      if (verdict.verdict == Verdict::kUndecided) verdict.why = "too many operations at once";
      return verdict;
    }
  }
  return verdict;
}

bool Search::OnCall(size_t operation) {
  const KeyOperation& o = operations_[operation];
  if (unique_ && o.unknown) {
    ++(o.kind == Kind::kDelete ? unknown_deletes_ : unknown_stores_);
    return true;
  }
  if (free_slots_.empty()) return false;
  slot_of_[operation] = free_slots_.back();
  free_slots_.pop_back();
  pending_.push_back(operation);
  if (o.kind == Kind::kSee && o.value != kAbsent) --values_[o.value].reads_to_come;
  for (Configuration& c : configurations_) Settle(&c);
  if (configurations_.size() == 1) return true;
  const absl::flat_hash_set<Configuration> settled(configurations_.begin(), configurations_.end());
  if (settled.size() < configurations_.size())
    configurations_.assign(settled.begin(), settled.end());
  return true;
}

bool Search::OnReturn(size_t operation, KeyVerdict* verdict) {
  const size_t slot = slot_of_[operation];
  const bool expand = !std::all_of(configurations_.begin(), configurations_.end(),
                                   [&](const Configuration& c) { return c.done.Has(slot); });
  if (expand) {
    forced_ = operation;
    frontier_.clear();
    seen_.clear();
    reached_.clear();
    for (const Configuration& c : configurations_) Reach(c);
    while (!frontier_.empty()) {
      if (++looked_at_ > limits_.configurations_max) return false;
      const Configuration c = frontier_.back();
      frontier_.pop_back();
      Expand(c, operation);
    }
    if (reached_.empty()) {
      *verdict = Violation(operation, "no order of the operations explains its result");
      return false;
    }
    configurations_.assign(reached_.begin(), reached_.end());
  }
  for (Configuration& c : configurations_) c.done.Remove(slot);
  std::erase(pending_, operation);
  free_slots_.push_back(slot);
  slot_of_[operation] = kNone;
  return true;
}

void Search::Reach(Configuration next) {
  Settle(&next);
  if (next.done.Has(slot_of_[forced_])) {
    reached_.insert(next);
  } else if (seen_.insert(next).second) {
    frontier_.push_back(next);
  }
}

// Facts 1 to 3: everything that can be done without choosing.
void Search::Settle(Configuration* c) const {
  SettleOnce(c);
  if (unique_ && c->present() && c->state != kSomeValue && values_[c->state].reads_to_come == 0) {
    c->state = kSomeValue;
    SettleOnce(c);
  }
}

void Search::SettleOnce(Configuration* c) const {
  for (const size_t i : pending_) {
    if (c->done.Has(slot_of_[i])) continue;
    const KeyOperation& o = operations_[i];
    switch (o.kind) {
      case Kind::kSee:
        if (c->state == o.value) c->done.Add(slot_of_[i]);
        break;
      case Kind::kSeePresent:
        if (c->present()) c->done.Add(slot_of_[i]);
        break;
      case Kind::kPut:
      case Kind::kUpdate:
        if (!unique_ || c->state != kSomeValue || !IsWhole(i)) break;
        // A put is also good for making the key present again.
        if (o.kind == Kind::kPut && MayBecomeAbsent(*c, Deadline(i))) break;
        Take(c, i);
        break;
      case Kind::kInsert:
      case Kind::kDelete:
        break;
    }
  }
}

// Marks a store and the reads of its value (called so far), or a delete.
void Search::Take(Configuration* c, size_t operation) const {
  c->done.Add(slot_of_[operation]);
  if (operations_[operation].kind == Kind::kDelete) return;
  for (const size_t i : pending_) {
    if (operations_[i].kind == Kind::kSee && operations_[i].value == operations_[operation].value) {
      c->done.Add(slot_of_[i]);
    }
  }
}

size_t Search::Deadline(size_t operation) const {
  return operations_[operation].kind == Kind::kDelete
             ? return_position_[operation]
             : values_[operations_[operation].value].deadline;
}

size_t Search::Earliest(const Configuration& c, Kind kind) const {
  size_t best = kNone;
  for (const size_t i : pending_) {
    if (operations_[i].kind != kind || c.done.Has(slot_of_[i])) continue;
    if (kind != Kind::kDelete && !IsWhole(i)) continue;
    if (best == kNone || Deadline(i) < Deadline(best)) best = i;
  }
  return best;
}

bool Search::MayBecomeAbsent(const Configuration& c, size_t deadline) const {
  if (c.unknown_deletes < unknown_deletes_) return true;
  for (const size_t i : pending_) {
    if (operations_[i].kind == Kind::kDelete && !c.done.Has(slot_of_[i])) return true;
  }
  const auto next = std::upper_bound(delete_calls_.begin(), delete_calls_.end(), now_);
  return next != delete_calls_.end() && *next < deadline;
}

void Search::Expand(const Configuration& c, size_t forced) {
  if (!unique_) return ExpandAny(c);
  if (c.state == kAbsent) return ExpandAbsent(c);
  if (c.state == kSomeValue) ExpandPresent(c, forced);
  // Else the value is read later: nothing can replace it now.
}

void Search::ExpandAbsent(const Configuration& c) {
  Configuration next;
  bool whole = false;
  for (const Kind kind : {Kind::kPut, Kind::kInsert}) {
    const size_t i = Earliest(c, kind);
    if (i == kNone) continue;
    whole = true;
    next = c;
    next.state = kSomeValue;
    Take(&next, i);
    Reach(next);
  }
  for (const size_t i : pending_) {
    const Kind kind = operations_[i].kind;
    if ((kind != Kind::kPut && kind != Kind::kInsert) || c.done.Has(slot_of_[i]) || IsWhole(i))
      continue;
    next = c;
    next.state = operations_[i].value;
    Take(&next, i);
    Reach(next);
  }
  if (!whole && c.unknown_stores < unknown_stores_) {
    next = c;
    ++next.unknown_stores;
    next.state = kSomeValue;
    Reach(next);
  }
}

void Search::ExpandPresent(const Configuration& c, size_t forced) {
  Configuration next = c;
  if (const size_t i = Earliest(c, Kind::kDelete); i != kNone) {
    next.state = kAbsent;
    Take(&next, i);
    Reach(next);
  } else if (c.unknown_deletes < unknown_deletes_) {
    ++next.unknown_deletes;
    next.state = kAbsent;
    Reach(next);
  }
  if (const size_t i = Earliest(c, Kind::kPut); i != kNone) {
    next = c;
    Take(&next, i);
    Reach(next);
  }
  const int32_t value = operations_[forced].value;
  if (value == kAbsent) return;
  const size_t store = values_[value].store;
  if (store == kNone || slot_of_[store] == kNone || c.done.Has(slot_of_[store]) || IsWhole(store))
    return;
  if (operations_[store].kind == Kind::kInsert) return;
  next = c;
  next.state = value;
  Take(&next, store);
  Reach(next);
}

// Values are stored more than once: every operation in progress may come next.
void Search::ExpandAny(const Configuration& c) {
  for (const size_t i : pending_) {
    if (c.done.Has(slot_of_[i])) continue;
    const KeyOperation& o = operations_[i];
    const bool possible = o.kind == Kind::kPut || (o.kind == Kind::kInsert && !c.present()) ||
                          ((o.kind == Kind::kUpdate || o.kind == Kind::kDelete) && c.present());
    if (!possible) continue;
    Configuration next = c;
    next.state = o.kind == Kind::kDelete ? kAbsent : o.value;
    next.done.Add(slot_of_[i]);
    Reach(next);
  }
}

}  // namespace

KeyVerdict CheckKey(int32_t initial, const std::vector<KeyOperation>& operations,
                    const KeyLimits& limits) {
  return Search(initial, operations, limits).Run();
}

}  // namespace pando::history
