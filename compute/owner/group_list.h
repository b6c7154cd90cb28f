// Groups of dirty records that are to be flushed, taken by whichever session comes next (rule B2).
//
// Thread-safe. No group is in two hands; what is closed gives nothing more.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "compute/owner/own_range.h"

namespace pando {

class GroupList {
 public:
  // Instead of what is left; the last one is taken first.
  void Fill(std::vector<DirtyGroup> groups) {
    std::lock_guard lock(mutex_);
    groups_ = std::move(groups);
  }
  bool empty() const {
    std::lock_guard lock(mutex_);
    return groups_.empty();
  }
  // The next one; nothing: there is none, or it is of another range than `range` (nullptr: any), or
  // has more records than `records_max`.
  std::optional<DirtyGroup> Take(const OwnRange* range, size_t records_max) {
    std::lock_guard lock(mutex_);
    if (closed_ || groups_.empty()) return std::nullopt;
    const DirtyGroup& next = groups_.back();
    if (range != nullptr && (next.range != range || next.records > records_max)) {
      return std::nullopt;
    }
    std::optional<DirtyGroup> taken = std::move(groups_.back());
    groups_.pop_back();
    return taken;
  }
  // Of one that was taken, the rest.
  void PutBack(DirtyGroup group) {
    std::lock_guard lock(mutex_);
    groups_.push_back(std::move(group));
  }
  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<DirtyGroup> groups_;
  bool closed_ = false;
};

}  // namespace pando
