#include "compute/lock/lock_recovery.h"

#include <algorithm>

#include "common/base/clock.h"
#include "common/fabric/recoverable.h"
#include "common/wire/lock_word.h"

namespace pando {
namespace {

// How often a server that is being connected to again is asked.
constexpr int64_t kPollNs = kMillisecondNs;
// Longer than the default lease: who cannot reach a server for so long is fenced by it, mostly.
constexpr int64_t kGiveUpNs = 15 * kSecondNs;

}  // namespace

absl::Status ReleaseOnceQuiet(OperationContext& context, const LockTarget& target,
                              uint64_t own_word, const absl::Status& why) {
  absl::Status status = why;
  ChainLease chain(&context.session.buffers());
  const int64_t give_up_ns = std::max(context.session.NowNs() + kGiveUpNs, context.deadline_ns());
  // The first chain that succeeds is the confirmation.
  while (IsRecoverable(status) && context.session.NowNs() < give_up_ns) {
    context.session.scheduler().SleepUntil(context.session.NowNs() + kPollNs);
    chain->Reset(target.server);
    chain->CompareSwap(MemorySpace::kLocks, uint64_t{target.word} * 8, own_word, LockWord::kFree);
    status = context.Await(chain.get());
  }
  return status;
}

}  // namespace pando
