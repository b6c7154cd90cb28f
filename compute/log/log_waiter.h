// A waiter of a redo log. Internal to compute/log.
#pragma once

#include <cstdint>

#include "common/sched/scheduler.h"
#include "compute/log/redo_log.h"

namespace pando {

// Shared with its waker, which wakes it without the log's mutex. Everything except the parking:
// under that mutex.
struct RedoLog::Waiter {
  explicit Waiter(Scheduler* scheduler) : parking(scheduler) {}
  Parking parking;
  Lsn lsn = kNoLsn;     // it waits until this is durable
  bool moving = false;  // complete is enough
  Turn turn = 0;        // it has been given
  // It waits for room.
  uint64_t cost = 0;
  Purpose purpose = Purpose::kWrite;
  bool granted = false;
};

}  // namespace pando
