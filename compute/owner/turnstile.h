// Lets coroutines of one scheduler pass one at a time, in the order of their coming.
//
// Not thread-safe: the scheduler's thread.
#pragma once

#include <deque>

#include "common/sched/scheduler.h"

namespace pando {

class Turnstile {
 public:
  explicit Turnstile(Scheduler* scheduler) : scheduler_(*scheduler) {}

  // While it lives nobody else passes.
  class Pass {
   public:
    explicit Pass(Turnstile* turnstile) : turnstile_(*turnstile) { turnstile_.Enter(); }
    ~Pass() { turnstile_.Exit(); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Turnstile& turnstile_;
  };

 private:
  void Enter() {
    if (!busy_) {
      busy_ = true;
      return;
    }
    Parking parking(&scheduler_);
    waiting_.push_back(&parking);
    while (!parking.ParkUntil(kNeverNs)) {
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

}  // namespace pando
