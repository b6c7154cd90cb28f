// Numbers that are never given out twice: incarnations and tree ids come from one ascending
// sequence, so that a memory server can tell a tree that is older than a client it knows
// (tree_table.h). Not thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace pando::memory {

class IdSource {
 public:
  // `first` > 0. A restarted catalog must start above what its earlier life gave out.
  explicit IdSource(uint32_t first) : next_(first == 0 ? 1 : first) {}

  // The number to use; it counts as given out only after Take(), so that failed attempts leave no
  // holes.
  absl::StatusOr<uint32_t> Peek() const {
    if (next_ == UINT32_MAX)
      return absl::ResourceExhaustedError("all ids of this catalog are used up");
    return next_;
  }
  void Take() { ++next_; }

 private:
  uint32_t next_;
};

}  // namespace pando::memory
