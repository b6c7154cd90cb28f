#include "memory/id_ranges.h"

#include <iterator>

namespace pando::memory {

bool IdRanges::Contains(uint32_t id) const {
  auto after = ranges_.upper_bound(id);
  return after != ranges_.begin() && std::prev(after)->second >= id;
}

void IdRanges::Insert(uint32_t id) {
  if (Contains(id)) return;
  uint32_t first = id, last = id;
  if (const auto next = ranges_.find(id + 1); id != UINT32_MAX && next != ranges_.end()) {
    last = next->second;
    ranges_.erase(next);
  }
  if (auto after = ranges_.upper_bound(id); after != ranges_.begin()) {
    const auto before = std::prev(after);
    if (before->second + 1 == id) {
      first = before->first;
      ranges_.erase(before);
    }
  }
  ranges_[first] = last;
}

}  // namespace pando::memory
