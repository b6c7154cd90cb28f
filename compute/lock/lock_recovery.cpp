#include "compute/lock/lock_recovery.h"

#include "common/base/clock.h"
#include "common/fabric/recoverable.h"
#include "common/wire/lock_word.h"

namespace pando {
namespace {

// How often a server that is being connected to again is asked.
constexpr int64_t kPollNs = kMillisecondNs;

}  // namespace

bool ReleaseOnceQuiet(OperationContext& context, const LockTarget& target, uint64_t own_word,
                      const absl::Status& why) {
  absl::Status status = why;
  ChainLease chain(&context.session.buffers());
  // The first chain that succeeds is the confirmation.
  while (IsRecoverable(status) && !context.expired()) {
    context.session.scheduler().SleepUntil(context.session.NowNs() + kPollNs);
    chain->Reset(target.server);
    chain->CompareSwap(MemorySpace::kLocks, uint64_t{target.word} * 8, own_word, LockWord::kFree);
    status = context.Await(chain.get());
  }
  return status.ok();
}

}  // namespace pando
