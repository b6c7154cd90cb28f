#include "bench/history/key_checker.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "bench/history/key_search.h"

namespace pando::history {

// Values are small numbers from here on.
void Search::NumberValues() {
  absl::flat_hash_map<int32_t, int32_t> numbers = {{kAbsent, kAbsent}};
  const auto number = [&](int32_t value) {
    return numbers.emplace(value, static_cast<int32_t>(numbers.size())).first->second;
  };
  initial_ = number(initial_);
  for (KeyOperation& o : operations_) {
    o.value = number(o.value);
    o.prior = number(o.prior);
  }
  values_.resize(numbers.size());
}

// Finds the values' stores and reads. False: verdict.
bool Search::CollectValues(KeyVerdict* verdict) {
  const size_t count = operations_.size();
  dropped_.resize(count);
  settled_.resize(count);
  for (KeyOperation& o : operations_) {
    if (o.unknown && o.kind == Kind::kClear) o.kind = Kind::kDelete;  // perhaps, and at any time
  }
  if (upserts_ != nullptr) return true;
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
    if (!NoteRead(i, o.value, verdict)) return false;
    ++values_[o.value].reads_to_come;
  }
  for (size_t i = 0; i < count; ++i) {
    const KeyOperation& o = operations_[i];
    if (Takes(o) && !o.unknown && !NoteRead(i, o.prior, verdict)) return false;
  }
  return !unique_ || (SettleUnknown(verdict) && CollectTakers(verdict));
}

// The operation saw that value.
bool Search::NoteRead(size_t operation, int32_t of, KeyVerdict* verdict) {
  Value& value = values_[of];
  if (value.stores == 0) {
    *verdict = Violation(operation, "it read a value that nobody had stored");
    return false;
  }
  const size_t first = value.first_read_return;
  if (first == kNone || operations_[operation].return_ns < operations_[first].return_ns) {
    value.first_read_return = operation;
  }
  return true;
}

// A store of unknown outcome whose value was read took effect before the first of these reads
// returned.
bool Search::SettleUnknown(KeyVerdict* verdict) {
  for (bool changed = true; changed;) {  // what a swap has seen is a read of another value
    changed = false;
    for (const Value& value : values_) {
      if (value.store != kNone && !SettleStore(value, &changed, verdict)) return false;
    }
  }
  return true;
}

bool Search::SettleStore(const Value& value, bool* changed, KeyVerdict* verdict) {
  KeyOperation& store = operations_[value.store];
  if (value.first_read_return == kNone) return true;
  const int64_t first_ns = operations_[value.first_read_return].return_ns;
  if (first_ns < store.call_ns) {
    *verdict = Violation(value.first_read_return, "it read a value before that was stored");
    return false;
  }
  const bool told = settled_[value.store];
  if (told ? first_ns >= store.return_ns : !store.unknown) return true;
  settled_[value.store] = true;
  store.unknown = false;
  store.return_ns = std::min(first_ns, store.latest_ns);
  *changed = true;
  return !Takes(store) || NoteRead(value.store, store.prior, verdict);
}

// Which operation takes which value away, and where that leads.
bool Search::CollectTakers(KeyVerdict* verdict) {
  for (const KeyOperation& o : operations_) {
    if (o.kind != Kind::kEraseIf) continue;
    int32_t at = o.prior;
    while (!values_[at].leads_to_erase) {
      values_[at].leads_to_erase = true;
      const size_t store = values_[at].store;
      if (store == kNone || operations_[store].kind != Kind::kSwap) break;
      at = operations_[store].prior;
    }
  }
  for (size_t i = 0; i < operations_.size(); ++i) {
    const KeyOperation& o = operations_[i];
    // Of one that nobody has read nobody can tell whether it happened, nor does it matter.
    const bool changes = o.kind == Kind::kUpdate || o.kind == Kind::kSwap;
    if (o.unknown && changes && !values_[o.value].leads_to_erase) dropped_[i] = true;
    if (!Takes(o) || dropped_[i]) continue;
    Value& value = values_[o.prior];
    if (o.unknown) {
      value.may_be_taken = true;
    } else if (std::exchange(value.taker, i) != kNone) {
      *verdict = Violation(i, "it took a value away that somebody else had taken");
      return false;
    }
  }
  return true;
}

void Search::MakeEvents() {
  for (size_t i = 0; i < operations_.size(); ++i) {
    if (dropped_[i]) continue;
    events_.push_back({operations_[i].call_ns, false, i});
    const KeyOperation& o = operations_[i];
    if (!o.unknown || IsBounded(o)) {
      events_.push_back({o.unknown ? o.latest_ns : o.return_ns, true, i});
    }
  }
  std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.is_return < b.is_return;
  });
  return_position_.assign(operations_.size(), kNone);
  for (size_t at = 0; at < events_.size(); ++at) {
    const size_t i = events_[at].operation;
    const KeyOperation& o = operations_[i];
    if (!events_[at].is_return) {
      if (ErasesAny(o.kind) || o.kind == Kind::kEraseIf) delete_calls_.push_back(at);
      continue;
    }
    return_position_[i] = at;
    if (o.value == kAbsent || !unique_) continue;
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
    const bool is_latest = event.is_return && operations_[event.operation].unknown;
    if (is_latest         ? !OnLatest(event.operation)
        : event.is_return ? !OnReturn(event.operation, &verdict)
                          : !OnCall(event.operation)) {
      if (verdict.verdict == Verdict::kViolation) return verdict;
      return {Verdict::kUndecided, event.is_return
                                       ? "the limit of configurations looked at was reached"
                                       : "too many operations at once"};
    }
  }
  return verdict;
}

bool Search::OnCall(size_t operation) {
  const KeyOperation& o = operations_[operation];
  if (unique_ && o.unknown && !IsBounded(o) && o.kind != Kind::kEraseIf &&
      !values_[o.value].leads_to_erase) {
    ++(o.kind == Kind::kDelete ? unknown_deletes_ : unknown_stores_);
    return true;
  }
  if (free_slots_.empty()) return false;
  slot_of_[operation] = free_slots_.back();
  free_slots_.pop_back();
  pending_.push_back(operation);
  if (unique_ && o.kind == Kind::kSee && o.value != kAbsent) --values_[o.value].reads_to_come;
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
    if (!Force(operation)) return false;
    if (reached_.empty()) {
      *verdict = Violation(operation, "no order of the operations explains its result");
      return false;
    }
    configurations_.assign(reached_.begin(), reached_.end());
  }
  Retire(operation);
  return true;
}

bool Search::OnLatest(size_t operation) {
  if (!Force(operation)) return false;
  // Or it never has.
  reached_.insert(configurations_.begin(), configurations_.end());
  const size_t slot = slot_of_[operation];
  absl::flat_hash_set<Configuration> left;
  for (Configuration c : reached_) {
    c.done.Remove(slot);
    left.insert(c);
  }
  configurations_.assign(left.begin(), left.end());
  Retire(operation);
  return true;
}

bool Search::Force(size_t operation) {
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
  return true;
}

void Search::Retire(size_t operation) {
  const size_t slot = slot_of_[operation];
  for (Configuration& c : configurations_) c.done.Remove(slot);
  std::erase(pending_, operation);
  free_slots_.push_back(slot);
  slot_of_[operation] = kNone;
}

KeyVerdict CheckKey(int32_t initial, const std::vector<KeyOperation>& operations,
                    const KeyLimits& limits) {
  return Search(initial, operations, limits).Run();
}

KeyVerdict CheckKeyWith(const UpsertFunctions& upserts, int32_t initial,
                        const std::vector<KeyOperation>& operations, const KeyLimits& limits) {
  return Search(initial, operations, limits, &upserts).Run();
}

}  // namespace pando::history
