// What a memory server knows of every node of one chunk: 9 bytes each.
//
// Not thread-safe: one control thread. Invariants:
//   1. A node is in exactly one state (NodeUse). Untouched ones are those behind handed().
//   2. life() is the newest that anybody was granted for the node, or that its chunk's memory ever
//      had; each grant makes it newer (rule R5). The holder has written the node if its memory has
//      it.
//   3. Free nodes are in one queue, those that rest behind those that do not.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/time_constants.h"
#include "common/wire/node_messages.h"

namespace pando::memory {

class ChunkNodes {
 public:
  // `life`: of all nodes; `zero`: their memory is. Ends of rests are rounded up to the grain, so
  // that few have to be remembered.
  ChunkNodes(uint32_t count, uint32_t life, bool zero,
             int64_t rest_grain_ns = TimeConstants().rest_grain_ns);

  uint32_t count() const { return static_cast<uint32_t>(uses_.size()); }
  uint32_t handed() const { return handed_; }
  bool zero() const { return zero_; }
  NodeUse use(uint32_t node) const { return static_cast<NodeUse>(uses_[node] & kUseMask); }
  uint32_t life(uint32_t node) const { return records_[node].life; }
  // Of all nodes: the serially newest that anybody was ever granted.
  uint32_t newest_life() const { return newest_life_; }
  // Its memory may be other than zero.
  bool has_image(uint32_t node) const { return !zero_ || (uses_[node] & kImageBit) != 0; }
  // Incarnation of the one it is, or was, out to; else 0.
  uint32_t holder(uint32_t node) const;
  bool IsHandedOutTo(uint32_t node, uint32_t incarnation) const {
    return use(node) == NodeUse::kOut && records_[node].link == incarnation;
  }
  // When the free node that has rested longest may be handed out; kNeverNs: none rests.
  int64_t rested_ns() const { return resting_.empty() ? kNeverNs : resting_.front().until_ns; }
  uint32_t in_use(NodeUse use) const { return counts_[static_cast<size_t>(use)]; }
  bool has_free() const { return in_use(NodeUse::kFree) > 0; }
  // Nothing of it is in use: it may go back.
  bool all_free() const { return in_use(NodeUse::kFree) == handed_; }
  // Whether a node of it was ever written, as far as anybody said.
  bool written() const { return written_; }

  // The first of `nodes` untouched nodes, out to `incarnation` now, all with one life.
  uint32_t TakeUntouched(uint32_t nodes, uint32_t incarnation);
  // The free node that has waited longest, if it has rested.
  std::optional<uint32_t> TakeRested(int64_t now_ns, uint32_t incarnation);
  // Nodes that are out and were not written since: free at once.
  void PutBack(uint32_t first, uint32_t nodes);
  // A node that was written.
  void Free(uint32_t node, int64_t rested_ns);
  void Settle(uint32_t node) { SetUse(node, NodeUse::kSettled); }
  void Orphan(uint32_t node) { SetUse(node, NodeUse::kOrphan); }
  // Notes all that are out now; each until it is anything else. Looks at none of them: the next one
  // that is taken does.
  void NoteOut() { notes_out_ = true; }
  bool is_noted(uint32_t node) const {
    return (uses_[node] & kNotedBit) != 0 || (notes_out_ && use(node) == NodeUse::kOut);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint8_t kImageBit = 0x80, kNotedBit = 0x40, kUseMask = 0x3f;
  struct Record {
    uint32_t life;
    uint32_t link;  // free: the next free node; out, orphan: the holder's incarnation
  };
  struct RestingNodes {
    int64_t until_ns;
    uint32_t count;
  };
  void SetUse(uint32_t node, NodeUse use);
  void Grant(uint32_t node, uint32_t life, uint32_t incarnation);
  // Before a node is taken: it is not one of those that were out.
  void MarkNoted();
  void PushFront(uint32_t node);

  const bool zero_;
  const int64_t rest_grain_ns_;
  std::vector<Record> records_;
  std::vector<uint8_t> uses_;  // NodeUse, kImageBit, kNotedBit
  std::array<uint32_t, 5> counts_{};
  uint32_t handed_ = 0;
  uint32_t newest_life_;  // kept, as freeing a tree asks every chunk of it
  bool written_ = false;
  bool notes_out_ = false;  // all that are out are noted, those without the bit, too
  uint32_t first_free_ = kNone, last_free_ = kNone;
  std::deque<RestingNodes> resting_;  // the end of the queue, by time; few: times are rounded up
  uint32_t resting_count_ = 0;
};

}  // namespace pando::memory
