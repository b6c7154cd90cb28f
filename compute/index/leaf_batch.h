// Several operations on one held leaf, applied as one change (rule U2): each is evaluated in order
// against what the ones before it left, and every key's final state is written once.
//
// Not thread-safe. Keys and values are views that outlive the batch.
#pragma once

#include <forward_list>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "common/wire/leaf.h"
#include "compute/index/write_operation.h"

namespace pando {

class LeafBatch {
 public:
  // `image`: an accepted leaf, held under its lock.
  LeafBatch(std::byte* image, const NodeLayout& layout, bool crc)
      : editor_(image, layout, crc), image_(image), layout_(layout) {}

  // What the caller knows already: the key's slot, or -1. Before any Apply().
  void Note(std::string_view key, int slot) {
    keys_.emplace_back(KeyState{.key = key, .slot = slot, .is_present = slot >= 0});
  }

  // Evaluates the operation (rule U4); `result`: OK, AlreadyExists, NotFound, or a failed
  // condition. `answer` (may be null) gets the present value where a condition failed, and an
  // upsert's new one. False: the key needs a slot and none is left; nothing changed, and homeless()
  // is the value that it would have got.
  [[nodiscard]] bool Apply(const WriteOperation& operation, absl::Status* result,
                           std::string* answer = nullptr);
  std::string_view homeless() const { return homeless_; }

  // An entry was erased.
  bool erased() const { return erased_; }

  // Writes the final states into the image. Returns the editor, for sealing.
  LeafEditor& Commit();

 private:
  struct KeyState {
    std::string_view key;
    std::string_view value = {};
    int slot = -1;  // before the batch; -1: absent
    bool is_present = false;
    bool changed = false;
  };
  // What an operation makes of a key.
  enum class Effect { kNone, kStore, kErase };

  KeyState& FindState(std::string_view key);
  // As the operation finds it.
  std::string_view ValueOf(const KeyState& state);
  Effect Decide(const WriteOperation& operation, const KeyState& state, std::string_view* value,
                absl::Status* result, std::string* answer);
  Effect DecideUpsert(const WriteOperation& operation, const KeyState& state,
                      std::string_view* value, absl::Status* result, std::string* answer);

  LeafEditor editor_;
  const std::byte* const image_;
  const NodeLayout& layout_;
  absl::InlinedVector<KeyState, 2> keys_;
  int free_slots_ = -1;  // counted when first needed
  bool erased_ = false;
  std::string_view homeless_;
  std::forward_list<std::string> texts_;  // values that are no operation's
};

}  // namespace pando
