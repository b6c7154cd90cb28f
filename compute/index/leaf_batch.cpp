#include "compute/index/leaf_batch.h"

#include "common/base/check.h"

namespace pando {

absl::Status KeyNotFound() { return absl::NotFoundError("no such key"); }
absl::Status KeyExists() { return absl::AlreadyExistsError("the key is already there"); }

LeafBatch::KeyState& LeafBatch::StateOf(std::string_view key) {
  for (KeyState& state : keys_) {
    if (state.key == key) return state;
  }
  const int slot = editor_.Find(key);
  return keys_.emplace_back(KeyState{.key = key, .slot = slot, .is_present = slot >= 0});
}

bool LeafBatch::Apply(const WriteOperation& operation, absl::Status* result) {
  KeyState& state = StateOf(operation.key);
  switch (operation.kind) {
    case WriteKind::kErase:
      *result = state.is_present ? absl::OkStatus() : KeyNotFound();
      if (!state.is_present) return true;
      state.is_present = false;
      erased_ = true;
      break;
    case WriteKind::kInsert:
      if (state.is_present) {
        *result = KeyExists();
        return true;
      }
      break;
    case WriteKind::kUpdate:
      if (!state.is_present) {
        *result = KeyNotFound();
        return true;
      }
      break;
    case WriteKind::kPut:
      break;
  }
  if (operation.kind != WriteKind::kErase) {
    if (!state.is_present && state.slot < 0) {
      // Slots that this batch empties are not counted: their keys may come back in it.
      if (free_slots_ < 0) {
        free_slots_ = static_cast<int>(layout_.slot_count() - editor_.used_slots());
      }
      if (free_slots_ == 0) return false;
      --free_slots_;
    }
    state.is_present = true;
    state.value = operation.value;
    *result = absl::OkStatus();
  } else if (state.slot < 0) {
    ++free_slots_;  // put and erased in this batch
  }
  state.changed = true;
  // Of an operation that is executed, so that it is there until Commit(): whoever made the state
  // may have been put back.
  state.key = operation.key;
  return true;
}

LeafEditor& LeafBatch::Commit() {
  for (const KeyState& state : keys_) {
    if (state.changed && state.slot >= 0 && !state.is_present) editor_.Erase(state.key);
  }
  for (const KeyState& state : keys_) {
    if (!state.changed || !state.is_present) continue;
    const bool fits = editor_.PutAt(state.slot, state.key, state.value);
    PANDO_CHECK(fits) << "a leaf batch was over-committed";
  }
  return editor_;
}

}  // namespace pando
