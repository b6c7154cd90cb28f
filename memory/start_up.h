// What pando-memory does before it serves: does its memory fit into this machine, how many clients
// fit into its file descriptors, and is the registry there yet.
//
// Thread safety: for the main thread, before Serve().
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "common/program/host_memory.h"
#include "memory/server_fabric.h"

namespace pando::memory {

// Everything that the fabric will map: the region, its lock table and what endpoints have there.
uint64_t MappedBytes(const ServerFabricOptions& options);

// Whether it fits. Where huge pages are asked for and their NUMA node has too few, switches them
// off in `options`, with a log line: what the machine has reserved elsewhere is no help there.
// ResourceExhausted: more than is available, with the numbers and what to do; a warning instead if
// `overcommit`.
absl::Status FitIntoHost(const HostMemory& host, bool overcommit, ServerFabricOptions* options);

// How many of `connections_max` clients `files` descriptors are enough for.
uint64_t ConnectionsWithin(uint64_t files, uint64_t connections_max);

// Asks again while the registry does not answer (Unavailable), for `wait_ms` each time. Says so
// once, and once that it is over.
class RegistryPatience {
 public:
  RegistryPatience(int server_id, int64_t wait_ms) : server_id_(server_id), wait_ms_(wait_ms) {}
  // The first answer, or the last status: annotated with how long was waited, and which flag says
  // so. Cancelled: `*stop` became true.
  absl::Status Try(const std::function<absl::Status()>& attempt,
                   const volatile std::sig_atomic_t* stop);

 private:
  const int server_id_;
  const int64_t wait_ms_;
};

}  // namespace pando::memory
