#include "compute/owner/collect.h"

#include <algorithm>
#include <mutex>

#include "common/base/rule.h"

namespace pando {
namespace {

// While the partition is locked: one to two microseconds. Whoever comes meanwhile waits, and those
// waits grow with the square of a hold: 64 records cost mixed loads a tenth of their operations
// (bench/figures, `owned`).
constexpr size_t kRecordsAHold = 8, kLooksAHold = 64;

}  // namespace

std::string CollectDirty(OperationContext& context, OwnRange* range, Lsn durable, std::string from,
                         std::string_view to, const CollectLimits& limits,
                         std::vector<FlushItem>* items) {
  const size_t records_a_hold = RuleHolds(Rule::kT1) ? kRecordsAHold : kFlushRoundMax;
  const size_t looks_a_hold = RuleHolds(Rule::kT1) ? kLooksAHold : kFlushRoundMax;
  size_t left = limits.records_max;
  for (size_t looks = 0; looks < limits.looks_max; looks += looks_a_hold) {
    if (looks > 0) context.session.scheduler().Yield();
    const size_t before = items->size();
    // Not under the mutex.
    if (items->capacity() - before < records_a_hold) items->reserve(2 * before + records_a_hold);
    {
      std::lock_guard lock(range->partition.mutex());
      from = range->partition.CollectDirty(from, to, durable, limits.refused,
                                           std::min(left, records_a_hold), items, limits.below,
                                           looks_a_hold, limits.tombstones, limits.owed);
      range->Charge(context.session, items->size() - before);
    }
    left -= items->size() - before;
    if (from.empty() || left == 0) break;
  }
  return from;
}

}  // namespace pando
