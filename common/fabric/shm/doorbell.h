// Lets one thread sleep until another rings. A ring costs a system call only where somebody sleeps.
//
// Thread safety: Ring() from any thread; WaitUntil() from one thread.
// Invariant: a Ring() that happens after a WaitUntil() returned makes the next one return at once.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "common/base/unique_fd.h"

namespace pando {

class Doorbell {
 public:
  // Once, before use.
  absl::Status Init();

  void Ring();
  // Returns when rung since the last return, at `deadline_ns` (RealClock), or spuriously.
  void WaitUntil(int64_t deadline_ns);

 private:
  enum State : int { kAwake, kAsleep, kRung };

  // Sleeping costs some 50 us of the kernel's timer slack and wake-up; a shorter wait yields the
  // processor instead.
  static constexpr int64_t kYieldBelowNs = 50'000;

  std::atomic<int> state_{kAwake};
  UniqueFd event_;
};

}  // namespace pando
