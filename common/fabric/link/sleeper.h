// Lets an endpoint's thread sleep until another thread wakes it, an event arrives (of completions,
// where there are such), or the time has come. A wake-up costs a system call only where somebody
// sleeps.
//
// Thread safety: Wake() from any thread; the rest from one.
// Invariant: a Wake() that happens after a Sleep() returned makes the next one return at once.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "common/base/unique_fd.h"

namespace pando {

class Sleeper {
 public:
  // Once, before use.
  absl::Status Init();

  void Wake();
  // Takes a wake-up that has come, if there is one.
  bool TakeWake() { return state_.exchange(kAwake, std::memory_order_acq_rel) == kWoken; }
  // Until `deadline_ns` (RealClock), a wake-up, or `events_fd` (where >= 0) is readable; it may
  // return earlier for no reason.
  void Sleep(int64_t deadline_ns, int events_fd = -1);

 private:
  enum State : int { kAwake, kAsleep, kWoken };

  std::atomic<int> state_{kAwake};
  UniqueFd event_;
};

}  // namespace pando
