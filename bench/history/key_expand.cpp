// The steps of the search: what must happen, and what may happen next.
#include <algorithm>
#include <array>

#include "bench/history/key_search.h"

namespace pando::history {

void Search::Reach(Configuration next) {
  Settle(&next);
  if (next.done.Has(slot_of_[forced_])) {
    reached_.insert(next);
  } else if (seen_.insert(next).second) {
    frontier_.push_back(next);
  }
}

// Facts 1 to 3 and 5: everything that can be done without choosing.
void Search::Settle(Configuration* c) const {
  SettleOnce(c);
  while (unique_ && SwapOnce(c)) SettleOnce(c);
  if (!unique_ || !c->present() || c->state == kSomeValue) return;
  const Value& value = values_[c->state];
  if (value.reads_to_come > 0 || value.taker != kNone || value.may_be_taken) return;
  c->state = kSomeValue;
  SettleOnce(c);
}

// The swap of the value that is there, once nobody else will ask for that.
bool Search::SwapOnce(Configuration* c) const {
  if (!c->present() || c->state == kSomeValue || values_[c->state].reads_to_come > 0) return false;
  const size_t taker = values_[c->state].taker;
  if (taker == kNone || operations_[taker].kind != Kind::kSwap || !IsPending(taker)) return false;
  c->done.Add(slot_of_[taker]);
  c->state = operations_[taker].value;
  return true;
}

bool Search::IsWhole(size_t store) const {
  while (true) {
    const Value& value = values_[operations_[store].value];
    if (value.reads_to_come > 0 || value.may_be_taken) return false;
    if (value.taker == kNone) return true;
    if (operations_[value.taker].kind != Kind::kSwap || !IsPending(value.taker)) return false;
    store = value.taker;
  }
}

void Search::TakeWhole(Configuration* c, size_t store) const {
  for (; store != kNone; store = values_[operations_[store].value].taker) Take(c, store);
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
        if (!unique_ || c->state != kSomeValue || o.unknown || !IsWhole(i)) break;
        // A put is also good for making the key present again.
        if (o.kind == Kind::kPut && MayBecomeAbsent(*c, Deadline(i))) break;
        TakeWhole(c, i);
        break;
      case Kind::kInsert:
      case Kind::kDelete:
      case Kind::kSwap:
      case Kind::kEraseIf:
      case Kind::kUpsert:
      case Kind::kClear:  // also good for making the key absent again
        break;
    }
  }
}

// Marks a store and the reads of its value (called so far), or a delete.
void Search::Take(Configuration* c, size_t operation) const {
  c->done.Add(slot_of_[operation]);
  if (ErasesAny(operations_[operation].kind)) return;
  for (const size_t i : pending_) {
    if (operations_[i].kind == Kind::kSee && operations_[i].value == operations_[operation].value) {
      c->done.Add(slot_of_[i]);
    }
  }
}

// Of a store that is whole: when the first of all that come with it returns.
size_t Search::Deadline(size_t operation) const {
  if (ErasesAny(operations_[operation].kind)) return return_position_[operation];
  size_t first = kNone;
  while (operation != kNone && IsPending(operation)) {
    const Value& value = values_[operations_[operation].value];
    first = std::min(first, value.deadline);
    operation = value.taker;
  }
  return first;
}

size_t Search::Earliest(const Configuration& c, Kind kind, bool unknown) const {
  size_t best = kNone;
  for (const size_t i : pending_) {
    if (operations_[i].kind != kind || c.done.Has(slot_of_[i])) continue;
    if (operations_[i].unknown != unknown) continue;
    if (!ErasesAny(kind) && !IsWhole(i)) continue;
    if (best == kNone || Deadline(i) < Deadline(best)) best = i;
  }
  return best;
}

bool Search::MayBecomeAbsent(const Configuration& c, size_t deadline) const {
  if (c.unknown_deletes < unknown_deletes_) return true;
  for (const size_t i : pending_) {
    const Kind kind = operations_[i].kind;
    if ((ErasesAny(kind) || kind == Kind::kEraseIf) && !c.done.Has(slot_of_[i])) return true;
  }
  const auto next = std::upper_bound(delete_calls_.begin(), delete_calls_.end(), now_);
  return next != delete_calls_.end() && *next < deadline;
}

void Search::Expand(const Configuration& c, size_t forced) {
  if (!unique_) return ExpandAny(c);
  if (c.state == kAbsent) return ExpandAbsent(c);
  if (c.state == kSomeValue) return ExpandPresent(c, forced);
  // Else the value is read later: nothing can replace it now.
  if (values_[c.state].reads_to_come == 0) ExpandTaken(c);
}

// The value that is there may go by a conditional erase, and only so if that has happened.
void Search::ExpandTaken(const Configuration& c) {
  for (const size_t i : pending_) {
    const KeyOperation& o = operations_[i];
    if (!Takes(o) || o.prior != c.state || c.done.Has(slot_of_[i])) continue;
    Configuration next = c;
    next.state = o.kind == Kind::kEraseIf ? kAbsent : o.value;
    next.done.Add(slot_of_[i]);
    Reach(next);
  }
  if (values_[c.state].taker != kNone) return;
  Configuration next = c;
  next.state = kSomeValue;
  Reach(next);
}

void Search::ExpandAbsent(const Configuration& c) {
  Configuration next;
  // What comes next may stay until a clear has returned.
  if (const size_t i = Earliest(c, Kind::kClear); i != kNone) {
    next = c;
    Take(&next, i);
    Reach(next);
  }
  // What has to happen goes before what may, unless that can wait for less long.
  size_t first = kNone;
  const auto try_whole = [&](size_t i, bool has_to) {
    if (i == kNone || (!has_to && first <= Deadline(i))) return;
    first = std::min(first, Deadline(i));
    next = c;
    next.state = kSomeValue;
    TakeWhole(&next, i);
    Reach(next);
  };
  for (const bool unknown : {false, true}) {
    for (const Kind kind : {Kind::kPut, Kind::kInsert}) {
      try_whole(Earliest(c, kind, unknown), !unknown);
    }
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
  if (first == kNone && c.unknown_stores < unknown_stores_) {
    next = c;
    ++next.unknown_stores;
    next.state = kSomeValue;
    Reach(next);
  }
}

void Search::ExpandPresent(const Configuration& c, size_t forced) {
  Configuration next;
  // What can wait for longer goes later: a clear can do without a value, which a delete needs, and
  // one of unknown outcome without anything.
  size_t first = kNone;
  const std::array<size_t, 3> erases = {Earliest(c, Kind::kDelete), Earliest(c, Kind::kClear),
                                        Earliest(c, Kind::kDelete, /*unknown=*/true)};
  for (const size_t i : erases) {
    if (i == kNone || first <= Deadline(i)) continue;
    first = Deadline(i);
    next = c;
    next.state = kAbsent;
    Take(&next, i);
    Reach(next);
  }
  if (first == kNone && c.unknown_deletes < unknown_deletes_) {
    next = c;
    ++next.unknown_deletes;
    next.state = kAbsent;
    Reach(next);
  }
  if (const size_t i = Earliest(c, Kind::kPut); i != kNone) {
    next = c;
    TakeWhole(&next, i);
    Reach(next);
  }
  TryRootOf(c, operations_[forced].value);
  TryRootOf(c, operations_[forced].prior);
  for (const size_t i : pending_) {
    if (IsStore(operations_[i]) && values_[operations_[i].value].leads_to_erase) TryStore(c, i);
  }
}

// Where the value comes from, over swaps.
void Search::TryRootOf(const Configuration& c, int32_t value) {
  if (value == kAbsent) return;
  size_t store = values_[value].store;
  for (int steps = 0; store != kNone && operations_[store].kind == Kind::kSwap; ++steps) {
    if (steps > static_cast<int>(kSlots)) return;  // in a circle
    store = values_[operations_[store].prior].store;
  }
  if (store != kNone) TryStore(c, store);
}

void Search::TryStore(const Configuration& c, size_t store) {
  const Kind kind = operations_[store].kind;
  if (slot_of_[store] == kNone || c.done.Has(slot_of_[store]) || IsWhole(store)) return;
  if (kind != Kind::kPut && kind != Kind::kUpdate) return;
  Configuration next = c;
  next.state = operations_[store].value;
  Take(&next, store);
  Reach(next);
}

std::optional<int32_t> Search::Effect(const Configuration& c, size_t operation) const {
  const KeyOperation& o = operations_[operation];
  if (o.kind == Kind::kUpsert) {
    const std::optional<int32_t> made = (*upserts_)(operation, c.state);
    return o.unknown || made == o.value ? made : std::nullopt;
  }
  const bool possible = o.kind == Kind::kPut || o.kind == Kind::kClear ||
                        (o.kind == Kind::kInsert && !c.present()) ||
                        ((o.kind == Kind::kUpdate || o.kind == Kind::kDelete) && c.present()) ||
                        (Takes(o) && c.state == o.prior);
  if (!possible) return std::nullopt;
  const bool erases = ErasesAny(o.kind) || o.kind == Kind::kEraseIf;
  return erases ? kAbsent : o.value;
}

// Values are stored more than once: every operation in progress may come next.
void Search::ExpandAny(const Configuration& c) {
  for (const size_t i : pending_) {
    if (c.done.Has(slot_of_[i])) continue;
    const std::optional<int32_t> left = Effect(c, i);
    if (!left.has_value()) continue;
    Configuration next = c;
    next.state = *left;
    next.done.Add(slot_of_[i]);
    Reach(next);
  }
}

}  // namespace pando::history
