// The client side of the verbs fabric: chains are posted to an RDMA NIC (or to SoftRoCE), those of
// one turn of the session with one doorbell. Upstream rdma-core only.
//
// Invariants beside those of fabric.h:
//   1. An endpoint has one reliable-connected queue pair for each memory server that it has posted
//      to, made for the first chain, and one completion queue. A chain that waits for it longer
//      than it may is DeadlineExceeded: nothing was posted. Only a chain's last verb asks for a
//      completion; verbs that cannot be executed are found before the chain is posted.
//   2. A queue pair that breaks is destroyed at once, so that nothing touches its chains' buffers
//      any more, and they are Unavailable: at the server something of them may still be under way.
//      So is every later chain to that server until it has confirmed the contrary (rule L5) and a
//      new queue pair is connected, which needs no caller's help but that he polls, or posts.
//   3. A memory server whose control connection ends is gone, for this fabric's life, unless it is
//      added again, as another life with queue pairs and keys of its own; whether it is there for
//      others is what CallOnFreshConnection() finds out. A client renews its leases over it:
//      silence of a living connection is the business of leases.
//   4. Where the device is software, lines have checksums and locks are released by CAS (rules F1,
//      L4).
//
// Endpoints keep what they need of the fabric alive. A fabric does not survive fork(): connect in
// the child.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/auth/cluster_secret.h"
#include "common/fabric/fabric.h"
#include "common/fabric/verbs/device_choice.h"
#include "common/registry/server_location.h"

namespace pando {

class ThreadDomainCalls;

struct VerbsFabricOptions {
  VerbsDeviceOptions device;
  // For each handshake, but for those after the first ones at least a second; so has the first
  // chain to a server, which waits for a queue pair, where it does not say how long
  // (Chain::LimitWait()).
  int64_t connect_timeout_ms = 2'000;
  int silence_ms = 10'000;  // a host that gives no sign of life for so long is gone
  // Verbs under way on one queue pair; more wait in the endpoint. SoftRoCE takes 64 KiB for these,
  // and mapping them is most of what a session costs there.
  uint32_t work_requests = 120;
  uint32_t inline_bytes = 128;  // WRITEs up to this travel with the doorbell, where the NIC can
  // Whether a short chain that is alone has a doorbell for each verb (chain_list.h). Not given:
  // where the device is a NIC; on software devices a doorbell is a call of the kernel.
  std::optional<bool> alone_doorbells;
  std::shared_ptr<const ClusterSecret> secret;       // nullptr: the cluster has none
  ThreadDomainCalls* thread_domain_calls = nullptr;  // nullptr: the library's; tests have a fake
  // Where given, servers that cannot be connected are left out, and why is said here; one must
  // answer. Used by ConnectVerbs() alone.
  std::vector<absl::Status>* missing = nullptr;
  // For tests: the queue pair breaks behind an endpoint's doorbell of each multiple of this; 0:
  // never.
  uint64_t break_every = 0;
};

// Connects to all servers, at the same time; their locations' addresses are "host:port". As
// VerbsDevice::Open(), and: InvalidArgument: no servers, an id twice, a server that calls itself
// otherwise, no address; Unavailable: nobody there, or no answer in time; PermissionDenied: one
// side does not know the secret; FailedPrecondition: another version of the handshake (says both);
// DataLoss: not a memory server.
absl::StatusOr<std::shared_ptr<Fabric>> ConnectVerbs(const std::vector<ServerLocation>& servers,
                                                     const VerbsFabricOptions& options = {});

// What an endpoint of this fabric told its NIC, and was told. Tests compare it with the meter.
struct VerbsCounters {
  uint64_t doorbells = 0;
  uint64_t work_requests = 0;
  uint64_t inlined = 0;      // of these
  uint64_t completions = 0;  // good ones
  uint64_t failures = 0;     // completions with an error
  uint64_t broken = 0;       // queue pairs that broke
  uint64_t reconnects = 0;   // and were replaced
};
// `endpoint` belongs to a verbs fabric.
const VerbsCounters& VerbsCountersOf(const Endpoint& endpoint);
// For tests: ends the control connection to a server, as a network that loses it would.
void BreakVerbsConnection(Fabric* fabric, ServerId server);
// For tests: breaks the queue pair to a server, as a failing NIC would.
void BreakVerbsQueuePair(Endpoint* endpoint, ServerId server);

}  // namespace pando
