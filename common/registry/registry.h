// The registry: how compute servers find memory servers. The local one is a directory with one
// entry a server.
//
// Thread safety: Registry and Announcement are thread-safe.
// Invariants:
//   1. At most one live process announces a server id: the announcement holds a lock that ends with
//   its process.
//   2. An entry whose process is gone is never listed.
//   3. Entries are published whole (written aside, renamed) and readable by the owner only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/registry/server_location.h"

namespace pando {

// One server's entry. Destruction withdraws it; so does the end of the process, however it ends.
class Announcement {
 public:
  virtual ~Announcement() = default;
};

class Registry {
 public:
  virtual ~Registry() = default;

  // Publishes a server until the result is destroyed. AlreadyExists: a live server has this id. An
  // entry left behind by a dead process is replaced. InvalidArgument: an address that cannot be
  // written down.
  virtual absl::StatusOr<std::unique_ptr<Announcement>> Announce(
      const ServerLocation& location) = 0;

  // The live servers, by ascending id.
  virtual absl::StatusOr<std::vector<ServerLocation>> List() = 0;

  // As List(), as soon as at least `servers_min` are there; DeadlineExceeded (saying how many were
  // found) after `timeout_ms`.
  virtual absl::StatusOr<std::vector<ServerLocation>> WaitFor(size_t servers_min,
                                                              int64_t timeout_ms) = 0;

  // Where a server of this registry should put its Unix socket. InvalidArgument: the path would be
  // longer than a Unix socket's may be.
  virtual absl::StatusOr<std::string> SocketPath(ServerId server) const = 0;
};

// "DIR" or "local:DIR": a directory, made with mode 0700 if it is not there. InvalidArgument:
// empty, another scheme; PermissionDenied: the directory belongs to somebody else or others may
// write to it.
absl::StatusOr<std::unique_ptr<Registry>> OpenRegistry(std::string_view registry);

// Longest path of a Unix socket, without the terminating zero (sockaddr_un on Linux).
inline constexpr size_t kSocketPathBytesMax = 107;

}  // namespace pando
