// The client side of the shm fabric (one host, no RDMA, no privileges): verbs are executed by the
// calling thread on memory shared with the memory servers.
//
// A chain is done when Post() returns; one with a READ or an atomic may be left to Poll(), if other
// coroutines have work (Endpoint::set_overlap()) or another was left before. READs carry times
// (Chain::posted_ns, completed_ns) because lines are not atomic (rule F2). Control calls go over
// one connection a server, which is one peer to the server however many endpoints there are. One
// watcher thread a fabric receives replies and notices the death of servers: their chains and calls
// are Unavailable from then on, the other servers stay usable.
//
// Endpoints keep what they need of the fabric alive. A fabric does not survive fork(): connect in
// the child.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/fabric/fabric.h"
#include "common/registry/server_location.h"

namespace pando {

struct ShmFabricOptions {
  // For each handshake, but for those after the first ones at least a second: a server that does
  // not answer is Unavailable.
  int64_t connect_timeout_ms = 2'000;
  // Where given, servers that cannot be connected are left out, and why is said here; one must
  // answer.
  std::vector<absl::Status>* missing = nullptr;
};

// Connects to all servers, at the same time. InvalidArgument: none, an id twice, or a server that
// calls itself otherwise; Unavailable: nobody there, or no answer in time; PermissionDenied: the
// server runs as another user; FailedPrecondition: another version of the handshake (says both);
// DataLoss: not a memory server.
absl::StatusOr<std::shared_ptr<Fabric>> ConnectShm(const std::vector<ServerLocation>& servers,
                                                   const ShmFabricOptions& options = {});

}  // namespace pando
