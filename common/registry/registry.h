// The registry: how compute servers find memory servers. The local one is a directory with one
// entry a server; the other is a memcached, for clusters of several hosts (or several clusters on
// one).
//
// Only the start needs it: connected clients notice nothing when a registry goes away.
//
// Thread safety: Registry and Announcement are thread-safe.
// Invariants:
//   1. At most one live process announces a server id. What "live" is, each registry says; a
//      process that was stopped longer than an entry lives counts as dead in a memcached.
//   2. The entry of a process that is gone is never listed by a registry on the process's own host.
//      From another host (memcached only) it is listed for at most kMemcachedExpiryS seconds.
//   3. Entries are published whole. In a directory they are readable by the owner only; a memcached
//      is open to all who reach it, so that nothing in an entry may be secret, and an entry proves
//      nothing about who wrote it.
//   4. Whatever is read is checked before it is used: an entry that is none gives a status.
//   5. No call waits more than five seconds for a memcached that does not answer. (Calls that wait
//      for servers have limits of their own.)
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

  // Whether clients can find the server now. Unavailable: the registry does not answer; the entry
  // comes back with it. AlreadyExists: another server has taken the id while this process was
  // stopped; this one is not announced any more. DataLoss, FailedPrecondition: something else
  // writes into this registry.
  virtual absl::Status status() const = 0;
};

class Registry {
 public:
  virtual ~Registry() = default;

  // Publishes a server until the result is destroyed. AlreadyExists: a live server has this id. An
  // entry left behind by a dead process is replaced. InvalidArgument: an address or a fabric that
  // cannot be written down. `location.host` is ignored: it is this host. A memcached may make this
  // wait for kMemcachedExpiryS and two seconds more, to see whether an entry of another host is
  // renewed.
  virtual absl::StatusOr<std::unique_ptr<Announcement>> Announce(
      const ServerLocation& location) = 0;

  // The live servers, by ascending id. Unavailable: the registry does not answer. DataLoss,
  // FailedPrecondition (another release): an entry is none; where `bad` is given these go there,
  // and the other servers are listed all the same.
  virtual absl::StatusOr<std::vector<ServerLocation>> List(
      std::vector<absl::Status>* bad = nullptr) = 0;

  // As List(), as soon as at least `servers_min` are there; DeadlineExceeded (saying how many were
  // found) after `timeout_ms`.
  absl::StatusOr<std::vector<ServerLocation>> WaitFor(size_t servers_min, int64_t timeout_ms);

  // Where a server of this registry should put its Unix socket. InvalidArgument: the path would be
  // longer than a Unix socket's may be. Others: its directory cannot be made, or belongs to others.
  virtual absl::StatusOr<std::string> SocketPath(ServerId server) const = 0;

  // The file of a key that the memory servers of this registry share and clients do not ask for
  // (common/auth/identity_key.h), in a directory of this user's own. "": servers of this fabric may
  // be on several hosts, and share no file. Statuses as SocketPath().
  virtual absl::StatusOr<std::string> IdentityKeyPath(std::string_view fabric) const = 0;

  // For messages: "/run/pando", "memcached://host:11211/words".
  virtual const std::string& name() const = 0;

 protected:
  // How often WaitFor() looks.
  virtual int64_t poll_ns() const = 0;
};

// "DIR" or "local:DIR": a directory, which the first memory server makes with mode 0700.
// InvalidArgument: empty, another scheme; PermissionDenied: the directory belongs to somebody else,
// others may write to it, or could put another in its place (private_directory.h).
//
// "memcached://HOST:PORT/CLUSTER": HOST may be a name, an IPv4 address or an IPv6 address in
// brackets; ":PORT" may be left out (11211). CLUSTER has 1 to 64 bytes, any; clusters of different
// names do not see each other. InvalidArgument: anything else; Unavailable: nobody, or no memcached
// answers there.
absl::StatusOr<std::unique_ptr<Registry>> OpenRegistry(std::string_view registry);

// Whether a client of `fabric` on this host can reach all of these. FailedPrecondition, saying
// which server and what to do: another fabric, or "shm" on another host.
absl::Status CheckReachable(const std::vector<ServerLocation>& servers, std::string_view fabric);

// Longest path of a Unix socket, without the terminating zero (sockaddr_un on Linux).
inline constexpr size_t kSocketPathBytesMax = 107;

// How long an entry in a memcached outlives its last renewal, seconds; renewed three times as
// often.
inline constexpr int64_t kMemcachedExpiryS = 6;

}  // namespace pando
