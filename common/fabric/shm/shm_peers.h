// Links between compute servers (peer.h) on one host: Unix sockets that keep message borders, and
// one thread a port (../link/peer_hub.h). A message is one system call at either end; what is under
// way is bounded by the sender's socket.
//
// Invariants beside those of peer_hub.h:
//   1. The socket's file has mode 0600, and the process at the other end runs as this user or root:
//      both sides look, by what the kernel says.
//   2. Before the hellos nothing but a hello is taken; after them any 1 to 4,096 bytes are a
//      message, and what is longer ends the link.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/peer.h"

namespace pando {

// Statuses as Fabric::OpenPeers(); with an acceptor there has to be an address. A fabric makes one
// up in the directory of the first of its memory servers, which is one of this user's.
absl::StatusOr<std::unique_ptr<PeerPort>> OpenShmPeers(const PeerOptions& options);

}  // namespace pando
