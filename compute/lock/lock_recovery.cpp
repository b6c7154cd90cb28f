#include "compute/lock/lock_recovery.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "common/wire/lock_word.h"

namespace pando {
absl::Status ReleaseOnceQuiet(OperationContext& context, const LockTarget& target,
                              uint64_t own_word, const TimeConstants& times,
                              const absl::Status& why) {
  absl::Status status = why;
  ChainLease chain(&context.session.buffers());
  const int64_t give_up_ns =
      std::max(context.session.NowNs() + times.lock_recovery_ns, context.deadline_ns());
  // The first chain that succeeds confirms that nothing of the failed one can land any more. A word
  // freed before that would let the next holder write while old WRITEs still land (rule L5).
  while (IsRecoverable(status) && context.session.NowNs() < give_up_ns) {
    context.session.scheduler().SleepUntil(context.session.NowNs() + times.lock_recovery_poll_ns);
    chain->Reset(target.server);
    chain->CompareSwap(MemorySpace::kLocks, uint64_t{target.word} * 8, own_word, LockWord::kFree);
    status = context.Await(chain.get());
  }
  return status;
}

absl::Status LostLockError() {
  return absl::FailedPreconditionError(
      "a lock was taken away from this compute server: it has been declared dead and cut off; "
      "close the client and connect again");
}

// Of class Hocl: what becomes of a lock whose chain failed, or that was lost.

absl::Status Hocl::GiveBack(OperationContext& context, HeldLock& lock, const absl::Status& why) {
  // A chain that failed otherwise is not in flight any more (rule L5).
  if (absl::IsUnavailable(why)) return why;
  ChainLease chain(&context.session.buffers());
  chain->Reset(lock.target_.server);
  absl::Status released = ReleaseGlobal(context, lock, chain.get());
  lock.held_ = !released.ok();
  return released;
}

void Hocl::ReleaseKept(OperationContext& context, const HeldLock& lock, const absl::Status& why) {
  // Without a local lock another session of this client may have taken the word meanwhile.
  const absl::Status status =
      lock.local_ == nullptr
          ? why
          : ReleaseOnceQuiet(context, lock.target_, options_.own_word, options_.times, why);
  if (status.ok()) return context.session.counters().lock_recoveries.Add();
  const bool gone = absl::IsUnavailable(status) && !IsRecoverable(status);  // the server
  if (gone) {
    const ServerId server = lock.target_.server;
    ServerLocks* const locks = servers_[server].load(std::memory_order_acquire);
    // Left on an earlier life, it has ended with that. Nor is one left that was never asked for.
    if (context.LifeOf(server) != locks->life) return;
    locks->has_left.store(true);
  } else {
    has_stuck_locks_.store(true);
  }
  has_left_locks_.store(true);
  if (!gone && options_.on_stuck_word) options_.on_stuck_word();
}

bool Hocl::MayHaveLeftLocksOn(ServerId server) const {
  const ServerLocks* const locks = servers_[server].load(std::memory_order_acquire);
  return has_stuck_locks_.load() || (locks != nullptr && locks->has_left.load());
}

void Hocl::NoteUncertain(OperationContext& context, const HeldLock& lock,
                         const absl::Status& taking) {
  if (absl::IsUnavailable(taking)) ReleaseKept(context, lock, taking);
}

void Hocl::LeaveToFencing(OperationContext& context, HeldLock lock, const absl::Status& why) {
  if (!RuleHolds(Rule::kL5Quiet) && lock.held_ && lock.local_ != nullptr && IsRecoverable(why) &&
      lock.local_->Handover(0, {}, nullptr, 0)) {  // the variant goes on while the chain may land
    lock.held_ = false;
    return;
  }
  if (lock.held_) {
    const absl::Status freed = GiveBack(context, lock, why);
    if (!freed.ok()) ReleaseKept(context, lock, freed);
  }
  lock.held_ = false;
  if (lock.local_ != nullptr) lock.local_->Release(0);
}

absl::StatusOr<bool> Hocl::StillHolds(OperationContext& context, const HeldLock& lock) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease found,
                         context.session.buffers().Lease(sizeof(uint64_t)));
  ChainLease chain(&context.session.buffers());
  chain->Reset(lock.target_.server);
  chain->Read(MemorySpace::kLocks, uint64_t{lock.target_.word} * 8, found.buffer());
  PANDO_RETURN_IF_ERROR(context.Await(chain.get()));
  uint64_t word;
  std::memcpy(&word, found.data(), sizeof(word));
  return word == options_.own_word;
}

absl::Status Hocl::LoseLock(OperationContext& context, HeldLock lock) {
  PANDO_LOG(ERROR) << "lock word " << lock.target_.word << " of memory server "
                   << lock.target_.server
                   << " was taken away from this compute server while it held it";
  has_stuck_locks_.store(true);
  has_left_locks_.store(true);
  if (options_.on_stuck_word) options_.on_stuck_word();
  context.session.End();
  lock.held_ = false;
  lock.local_->Release(0);
  return LostLockError();
}

}  // namespace pando
