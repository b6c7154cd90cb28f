// Where a memory server, or an owner, listens for control connections, and what others are told.
//
// Free functions; thread-safe as the system calls are.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "common/fabric/verbs/device_choice.h"
#include "common/fabric/verbs/tcp_socket.h"

namespace pando {

// As asked for. "": the address of the GID, or every address of this host where it has none, and
// any free port. InvalidArgument: no "host:port".
absl::StatusOr<HostPort> AddressToListenAt(std::string_view asked, const GidFacts& gid);

// What was bound, as other hosts reach it: where that is every address of this host it is none of
// them, and the address of the GID is published, or this host's name where it has none.
HostPort AddressToPublish(const HostPort& bound, const GidFacts& gid);

}  // namespace pando
