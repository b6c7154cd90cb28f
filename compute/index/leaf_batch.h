// Several operations on one held leaf, applied as one change (rule U2): each is evaluated in order
// against what the ones before it left, and every key's final state is written once.
//
// Not thread-safe. Keys and values are views that outlive the batch.
#pragma once

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
      : editor_(image, layout, crc), layout_(layout) {}

  // What the caller knows already: the key's slot, or -1. Before any Apply().
  void Note(std::string_view key, int slot) {
    keys_.emplace_back(KeyState{.key = key, .slot = slot, .is_present = slot >= 0});
  }

  // Evaluates the operation; `result`: OK, AlreadyExists or NotFound. False: the key needs a slot
  // and none is left (nothing changed).
  [[nodiscard]] bool Apply(const WriteOperation& operation, absl::Status* result);

  // An entry was erased.
  bool erased() const { return erased_; }

  // Writes the final states into the image. Returns the editor, for sealing.
  LeafEditor& Commit();

 private:
  struct KeyState {
    std::string_view key;
    std::string_view value;
    int slot = -1;  // before the batch; -1: absent
    bool is_present = false;
    bool changed = false;
  };
  KeyState& StateOf(std::string_view key);

  LeafEditor editor_;
  const NodeLayout& layout_;
  absl::InlinedVector<KeyState, 2> keys_;
  int free_slots_ = -1;  // counted when first needed
  bool erased_ = false;
};

// NotFound and AlreadyExists as the operations report them. Static messages: these are outcomes,
// not failures.
absl::Status KeyNotFound();
absl::Status KeyExists();

}  // namespace pando
