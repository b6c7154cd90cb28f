// Several locks on one server, given back in one chain.
#include <utility>

#include "common/base/check.h"
#include "compute/lock/hocl.h"
#include "compute/lock/lock_recovery.h"

namespace pando {

absl::Status Hocl::ReleaseTogether(OperationContext& context, absl::Span<HeldLock> locks,
                                   Chain* chain) {
  PANDO_CHECK(!locks.empty());
  absl::Status status;
  if (chain->size() > 0 && !options_.techniques.command_combining) {
    status = context.Await(chain);
    chain->Reset(locks.front().target_.server);
  }
  for (const HeldLock& lock : locks) {
    PANDO_CHECK(lock.held_ && lock.target_.server == chain->server());
    if (status.ok()) status = AppendRelease(context, lock, chain);
  }
  if (status.ok()) status = context.Await(chain);
  if (status.ok() && !options_.write_unlock) {
    for (const Verb& verb : chain->verbs().last(locks.size())) {
      if (!verb.swapped()) status = LostLockError();
    }
  }
  for (HeldLock& lock : locks) {
    if (!status.ok()) {
      LeaveToFencing(context, std::move(lock), status);
      continue;
    }
    lock.held_ = false;
    if (lock.local_ != nullptr) lock.local_->Release(StayAwayUntil(context, lock));
  }
  return status;
}

}  // namespace pando
