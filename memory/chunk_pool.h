// The chunks of the region that no tree has: fresh ones, and those that came back.
//
// Not thread-safe: one control thread. Invariants:
//   1. A chunk taken is zero, but for life stamps at the starts of its nodes (node_glance.h).
//   2. A chunk that was written rests before it is taken again (rule R3).
//   3. The life of a chunk never goes back: it is at least every life that a node in it ever had,
//      or was granted, when the chunk came back, and its next nodes are granted newer ones (rules
//      F3, R5). What an extent had in it says nothing of lives.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "memory/region.h"

namespace pando::memory {

class ChunkPool {
 public:
  ChunkPool(Region* region, const Clock* clock, int64_t rest_ns);

  struct Taken {
    uint32_t chunk = 0;
    uint32_t life = 0;  // its next nodes get newer ones
    bool zero = true;   // all of it; false: stamped with `life`
  };
  // Prepares a chunk for nodes of this size. ResourceExhausted: none is left, or all rest.
  // Here and below: `kept_back` free chunks are for others.
  absl::StatusOr<Taken> Take(uint32_t node_bytes, uint64_t kept_back = 0);
  // `written`: whether anything of it may have been written since it was taken; `life`: the newest
  // that was granted for a node of it.
  void GiveBack(uint32_t chunk, bool written, uint32_t life);

  // --- Chunks side by side, for what has no nodes.
  struct Run {
    uint32_t first = 0;
    int64_t rested_ns = kNeverNs;  // when all of them may be taken; kNeverNs: there is no such run
  };
  // The run that may be taken first; of those that may be taken now the highest, so that chunks for
  // nodes, which come from below, leave long ones.
  struct Taboo {
    uint32_t first = 0, count = 0;
  };
  Run FindRun(uint32_t count, uint64_t kept_back) const { return FindRun(count, kept_back, {}); }
  // None of the taboo's chunks.
  Run FindRun(uint32_t count, uint64_t kept_back, const Taboo& taboo) const;
  // Of free chunks and such that rest: how many side by side.
  uint64_t LongestRun(uint64_t kept_back) const;
  // A run that was found, and has rested. Each chunk has to be cleared before it is used, and goes
  // back with GiveBack().
  void TakeRun(const Run& run, uint32_t count);
  // One that was cleared and is written now: it has to be cleared again.
  void MarkUncleared(uint32_t chunk) { uncleared_[chunk] = true; }
  // All zero, no stamps, from now on. Returns the bytes that had to be zeroed.
  uint64_t Clear(uint32_t chunk);

  uint64_t free_chunks() const {
    return (fresh_end_ - next_fresh_) + ready_.size() + resting_.size();
  }
  // When the first chunk that rests may be taken; kNeverNs: none will be.
  int64_t rested_ns(uint64_t kept_back = 0) const {
    return resting_.empty() || free_chunks() <= kept_back ? kNeverNs : resting_.front().until_ns;
  }
  uint64_t exhausted() const { return exhausted_; }
  uint64_t zeroed_bytes() const { return zeroed_bytes_; }
  uint64_t taken_again() const { return taken_again_; }

 private:
  struct Resting {
    uint32_t chunk;
    int64_t until_ns;
  };
  // As if a node were larger than any chunk: none starts in it.
  static constexpr uint32_t kNoNodes = UINT32_MAX;

  void NoteLife(uint32_t chunk, uint32_t life);
  void NoteLives(uint32_t chunk);
  void Zero(uint32_t chunk);
  void Prepare(uint32_t chunk);
  // By chunk: when it may be taken, 0: now; kNeverNs: it is in use.
  std::vector<int64_t> FreeFrom() const;
  absl::Status Exhausted(uint64_t kept_back);

  Region* const region_;
  const Clock* const clock_;
  const int64_t rest_ns_;
  std::vector<uint32_t> lives_;       // by chunk: the highest known
  std::vector<uint32_t> node_bytes_;  // by chunk: of its last use
  std::vector<bool> stamped_;         // by chunk: when it was last taken
  std::vector<bool> uncleared_;       // by chunk: taken as part of a run, with what was in it
  uint32_t next_fresh_ = 0;           // chunks from here to fresh_end_ have never been used
  uint32_t fresh_end_;
  std::vector<uint32_t> ready_;  // came back unwritten and all zero
  std::deque<Resting> resting_;  // oldest first; not zeroed yet
  uint64_t exhausted_ = 0, zeroed_bytes_ = 0, taken_again_ = 0;
};

}  // namespace pando::memory
