#include "compute/owner/serving_lease.h"

#include <algorithm>

namespace pando {

bool ServingLease::AwaitHeld(Scheduler* scheduler, int64_t deadline_ns) {
  if (Held()) return true;
  Parking parking(scheduler);
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(&parking);
  }
  bool in_time = true;
  while (!Held() && !ended() && in_time) in_time = parking.ParkUntil(deadline_ns);
  // Nobody calls Unpark() late: that is done under the mutex.
  std::lock_guard lock(mutex_);
  std::erase(waiting_, &parking);
  return Held();
}

void ServingLease::Renew(int64_t first_sent_ns) {
  std::lock_guard lock(mutex_);
  if (ended()) return;
  const int64_t until_ns = std::max(until_ns_.load(std::memory_order_relaxed),
                                    first_sent_ns + lease_ns_ - lease_ns_ / 4);
  until_ns_.store(until_ns, std::memory_order_release);
  if (has_ticks_) ticks_.Open(clock_, until_ns);
  for (Parking* const parking : waiting_) parking->Unpark();
}

void ServingLease::End() {
  std::lock_guard lock(mutex_);
  ended_.store(true, std::memory_order_release);
  until_ns_.store(INT64_MIN, std::memory_order_release);
  ticks_.Shut();
  for (Parking* const parking : waiting_) parking->Unpark();
}

}  // namespace pando
