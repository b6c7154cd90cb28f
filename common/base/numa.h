// Where memory lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace pando {

// Binds a mapping to a NUMA node, before its pages are touched. InvalidArgument: there is no such
// node. Where the kernel does not let this process, a line in the log and nothing else.
absl::Status BindToNumaNode(std::byte* base, uint64_t bytes, int node);

}  // namespace pando
