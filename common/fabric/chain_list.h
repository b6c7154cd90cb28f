// How chains share a doorbell: those of one turn of a session go to a NIC as one linked list, in
// the order they were posted. The verbs fabric rings so, and the timing model counts so.
#pragma once

#include <cstdint>

namespace pando {

//
// A NIC reads a list over PCIe. A work request that is posted by itself comes with the doorbell
// (mlx5: "BlueFlame"), half a microsecond earlier. So a short chain of a session that has nothing
// else in flight, whose latency is all that counts, has a doorbell for each of its verbs; for more
// chains the processor's time for doorbells counts for more.

// Verbs behind one doorbell, at most. A chain is never divided between lists.
inline constexpr uint32_t kChainListVerbsMax = 32;
// Verbs of a chain that is alone, and has a doorbell for each, at most: the last one's doorbell
// must not be later than the list would be read.
inline constexpr uint32_t kAloneVerbsMax = 4;

}  // namespace pando
