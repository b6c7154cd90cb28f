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
  const int64_t until_ns = first_sent_ns + lease_ns_ - lease_ns_ / 4;
  if (until_ns <= renewed_until_ns_) return;  // an answer that a later one has overtaken
  renewed_until_ns_ = until_ns;
  until_.Set(clock_, until_ns);
  for (Parking* const parking : waiting_) parking->Unpark();
}

void ServingLease::End() {
  std::lock_guard lock(mutex_);
  ended_.store(true, std::memory_order_release);
  until_.Clear();
  for (Parking* const parking : waiting_) parking->Unpark();
}

}  // namespace pando
