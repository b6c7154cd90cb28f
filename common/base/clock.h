// The clock seam: everything that reads time in Pando takes a Clock, so that the simulator can
// supply virtual time. Thread safety: NowNs() may be called from any thread.
#pragma once

#include <cstdint>

namespace pando {

inline constexpr int64_t kMicrosecondNs = 1'000;
inline constexpr int64_t kMillisecondNs = 1'000'000;
inline constexpr int64_t kSecondNs = 1'000'000'000;
inline constexpr int64_t kNeverNs = INT64_MAX;

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic nanoseconds from an arbitrary origin.
  virtual int64_t NowNs() const = 0;
};

// CLOCK_MONOTONIC. One object for the life of the process.
const Clock& RealClock();
// CLOCK_BOOTTIME, which goes on while the machine is suspended: for leases that others count, too.
const Clock& BoottimeClock();

// The processor time that the calling thread has used, in nanoseconds: what a computation takes,
// however busy the machine is.
int64_t ThreadCpuNs();

}  // namespace pando
