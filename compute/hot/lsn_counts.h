// How many records are dirty since when: their newest messages' LSNs, counted by segments of all
// LSNs. What the log's base needs (rule W5) is a bound below the lowest; a list in the order of
// LSNs would say it exactly, and cost each record eight bytes and each put two cache misses.
//
// Thread safety: none (the partition's mutex).
// Invariants:
//   1. lowest() is at or below every LSN that counts, and kNoLsn if there is none. It never goes
//      back but to kNoLsn. Once no LSN below one at which Divide() was called counts any more it is
//      at or above that one; where segments had to become fewer meanwhile, a segment's LSNs later.
//   2. There are at most kSegmentsMax segments; the first has some.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "common/wire/lsn.h"

namespace pando {

class LsnCounts {
 public:
  // Above every one before.
  void Add(Lsn lsn) {
    if (segments_.empty() || lsn - segments_.back().first >= span_) Begin(lsn);
    ++segments_.back().count;
  }
  void Remove(Lsn lsn) {
    const auto segment =
        std::prev(std::upper_bound(segments_.begin(), segments_.end(), lsn,
                                   [](Lsn of, const Segment& other) { return of < other.first; }));
    --segment->count;
    size_t empty = 0;
    while (empty < segments_.size() && segments_[empty].count == 0) ++empty;
    if (empty > 0)
      segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(empty));
  }
  // From `next` on they are told from those before.
  void Divide(Lsn next) {
    if (segments_.empty()) return;
    if (segments_.back().count == 0) {
      segments_.back().first = next;
    } else {
      Begin(next);
    }
  }
  Lsn lowest() const { return segments_.empty() ? kNoLsn : segments_.front().first; }
  size_t count() const {
    size_t count = 0;
    for (const Segment& segment : segments_) count += segment.count;
    return count;
  }
  void Clear() { segments_.clear(); }

 private:
  static constexpr size_t kSegmentsMax = 128;
  static constexpr Lsn kSpanMin = 64;
  struct Segment {
    Lsn first;
    uint64_t count;
  };

  void Begin(Lsn first) {
    if (segments_.size() == kSegmentsMax) Simplify();
    // There may have been far more of them once, of smaller messages.
    if (segments_.size() < kSegmentsMax / 4) span_ = std::max(kSpanMin, span_ / 2);
    segments_.push_back({first, 0});
  }
  void Simplify() {
    std::erase_if(segments_, [](const Segment& segment) { return segment.count == 0; });
    if (segments_.size() < kSegmentsMax / 4 * 3) return;
    // Two become one.
    span_ *= 2;
    for (size_t i = 0; i < segments_.size(); ++i) {
      if (i % 2 == 0) {
        segments_[i / 2] = segments_[i];
      } else {
        segments_[i / 2].count += segments_[i].count;
      }
    }
    segments_.resize((segments_.size() + 1) / 2);
  }

  std::vector<Segment> segments_;  // ascending
  Lsn span_ = kSpanMin;            // LSNs of a new one
};

}  // namespace pando
