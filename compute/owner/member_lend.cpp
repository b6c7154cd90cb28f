// Ranges that are lent to who reads them (rule O15), as the member's jobs see them.
#include <algorithm>
#include <mutex>
#include <span>

#include "common/base/rule.h"
#include "compute/owner/member.h"
#include "compute/owner/turnstile.h"

namespace pando {
namespace {

// For flushes of what is to be lent, each time that they are looked at: others wait for the
// turnstile meanwhile.
constexpr int64_t kFlushNs = 50 * kMillisecondNs;

}  // namespace

void Member::StopLending(Scheduler* scheduler, std::span<OwnRange* const> ranges) const {
  if (!RuleHolds(Rule::kO15Give)) return;
  int64_t until_ns = 0;
  for (OwnRange* const range : ranges) {
    const std::lock_guard lock(range->partition.mutex());
    if (!range->lending.MayWrite()) until_ns = std::max(until_ns, range->lending.until_ns());
  }
  const int64_t left_ns = until_ns - lease_.NowNs();
  if (left_ns > 0) scheduler->SleepUntil(NowNs() + left_ns);
}

void Member::LookAtLending(OwnedTree* tree) {
  if (options_.lend_after_ns < 0) return;
  OperationContext flushing(session_, NowNs() + kFlushNs);
  for (OwnRange* const range : tree->OwnRanges()) {
    bool flushes;
    {
      const std::lock_guard lock(range->partition.mutex());
      flushes = range->lending.Look(lease_.NowNs(), options_.lend_after_ns, range->IsClean());
      // What memory servers refuse has its own turn.
      flushes = flushes && range->partition.refused().records == 0;
    }
    if (!flushes || flushing.expired() || WantsFlush()) continue;
    Turnstile::Pass pass(flushing_.get(), flushing.deadline_ns());
    if (!pass.ok()) continue;
    {
      const std::lock_guard lock(range->partition.mutex());
      if (range->state != OwnRange::State::kServing) continue;
    }
    // Nobody writes to it, so what is flushed now is all. What does not come to its leaf by then
    // has its turn at the next look, if somebody still asks for the range.
    (void)FlushRange(flushing, tree, range, &pass);
  }
}

}  // namespace pando
