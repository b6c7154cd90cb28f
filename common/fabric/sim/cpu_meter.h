// What a session's thread has spent in simulated time (world_impl.h): for whoever measures. With a
// timing model the CpuCosts of an endpoint are one.
#pragma once

namespace pando::sim {

class CpuMeter {
 public:
  // Since the session began, ns: all of it, and what of that it waited for partitions that others
  // held.
  struct Spent {
    double all_ns = 0, waited_ns = 0;
  };
  virtual Spent spent() const = 0;

 protected:
  ~CpuMeter() = default;
};

}  // namespace pando::sim
