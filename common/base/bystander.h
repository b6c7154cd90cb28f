// For tests that bound how long another thread or process may take: what the machine itself does to
// one that has nothing to do.
//
//   Bystander bystander;
//   ...
//   EXPECT_LT(took_ns, bystander.Bound(kSecondNs));
//
// A test cannot tell a server that is held up from one that does not get a processor, unless
// somebody beside it looks at how long that takes. A computation of the test's own thread is better
// measured by ThreadCpuNs().
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "common/base/clock.h"

namespace pando {

// Thread-safe. Looks from its construction on.
class Bystander {
 public:
  Bystander() : thread_([this] { Look(); }) {}
  ~Bystander() {
    over_ = true;
    thread_.join();
  }
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;

  // `bound_ns`, and twenty times the longest that the machine kept this one waiting: what is
  // bounded waits for a processor several times.
  int64_t Bound(int64_t bound_ns) const { return bound_ns + 20 * longest_ns_; }
  std::chrono::nanoseconds Bound(std::chrono::nanoseconds bound) const {
    return std::chrono::nanoseconds(Bound(bound.count()));
  }

 private:
  void Look() {
    int64_t before_ns = RealClock().NowNs();
    while (!over_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const int64_t now_ns = RealClock().NowNs();
      longest_ns_ = std::max<int64_t>(longest_ns_, now_ns - before_ns - kMillisecondNs);
      before_ns = now_ns;
    }
  }

  std::atomic<bool> over_{false};
  std::atomic<int64_t> longest_ns_{0};
  std::thread thread_;  // the last: it uses the others
};

}  // namespace pando
