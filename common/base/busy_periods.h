// What one user at a time may hold, in simulated time: a user that comes while it is held waits for
// the first gap that is long enough. Users need not ask in the order of their times.
//
// Not thread-safe. Invariant: periods do not overlap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pando {

class BusyPeriods {
 public:
  // Takes the first gap of `length_ns` (0: none is needed) from `from_ns` on; when it begins.
  // `past_ns`, at most `from_ns`: nobody will ask for an earlier time any more.
  int64_t Take(int64_t from_ns, int64_t length_ns, int64_t past_ns) {
    const auto is_past = [past_ns](const Period& period) { return period.end_ns <= past_ns; };
    periods_.erase(periods_.begin(), std::find_if_not(periods_.begin(), periods_.end(), is_past));
    if (length_ns <= 0) return from_ns;
    auto at = periods_.begin();
    for (; at != periods_.end() && at->begin_ns < from_ns + length_ns; ++at) {
      from_ns = std::max(from_ns, at->end_ns);
    }
    periods_.insert(at, {from_ns, from_ns + length_ns});
    taken_ns_ += length_ns;
    return from_ns;
  }
  size_t periods() const { return periods_.size(); }  // that may still matter
  int64_t taken_ns() const { return taken_ns_; }      // of all periods so far

 private:
  struct Period {
    int64_t begin_ns, end_ns;
  };
  std::vector<Period> periods_;  // ascending
  int64_t taken_ns_ = 0;
};

}  // namespace pando
