#include "compute/index/leaf_batch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/base/rule.h"
#include "compute/index/write_decision.h"

namespace pando {

LeafBatch::KeyState& LeafBatch::FindState(std::string_view key) {
  if (!keys_.empty() && keys_.back().key == key) [[likely]]
    return keys_.back();
  const auto unordered = keys_.begin() + static_cast<ptrdiff_t>(ordered_);
  const auto at = std::lower_bound(
      keys_.begin(), unordered, key,
      [](const KeyState& state, std::string_view wanted) { return state.key < wanted; });
  if (at != unordered && at->key == key) return *at;
  const auto behind =
      std::find_if(unordered, keys_.end(), [key](const auto& state) { return state.key == key; });
  if (behind != keys_.end()) return *behind;
  if (at == keys_.end()) ++ordered_;
  const int slot = editor_.Find(key);
  return keys_.emplace_back(KeyState{.key = key, .slot = slot, .is_present = slot >= 0});
}

std::string_view LeafBatch::ValueOf(const KeyState& state) {
  if (state.changed && (RuleHolds(Rule::kU4) || state.slot < 0)) return state.value;
  std::string& value = texts_.emplace_front();
  ReadSlotValue(image_, layout_, static_cast<uint32_t>(state.slot), &value);
  return value;
}

[[gnu::always_inline]] inline WriteEffect LeafBatch::Decide(const WriteOperation& operation,
                                                            const KeyState& state,
                                                            std::string_view* value,
                                                            absl::Status* result,
                                                            std::string* answer) {
  if (operation.kind != WriteKind::kUpsert) [[likely]] {
    return DecideWrite(
        operation, state.is_present, [&] { return ValueOf(state); }, result, answer);
  }
  std::optional<std::string_view> present;
  if (state.is_present) present = ValueOf(state);
  std::string computed;
  const WriteEffect effect =
      DecideUpsert(operation, present, layout_.value_bytes_max(), &computed, result, answer);
  if (effect == WriteEffect::kStore) *value = texts_.emplace_front(std::move(computed));
  return effect;
}

bool LeafBatch::Apply(const WriteOperation& operation, absl::Status* result, std::string* answer) {
  // Mostly it is the one operation whose slot was noted.
  KeyState& state = !keys_.empty() && keys_[0].key.data() == operation.key.data() &&
                            keys_[0].key.size() == operation.key.size()
                        ? keys_[0]
                        : FindState(operation.key);
  std::string_view value = operation.value;
  const WriteEffect effect = Decide(operation, state, &value, result, answer);
  if (effect == WriteEffect::kNone) return true;
  if (effect == WriteEffect::kStore) {
    if (!state.is_present && state.slot < 0) {
      // Slots that this batch empties are not counted: their keys may come back in it.
      if (FreeSlots() <= 0) return false;
      --free_slots_;
    }
    state.is_present = true;
    state.value = value;
  } else {
    state.is_present = false;
    erased_ = true;
    if (state.slot < 0) ++free_slots_;  // put and erased in this batch
  }
  // Not before it has its place: else it is decided again.
  if (operation.kind == WriteKind::kUpsert && answer != nullptr) answer->assign(value);
  state.changed = true;
  // Of an operation that is executed, so that it is there until Commit(): whoever made the state
  // may have been put back.
  state.key = operation.key;
  return true;
}

uint32_t LeafBatch::EntriesBefore(uint32_t now) const {
  for (const KeyState& state : keys_) {
    if (!state.changed) continue;
    const bool was_present = state.slot >= 0;
    if (was_present && !state.is_present) ++now;
    if (!was_present && state.is_present) --now;
  }
  return now;
}

void LeafBatch::CommitErases() {
  for (const KeyState& state : keys_) {
    if (state.changed && state.slot >= 0 && !state.is_present) editor_.Erase(state.key);
  }
}

LeafEditor& LeafBatch::Commit() {
  if (erased_) CommitErases();
  for (const KeyState& state : keys_) {
    if (!state.changed || !state.is_present) continue;
    const bool fits = editor_.PutAt(state.slot, state.key, state.value);
    PANDO_CHECK(fits) << "a leaf batch was over-committed";
  }
  return editor_;
}

LeafEditor& LeafBatch::CommitInWindow() {
  const KeyState& state = keys_.front();
  if (state.changed) editor_.PutInWindow(state.slot, state.key, state.value);
  return editor_;
}

LeafEditor& LeafBatch::CommitBelow(const std::string& high, const Reference& right) {
  // Erased are keys after the flags were computed: a key whose slot is written later than its
  // home's flag would come back without it, if the writer dies in between (rule N7).
  SetHigh(image_, layout_, high);
  SetRight(image_, right);
  if (RuleHolds(Rule::kF5)) editor_.ClearOutOfFence();
  CommitErases();
  for (const KeyState& state : keys_) {
    if (!state.changed || !state.is_present || state.key >= high) continue;
    const bool fits = editor_.PutAt(state.slot, state.key, state.value);
    PANDO_CHECK(fits) << "a split left no room";
  }
  editor_.ClearErased();
  return editor_;
}

bool LeafBatch::ReadFinal(std::vector<LeafEntry>* sorted, bool* ascending) const {
  if (!ReadLeafEntries(image_, layout_, sorted)) return false;
  const auto by_key = [](const auto& a, const auto& b) { return a.key < b.key; };
  std::sort(sorted->begin(), sorted->end(), by_key);
  absl::InlinedVector<const KeyState*, 64> changed;
  for (const KeyState& state : keys_) {
    if (state.changed) changed.push_back(&state);
  }
  std::sort(changed.begin(), changed.end(),
            [](const auto* a, const auto* b) { return a->key < b->key; });
  std::vector<LeafEntry> before = std::move(*sorted);
  sorted->clear();
  sorted->reserve(before.size() + changed.size());
  bool any = false;
  *ascending = true;
  auto next = before.begin();
  for (const KeyState* const state : changed) {
    for (; next != before.end() && next->key < state->key; ++next) {
      sorted->push_back(std::move(*next));
    }
    if (next != before.end() && next->key == state->key) ++next;
    if (!state->is_present) continue;
    sorted->push_back({std::string(state->key), std::string(state->value)});
    any = any || state->slot < 0;
    *ascending = *ascending && (state->slot >= 0 || next == before.end());
  }
  for (; next != before.end(); ++next) sorted->push_back(std::move(*next));
  *ascending = *ascending && any;
  return true;
}

}  // namespace pando
