// Leases of compute servers, on fabrics that can cut a living one off (rule C1): who has not been
// heard of for a lease may be declared dead.
//
// Not thread-safe: one control thread. Invariants:
//   1. Only this server's own monotonic clock counts.
//   2. After a gap in the server's own timer all leases start again: it was not there to hear.
//   3. A lease runs out once; the peer is forgotten with it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "common/base/clock.h"
#include "common/fabric/server.h"

namespace pando::memory {

class LeaseTable {
 public:
  // 0: there are no leases.
  explicit LeaseTable(int64_t lease_ns) : lease_ns_(lease_ns) {}

  // Begins or renews the peer's lease.
  void Renew(PeerId peer, int64_t now_ns);
  void Forget(PeerId peer) { heard_ns_.erase(peer); }
  // Whose leases have run out. To be called at NextStepNs() or before.
  std::vector<PeerId> Step(int64_t now_ns);
  // kNeverNs: no client has a lease.
  int64_t NextStepNs() const;

 private:
  // Looks often enough to tell a gap in the timer from silence of the peers.
  int64_t interval_ns() const { return lease_ns_ / 4; }

  const int64_t lease_ns_;
  absl::btree_map<PeerId, int64_t> heard_ns_;
  int64_t last_step_ns_ = 0;
};

}  // namespace pando::memory
