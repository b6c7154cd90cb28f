#include <utility>

#include "common/base/check.h"
#include "common/sched/scheduler_impl.h"

namespace pando {

using sched::CurrentWorker;
using sched::Inbox;
using sched::Worker;

Parking::Parking(Scheduler* scheduler) : state_(std::make_shared<State>()) {
  state_->scheduler = scheduler;
  state_->inbox = scheduler->impl_->inbox;
}

Parking::~Parking() { PANDO_CHECK(state_->waiter == nullptr) << "a coroutine is parked here"; }

bool Parking::ParkUntil(int64_t deadline_ns) {
  Worker* const worker = CurrentWorker();
  PANDO_CHECK(worker != nullptr && worker->scheduler == state_->scheduler)
      << "parked outside of a coroutine of the owning scheduler";
  PANDO_CHECK(state_->waiter == nullptr) << "two coroutines park in one place";
  Scheduler::Impl& impl = *worker->scheduler->impl_;

  int expected = State::kEmpty;
  if (!state_->phase.compare_exchange_strong(expected, State::kWaiting,
                                             std::memory_order_acq_rel)) {
    state_->phase.exchange(State::kEmpty, std::memory_order_acq_rel);
    return true;
  }
  state_->waiter = worker;
  if (deadline_ns != kNeverNs) impl.timers.Arm(&worker->timer, deadline_ns);
  impl.Suspend(worker, Worker::State::kWaiting);
  state_->waiter = nullptr;
  // Time and Unpark() may have come together: the one that changed the phase decides.
  return state_->phase.exchange(State::kEmpty, std::memory_order_acq_rel) == State::kUnparked;
}

void Parking::Unpark() {
  std::shared_ptr<State> state = state_;
  if (state->phase.exchange(State::kUnparked, std::memory_order_acq_rel) != State::kWaiting) return;
  if (Scheduler::Current() == state->scheduler) {
    state->scheduler->impl_->Deliver(state.get());
  } else {
    // The owner may be gone before Send() returns, and with it every other reference to the
    // inbox.
    const std::shared_ptr<Inbox> inbox = state->inbox;
    inbox->Send({nullptr, std::move(state)});
  }
}

}  // namespace pando
