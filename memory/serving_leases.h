// Leases of the clients that serve keys of owned trees, at the catalog's server (rule O5).
//
// Not thread-safe: one control thread. Invariants:
//   1. Only this server's own monotonic clock counts. It begins to count when a ping is accepted,
//      so later than the client, which also takes less for itself (rule O5).
//   2. How a life ends changes nothing: what it was granted runs on, past its connection.
//   3. What an earlier life of this server granted is not known, so for everybody a lease runs
//      from this server's start.
//   4. At most the lives that have asked within a lease are remembered.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "memory/client_id.h"

namespace pando::memory {

class ServingLeases {
 public:
  // 0: none are granted, and nobody's runs.
  ServingLeases(int64_t lease_ns, int64_t start_ns) : lease_ns_(lease_ns), start_ns_(start_ns) {}

  int64_t lease_ns() const { return lease_ns_; }
  // Begins or renews the client's lease.
  void Renew(const ClientId& client, int64_t now_ns);
  // From when on nothing is served by that life any more, if it asks no more.
  int64_t OverNs(const ClientId& client) const;
  size_t size() const { return heard_ns_.size(); }

 private:
  const int64_t lease_ns_, start_ns_;
  absl::flat_hash_map<ClientId, int64_t> heard_ns_;
};

}  // namespace pando::memory
