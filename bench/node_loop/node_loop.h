// The yardstick for speed on shm: copies a random node from a large array and searches the copy, as
// a get has to do at the least. Rates of Pando are given as a share of this loop's rate, measured
// in the same run, because that share says more than either number on a machine that others use
// too.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/random.h"

namespace pando::bench {

// Nodes like those of a tree with 8-byte keys and values: 1 KiB, 14 lines of slots after two header
// lines, three slots of 18 bytes a line, 70 % of them used. Not thread-safe.
class NodeArray {
 public:
  static constexpr uint32_t kNodeBytes = 1024;

  explicit NodeArray(uint64_t records);

  static uint64_t NodesOf(uint64_t records);
  uint64_t node_count() const { return node_count_; }
  uint64_t records() const { return node_count_ * kUsedSlots; }
  // Copies the record's node and searches the copy for it, slot by slot. The value found, or 0.
  uint64_t Find(uint64_t record);

 private:
  static constexpr uint32_t kLineBytes = 64;
  static constexpr uint32_t kHeaderLines = 2;
  static constexpr uint32_t kSlotsPerLine = 3;
  static constexpr uint32_t kSlotBytes = 18;
  static constexpr uint32_t kSlots = (kNodeBytes / kLineBytes - kHeaderLines) * kSlotsPerLine;
  static constexpr uint32_t kUsedSlots = kSlots * 7 / 10;

  static uint32_t SlotOffset(uint32_t slot);

  uint64_t node_count_;
  std::vector<unsigned char> nodes_;
  alignas(kLineBytes) unsigned char copy_[kNodeBytes];
};

double ThreadCpuSeconds();  // of the calling thread

struct NodeLoopResult {
  uint64_t operations = 0;
  uint64_t found = 0;  // must equal operations
  double seconds = 0;
  double cpu_seconds = 0;  // of this thread: what others on the machine do not disturb
  double rate() const { return static_cast<double>(operations) / seconds; }
};

// Uniformly random records for this long.
NodeLoopResult RunNodeLoop(NodeArray* nodes, double seconds, uint64_t seed);

}  // namespace pando::bench
