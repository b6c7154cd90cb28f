// A set of integers kept as disjoint ranges. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/btree_map.h"

namespace pando::memory {

class IdRanges {
 public:
  bool Contains(uint32_t id) const;
  void Insert(uint32_t id);
  size_t range_count() const { return ranges_.size(); }

 private:
  absl::btree_map<uint32_t, uint32_t> ranges_;  // first -> last, inclusive; never adjacent
};

}  // namespace pando::memory
