// The local registry: a directory. For server 3 there are
//
//   server-3        the entry: three lines, "pando-registry 2", the fabric and the address
//   server-3.lock   locked for as long as the announcing process lives; never removed, so that
//                   nobody locks a dead file
//   server-3.sock   where SocketPath() puts the server's socket
//   identity.key    what its memory servers sign identities with; made by the first
//
// Thread-safe: no state but the directory's name.
#pragma once

#include <string>

#include "common/registry/registry.h"

namespace pando {

class LocalRegistry final : public Registry {
 public:
  // `directory` is absolute; every operation checks it (private_directory.h).
  explicit LocalRegistry(std::string directory) : directory_(std::move(directory)) {}

  // Statuses as OpenRegistry(). Servers make the directory, with what they ask for and announce;
  // where it is not there none is announced.
  static absl::StatusOr<std::unique_ptr<Registry>> Open(const std::string& directory);

  absl::StatusOr<std::unique_ptr<Announcement>> Announce(const ServerLocation& location) override;
  absl::StatusOr<std::vector<ServerLocation>> List(std::vector<absl::Status>* bad) override;
  absl::StatusOr<std::string> SocketPath(ServerId server) const override;
  absl::StatusOr<std::string> IdentityKeyPath(std::string_view fabric) const override;
  const std::string& name() const override { return directory_; }

 protected:
  int64_t poll_ns() const override;

 private:
  absl::Status Make() const;

  const std::string directory_;
};

}  // namespace pando
