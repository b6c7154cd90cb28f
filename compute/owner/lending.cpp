#include "compute/owner/lending.h"

#include <utility>

namespace pando {
namespace {

// A wait is worth while if the range was lent for so many times as long.
constexpr int64_t kWorthIt = 64;
constexpr int64_t kFactorMax = 256;

}  // namespace

void Lending::NoteWait(int64_t now_ns, int64_t lease_ns) {
  if (lent_since_ns_ == 0) return;  // it waits for what another one waits for
  const bool worth_it = now_ns - lent_since_ns_ >= kWorthIt * WaitNs(lease_ns);
  factor_ = worth_it ? std::max<int64_t>(1, factor_ / 2) : std::min(2 * factor_, kFactorMax);
  lent_since_ns_ = 0;
}

bool Lending::Look(int64_t now_ns, int64_t after_ns, bool is_clean) {
  if (now_ns >= until_ns_) Over();  // also for a write that did not wait to the end
  if (std::exchange(wrote_, false)) quiet_since_ns_ = now_ns;
  if (lends_ || after_ns < 0 || now_ns - quiet_since_ns_ < factor_ * after_ns) return false;
  if (!is_clean) return std::exchange(was_asked_, false);
  lends_ = true;
  return false;
}

}  // namespace pando
