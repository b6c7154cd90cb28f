// The registry in a memcached, for clusters of several hosts. Clusters share one memcached: all
// keys of cluster "words" begin with "pando1/words/" (what is no letter, digit, '_', '-' or '.' is
// written as %xx):
//
//   pando1/words/server-3   the entry of server 3 (entry.h). Renewed by its process; expires
//   pando1/words/servers    the index: which ids to look for, as memcached cannot be asked. Never
//                           shrinks; expires when no member has renewed for a while
//
// Who owns an id: the process whose incarnation stands in the entry. An entry appears by "add" and
// changes by "cas" only, so that of two that announce one id, one gets it. The entry of another
// process may be replaced where that process has certainly ended (its host asks the kernel), and is
// gone by itself when it has not been renewed for `expiry_s`.
//
// A member whose memcached dies logs that once, goes on, and publishes its entry again when there
// is a memcached again. A member whose id was taken in the meantime (it was stopped, say) says so
// and stays out.
//
// Thread-safe. An announcement has a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/registry/memcached_client.h"
#include "common/registry/process_identity.h"
#include "common/registry/registry.h"

namespace pando {

inline constexpr std::string_view kMemcachedScheme = "memcached://";

struct MemcachedRegistryOptions {
  std::string host;
  uint16_t port = 11211;
  std::string cluster;  // 1 to 64 bytes, any

  // At least 2: a memcached counts in seconds and forgets up to one early.
  int64_t expiry_s = kMemcachedExpiryS;
  int64_t renew_ms = kMemcachedExpiryS * 1000 / 3;
  HostIdentity this_host = ThisHost();  // another one in tests only
};

// Of "memcached://HOST:PORT/CLUSTER"; InvalidArgument: it is not written like this.
absl::StatusOr<MemcachedRegistryOptions> ParseMemcachedName(std::string_view name);

class MemcachedRegistry final : public Registry {
 public:
  // Statuses as OpenRegistry().
  static absl::StatusOr<std::unique_ptr<Registry>> Open(MemcachedRegistryOptions options);

  explicit MemcachedRegistry(MemcachedRegistryOptions options);

  absl::StatusOr<std::unique_ptr<Announcement>> Announce(const ServerLocation& location) override;
  absl::StatusOr<std::vector<ServerLocation>> List(std::vector<absl::Status>* bad) override;
  absl::StatusOr<std::string> SocketPath(ServerId server) const override;
  absl::StatusOr<std::string> IdentityKeyPath(std::string_view fabric) const override;
  const std::string& name() const override { return name_; }

 protected:
  int64_t poll_ns() const override { return 100 * kMillisecondNs; }

 private:
  const MemcachedRegistryOptions options_;
  const std::string name_;
  MemcachedClient client_;
};

}  // namespace pando
