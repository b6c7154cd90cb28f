// The lengths of time in which the parts of the protocol wait for each other, in one place: what
// one side may take for granted is what the other side keeps to.
//
// Memory servers and clients are each given a set; the two must be the same (production: the
// defaults). The simulator divides all of them, so that a run of a few virtual milliseconds passes
// each of them many times. Lengths that follow from what was measured (chain times) are not here,
// nor are leases, which a memory server chooses and announces.
//
// Invariants (Validate()):
//   1. Rule R3: a READ that may be believed takes at most half of the rest of freed memory. The
//      other half is for what a client does between the READ and its use, and for clocks that
//      differ.
//   2. A client that waits for resting memory looks several times a rest; ends of rests are rounded
//      up by less than a rest.
//   3. Cells rest no longer than nodes (rule K2): that is for what it costs, not for what is true.
//   4. The recovery of a lock (rule L5) asks more than once, and survives a lost call.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/clock.h"

namespace pando {

struct TimeConstants {
  // --- Memory servers.
  // How long freed memory rests before it is handed out again (rule R3).
  int64_t freed_rest_ns = kSecondNs;
  // The same of cells (rule K2). Nothing depends on it: it makes READs that meet the next value
  // rare, and values that are replaced within it are what churn costs in memory.
  int64_t cell_rest_ns = 20 * kMillisecondNs;
  // Ends of rests are rounded up to this, so that a chunk remembers few of them.
  int64_t rest_grain_ns = 20 * kMillisecondNs;
  // A client that finds all memory resting is told to ask again after at least this.
  int64_t rest_ask_min_ns = kMillisecondNs;
  // A client that goes through a tree's cells (rule K4) is given so long before others are asked.
  int64_t cells_again_ns = 10 * kSecondNs;
  // Before lock words of the dead that could not be looked at are looked at again.
  int64_t fence_again_ns = 100 * kMillisecondNs;

  // --- Clients.
  // A READ that took longer is discarded (rule R3).
  int64_t read_max_ns = 500 * kMillisecondNs;
  // Between two sweeps that a client makes by itself.
  int64_t sweep_interval_ns = kSecondNs;
  // How long a sweep waits for a marked node's holder, which may be stopped (rule C5).
  int64_t sweep_wait_ns = 100 * kMillisecondNs;
  // Freed nodes are not kept back for longer, if somebody comes by.
  int64_t free_flush_ns = kSecondNs;
  // While memory rests, this often a waiter looks whether somebody else has put a node back.
  int64_t allocator_look_ns = 20 * kMillisecondNs;
  // How long one attempt of a control call waits before the request is sent again.
  int64_t call_attempt_ns = 200 * kMillisecondNs;
  // A server that does not answer a ping must not hold the next one up for longer.
  int64_t ping_max_ns = kSecondNs;
  // How often a server that is being connected to again is asked (rule L5), and for how long at
  // most: longer than the default lease, so that who cannot reach it is fenced by it, mostly.
  int64_t lock_recovery_poll_ns = kMillisecondNs;
  int64_t lock_recovery_ns = 15 * kSecondNs;
  // For which a range of an owned tree is lent to a reader (rule O15). Its owner, and whoever takes
  // the owner's place, waits a quarter longer before anything of it changes. Both sides take it
  // for granted: another length is another version of peers' messages (peer_format.h).
  int64_t read_lease_ns = 4 * kMillisecondNs;

  // InvalidArgument: which invariant does not hold.
  absl::Status Validate() const;
  // All of them shorter by this factor; none below a microsecond.
  TimeConstants DividedBy(int64_t divisor) const;
};

}  // namespace pando
