// Links between compute servers (peer.h) over RDMA: a reliable-connected queue pair for each, SENDs
// into receive queues that links share, and credit, so that none is ever full. Hellos, the proof of
// the secret and the addresses of queue pairs go over TCP (../link/peer_hub.h), as does the end:
//
//   who connects                              who listens
//   kPeerHello               ------->
//                            <-------         kPeerHelloReply
//   kAuth                    <------>         kAuth        where there is a secret
//   kPeerOpen: queue pair    ------->
//                            <-------         kPeerOpenReply: queue pair, which answers
//   kPeerReady               ------->         so does the other
//
// A SEND carries in its immediate data how much credit it gives back; one without bytes does only
// that. The thread of the port polls for messages of all links.
//
// Invariants beside those of peer_hub.h:
//   1. Nobody gets a queue pair before both have proved themselves, where there is a secret; nor
//      may the other side READ or WRITE anything here.
//   2. An end sends at most kPeerCredits messages more than it was given credit for, and has a
//      buffer here for each. A peer that sends more, or garbage, loses its link.
//   3. Queue pairs are connected on threads of their own (queue_pair_opener.h).
//   4. A queue pair is broken, and what has completed is polled, before it is destroyed: its
//      buffers are nobody's then.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/auth/cluster_secret.h"
#include "common/fabric/peer.h"
#include "common/fabric/verbs/verbs_device.h"

namespace pando {

struct VerbsPeerOptions {
  int silence_ms = 10'000;                      // a host that gives no sign of life for so long
  std::shared_ptr<const ClusterSecret> secret;  // nullptr: the cluster has none
};

// Statuses as Fabric::OpenPeers(). Without an address it is that of the device's GID, and a port
// that the kernel chooses.
absl::StatusOr<std::unique_ptr<PeerPort>> OpenVerbsPeers(std::shared_ptr<VerbsDevice> device,
                                                         const VerbsPeerOptions& verbs,
                                                         const PeerOptions& options);

}  // namespace pando
