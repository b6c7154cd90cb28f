#include "compute/index/leaf_batch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"

namespace pando {

absl::Status KeyNotFound() { return absl::NotFoundError("no such key"); }
absl::Status KeyExists() { return absl::AlreadyExistsError("the key is already there"); }
absl::Status ValueDiffers() {
  static const absl::Status* const status =
      new absl::Status(ConditionFailedError("the key holds another value"));
  return *status;
}

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

LeafBatch::Effect LeafBatch::DecideUpsert(const WriteOperation& operation, const KeyState& state,
                                          std::string_view* value, absl::Status* result,
                                          std::string* answer) {
  std::optional<std::string_view> present;
  if (state.is_present) present = ValueOf(state);
  absl::StatusOr<std::string> computed = (*operation.function)(operation.key, present, *value);
  if (computed.ok() && computed->size() > layout_.value_bytes_max()) {
    computed =
        ConditionFailedError(absl::StrCat("the new value is of ", computed->size(),
                                          " bytes; the tree takes 0..", layout_.value_bytes_max()));
  }
  *result = computed.status();
  if (!computed.ok()) {
    if (answer != nullptr) answer->assign(present.value_or(std::string_view()));
    return Effect::kNone;
  }
  if (present == *computed) {
    if (answer != nullptr) answer->assign(*computed);
    return Effect::kNone;
  }
  *value = texts_.emplace_front(*std::move(computed));
  return Effect::kStore;
}

[[gnu::always_inline]] inline LeafBatch::Effect LeafBatch::Decide(const WriteOperation& operation,
                                                                  const KeyState& state,
                                                                  std::string_view* value,
                                                                  absl::Status* result,
                                                                  std::string* answer) {
  *result = absl::OkStatus();
  switch (operation.kind) {
    case WriteKind::kPut:
      return Effect::kStore;
    case WriteKind::kInsert:
      if (!state.is_present) return Effect::kStore;
      *result = KeyExists();
      return Effect::kNone;
    case WriteKind::kUpdate:
      if (state.is_present) return Effect::kStore;
      break;
    case WriteKind::kErase:
      if (state.is_present) return Effect::kErase;
      break;
    case WriteKind::kReplace:
    case WriteKind::kEraseIf: {
      if (!state.is_present) break;
      const std::string_view present = ValueOf(state);
      if (present == operation.expected) {
        return operation.kind == WriteKind::kReplace ? Effect::kStore : Effect::kErase;
      }
      *result = ValueDiffers();
      if (answer != nullptr) answer->assign(present);
      return Effect::kNone;
    }
    case WriteKind::kUpsert:
      return DecideUpsert(operation, state, value, result, answer);
  }
  *result = KeyNotFound();
  return Effect::kNone;
}

bool LeafBatch::Apply(const WriteOperation& operation, absl::Status* result, std::string* answer) {
  // Mostly it is the one operation whose slot was noted.
  KeyState& state = !keys_.empty() && keys_[0].key.data() == operation.key.data() &&
                            keys_[0].key.size() == operation.key.size()
                        ? keys_[0]
                        : FindState(operation.key);
  std::string_view value = operation.value;
  const Effect effect = Decide(operation, state, &value, result, answer);
  if (effect == Effect::kNone) return true;
  if (effect == Effect::kStore) {
    if (!state.is_present && state.slot < 0) {
      // Slots that this batch empties are not counted: their keys may come back in it.
      if (FreeSlots() == 0) return false;
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

LeafEditor& LeafBatch::CommitBelow(const std::string& high, const Reference& right) {
  CommitErases();
  SetHigh(image_, layout_, high);
  SetRight(image_, right);
  if (RuleHolds(Rule::kF5)) editor_.ClearOutOfFence();
  for (const KeyState& state : keys_) {
    if (!state.changed || !state.is_present || state.key >= high) continue;
    const bool fits = editor_.PutAt(state.slot, state.key, state.value);
    PANDO_CHECK(fits) << "a split left no room";
  }
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
