// Whether a member may answer for what it owns (rule O5): it holds a serving lease of its own at
// the catalog's server, asked for with pings, or the fabric has no leases, and only the end of its
// process ends it.
//
// Thread safety: thread-safe. Invariants:
//   1. The lease counts from the first send of the ping that was answered last, and for 3/4 of what
//      the catalog counts: clocks whose rates differ by a tenth do not matter.
//   2. It is counted by CLOCK_BOOTTIME: a suspended machine does not stop it. A virtual machine
//      that is paused, or moved, so that its clock stands still, does: what it answers before its
//      next ping is refused may be what was so when it was paused. It writes nothing.
//   3. A caller that Held() tells that it is held looked at the clock after the answer was decided:
//      call it last. What was over is held again only once it is renewed.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "common/base/clock.h"
#include "common/sched/scheduler.h"
#include "compute/owner/until.h"

namespace pando {

class ServingLease {
 public:
  // `lease_ns`: as the catalog's server counts; 0: there are no leases. `clock`: BoottimeClock(),
  // or the simulator's.
  ServingLease(int64_t lease_ns, const Clock* clock) : lease_ns_(lease_ns), clock_(*clock) {}

  bool has_lease() const { return lease_ns_ > 0; }
  int64_t lease_ns() const { return lease_ns_; }
  int64_t NowNs() const { return clock_.NowNs(); }
  const Clock& clock() const { return clock_; }

  bool Held() const { return lease_ns_ == 0 || until_.IsAhead(clock_); }
  // Mute, not dead: waits for the renewal. False: the deadline has passed before, or Renew() never
  // comes again (End()).
  bool AwaitHeld(Scheduler* scheduler, int64_t deadline_ns);

  // A ping that was sent first at this time (NowNs()) was answered.
  void Renew(int64_t first_sent_ns);
  // The catalog's server has refused it: this member is over.
  void End();
  bool ended() const { return ended_.load(std::memory_order_acquire); }

 private:
  const int64_t lease_ns_;
  const Clock& clock_;
  mutable Until until_;
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  int64_t renewed_until_ns_ = INT64_MIN;
  std::vector<Parking*> waiting_;
};

}  // namespace pando
