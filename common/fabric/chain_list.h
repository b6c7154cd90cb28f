// How chains share a doorbell: those of one turn of a session go to a NIC as one linked list, in
// the order they were posted. The verbs fabric rings so, and the timing model counts so.
#pragma once

#include <cstdint>

namespace pando {

// Verbs behind one doorbell, at most. A chain is never divided.
inline constexpr uint32_t kChainListVerbsMax = 32;

}  // namespace pando
