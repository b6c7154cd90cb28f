// Lets coroutines of one scheduler pass one at a time, in the order of their coming.
//
// Not thread-safe: the scheduler's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "absl/status/status.h"
#include "common/sched/scheduler.h"
#include "compute/core/session_context.h"

namespace pando {

class Turnstile {
 public:
  explicit Turnstile(Scheduler* scheduler) : scheduler_(*scheduler) {}

  // While it lives, and is ok, nobody else passes.
  class Pass {
   public:
    // Not ok: the time is over, and it has not been this one's turn.
    explicit Pass(Turnstile* turnstile, int64_t deadline_ns = kNeverNs)
        : turnstile_(*turnstile), ok_(turnstile_.Enter(deadline_ns)) {}
    ~Pass() {
      if (ok_) turnstile_.Exit();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

    bool ok() const { return ok_; }
    // All that wait now pass before this one goes on. Of one that is ok. False: it has not been its
    // turn again in time, and it is not ok any more.
    bool LetOthers(int64_t deadline_ns) {
      turnstile_.Exit();
      ok_ = turnstile_.Enter(deadline_ns);
      return ok_;
    }

   private:
    Turnstile& turnstile_;
    bool ok_;
  };

  // Somebody waits.
  bool is_wanted() const { return !waiting_.empty(); }

 private:
  bool Enter(int64_t deadline_ns) {
    if (!busy_) {
      busy_ = true;
      return true;
    }
    Parking parking(&scheduler_);
    waiting_.push_back(&parking);
    while (true) {
      const bool woken = parking.ParkUntil(deadline_ns);
      // The turn and the time may have come together: who is not in the queue has its turn.
      const auto place = std::find(waiting_.begin(), waiting_.end(), &parking);
      if (place == waiting_.end()) return true;
      if (woken || deadline_ns == kNeverNs) continue;
      waiting_.erase(place);
      return false;
    }
  }
  void Exit() {
    if (waiting_.empty()) {
      busy_ = false;
      return;
    }
    waiting_.front()->Unpark();
    waiting_.pop_front();
  }

  Scheduler& scheduler_;
  bool busy_ = false;
  std::deque<Parking*> waiting_;
};

// Of a job that has had no turn in its time.
inline absl::Status TurnError(const OperationContext& context) {
  return context.DeadlineError("waiting for other changes of the cluster tree");
}

}  // namespace pando
