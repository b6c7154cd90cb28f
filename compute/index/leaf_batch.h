// Several operations on one held leaf, applied as one change (rule U2): each is evaluated in order
// against what the ones before it left, and every key's final state is written once.
//
// Not thread-safe. Keys and values are views that outlive the batch.
#pragma once

#include <climits>
#include <forward_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "common/wire/leaf.h"
#include "compute/index/write_decision.h"
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
    ordered_ = 1;
  }

  // The same where no more is known than line 0 and the key's window (rule N8), which has room if
  // the key is absent. One operation, and CommitInWindow().
  void NoteInWindow(std::string_view key, int slot) {
    Note(key, slot);
    free_slots_ = 1;
  }

  // Evaluates the operation (rule U4); `result`: OK, AlreadyExists, NotFound, or a failed
  // condition. `answer` (may be null) gets the present value where a condition failed, and an
  // upsert's new one. False: the key needs a slot and none is left; nothing changed, and it may be
  // tried again after AddRoom().
  [[nodiscard]] bool Apply(const WriteOperation& operation, absl::Status* result,
                           std::string* answer = nullptr);
  // The leaf is going to be split: so many entries more have room.
  void AddRoom(uint32_t entries) { free_slots_ = FreeSlots() + static_cast<int>(entries); }

  // An entry was erased.
  bool erased() const { return erased_; }
  // How many entries the leaf had, if it has so many now.
  uint32_t EntriesBefore(uint32_t now) const;

  // Writes the final states into the image. Returns the editor, for sealing. There is room for them
  // all (CHECKed).
  LeafEditor& Commit();

  LeafEditor& CommitInWindow();

  // For a split: all entries as they are to be, sorted by key. False: the leaf holds a key twice.
  // `ascending`: there are new ones, all of them above whatever was there.
  [[nodiscard]] bool ReadFinal(std::vector<LeafEntry>* sorted, bool* ascending) const;
  // Commit() for a leaf that ends at `high` from now on, with this right sibling (rules F5, S5).
  LeafEditor& CommitBelow(const std::string& high, const Reference& right);

 private:
  struct KeyState {
    std::string_view key;
    std::string_view value = {};
    int slot = -1;  // before the batch; -1: absent
    bool is_present = false;
    bool changed = false;
  };
  static constexpr int kNotCounted = INT_MIN;  // until it is first needed

  KeyState& FindState(std::string_view key);
  // Below zero: of a layout whose last slots stay empty (rule N4) a writer who does not know how
  // many are used has taken some (rule N8).
  int FreeSlots() {
    if (free_slots_ == kNotCounted) {
      free_slots_ =
          static_cast<int>(layout_.entries_max()) - static_cast<int>(editor_.used_slots());
    }
    return free_slots_;
  }
  void CommitErases();
  // As the operation finds it.
  std::string_view ValueOf(const KeyState& state);
  WriteEffect Decide(const WriteOperation& operation, const KeyState& state,
                     std::string_view* value, absl::Status* result, std::string* answer);

  LeafEditor editor_;
  std::byte* const image_;
  const NodeLayout& layout_;
  absl::InlinedVector<KeyState, 2> keys_;
  size_t ordered_ = 0;  // so many of them ascend: those of a run do, waiters come as they come
  int free_slots_ = kNotCounted;
  bool erased_ = false;
  std::forward_list<std::string> texts_;  // values that are no operation's
};

}  // namespace pando
