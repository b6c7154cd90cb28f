#include "bench/node_loop/node_loop.h"

#include <algorithm>
#include <cstring>

#include "bench/workload/distribution.h"
#include "common/base/clock.h"

namespace pando::bench {
namespace {

constexpr int kBatch = 1'000;  // operations between two looks at the clock

// Record number -> key, never 0.
uint64_t KeyOf(uint64_t record) { return MixBits(record, 64, 1) | 1; }

}  // namespace

double ThreadCpuSeconds() { return static_cast<double>(ThreadCpuNs()) / kSecondNs; }

uint32_t NodeArray::SlotOffset(uint32_t slot) {
  return (kHeaderLines + slot / kSlotsPerLine) * kLineBytes + 1 +
         (slot % kSlotsPerLine) * kSlotBytes;
}

uint64_t NodeArray::NodesOf(uint64_t records) {
  return std::max<uint64_t>(1, (records + kUsedSlots - 1) / kUsedSlots);
}

NodeArray::NodeArray(uint64_t records)
    : node_count_(NodesOf(records)), nodes_(node_count_ * kNodeBytes) {
  for (uint64_t record = 0; record < this->records(); ++record) {
    unsigned char* const node = &nodes_[record / kUsedSlots * kNodeBytes];
    // Slots are taken in no particular order, and the free ones lie between them.
    const auto slot = static_cast<uint32_t>(record % kUsedSlots * 10 / 7);
    const uint64_t key = KeyOf(record), value = record + 1;
    unsigned char* const to = node + SlotOffset(slot) + 2;
    std::memcpy(to, &key, 8);
    std::memcpy(to + 8, &value, 8);
  }
}

uint64_t NodeArray::Find(uint64_t record) {
  std::memcpy(copy_, &nodes_[record / kUsedSlots * kNodeBytes], kNodeBytes);
  const uint64_t wanted = KeyOf(record);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const unsigned char* const from = copy_ + SlotOffset(slot) + 2;
    uint64_t key, value;
    std::memcpy(&key, from, 8);
    if (key != wanted) continue;
    std::memcpy(&value, from + 8, 8);
    return value;
  }
  return 0;
}

NodeLoopResult RunNodeLoop(NodeArray* nodes, double seconds, uint64_t seed) {
  Random random(seed);
  NodeLoopResult result;
  const double cpu_start = ThreadCpuSeconds();
  const int64_t start_ns = RealClock().NowNs();
  const int64_t end_ns = start_ns + static_cast<int64_t>(seconds * kSecondNs);
  int64_t now_ns = start_ns;
  while (now_ns < end_ns) {
    for (int i = 0; i < kBatch; ++i) {
      const uint64_t record = random.Uniform(nodes->records());
      result.found += nodes->Find(record) == record + 1 ? 1 : 0;
    }
    result.operations += kBatch;
    now_ns = RealClock().NowNs();
  }
  result.seconds = static_cast<double>(now_ns - start_ns) / kSecondNs;
  result.cpu_seconds = ThreadCpuSeconds() - cpu_start;
  return result;
}

}  // namespace pando::bench
