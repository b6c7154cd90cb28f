// For how long a compute server leaves a lock word alone after its turn (rule L6), so that others
// get it: as long as there are others. A failed CAS says who had the word; nothing else tells.
// Thread safety: none; these are the holder's of a local lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace pando {

// Chain times. After the last handover of a row.
constexpr int64_t kStayAwayChains = 2;
// Where operations are combined: for each other compute server that was lately seen to have the
// word, so that it goes round them, while what waits here is gathered into one write-back.
// Measured: see README.md.
constexpr int64_t kStayAwayChainsARival = 5;
constexpr int64_t kStayAwayChainsMax = 16;
// Chain times for which another compute server that had the word counts as a rival, at least: each
// of eight servers may well find it free, one after the other.
constexpr int64_t kRivalChains = 256;

constexpr int64_t StayAwayChains(int rivals) {
  return std::min(kStayAwayChainsMax, kStayAwayChainsARival * rivals);
}

// The compute servers that were seen to have one word, by two periods: this one and the one before.
class Rivals {
 public:
  void Note(uint16_t compute_server, int64_t now_ns, int64_t period_ns) {
    Turn(now_ns, period_ns);
    seen_ |= uint64_t{1} << (compute_server % 64);
  }
  // False: Count() is 0, whatever the time.
  bool any() const { return (seen_ | seen_before_) != 0; }
  // Some of more than four may be taken for one; StayAwayChains() is at its most with four.
  int Count(int64_t now_ns, int64_t period_ns) {
    Turn(now_ns, period_ns);
    return std::popcount(seen_ | seen_before_);
  }

 private:
  void Turn(int64_t now_ns, int64_t period_ns) {
    if (now_ns < until_ns_) return;
    seen_before_ = now_ns - until_ns_ < period_ns ? seen_ : 0;
    seen_ = 0;
    until_ns_ = now_ns + period_ns;
  }

  uint64_t seen_ = 0, seen_before_ = 0;
  int64_t until_ns_ = 0;  // of this period
};

}  // namespace pando
