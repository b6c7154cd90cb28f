// What this machine has of memory for a server, counted before any is taken: memory of a server
// costs nothing until it is written, and where there is none left then, the kernel's OOM killer
// decides which process ends.
//
// Thread safety: free functions and plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace pando {

// One thing that bounds memory: the machine, a NUMA node, a control group.
struct MemoryBound {
  std::string name;              // for messages: "this machine", "control group /user.slice"
  uint64_t total_bytes = 0;      // the most that it ever has
  uint64_t available_bytes = 0;  // of that now, with what the kernel would give back of its caches
};

struct HostMemory {
  std::vector<MemoryBound> bounds;
  // Huge pages of the default size that are reserved, free and not promised to anybody: on the NUMA
  // node that was asked about, else on all. Per node the kernel does not say what is promised.
  uint64_t huge_free_bytes = 0;
};

// `numa_node` -1: none in particular. What cannot be read is left out: nothing is refused for it.
// `root` stands before /proc and /sys in tests.
HostMemory ReadHostMemory(int numa_node, const std::string& root = "");

// Whether `bytes` of normal pages fit. ResourceExhausted: names the tightest bound that they do not
// fit into, and its numbers.
absl::Status CheckMemory(uint64_t bytes, const HostMemory& host);

}  // namespace pando
