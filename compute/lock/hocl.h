// Hierarchical on-chip locks (HOCL; Sherman, section 4.3): local queue, global word, handover.
//
// Thread safety: shared by the sessions of a compute server.
// Invariants:
//   1. A HeldLock ends in exactly one Release(), or in LeaveToFencing() after a failed chain (rule
//      L5).
//   2. Release, handover and acknowledgement come after the write-back's completion, or behind it
//      in its chain (L4, L5).
//   3. After `handover_max` handovers in a row the word is released, and this compute server leaves
//      it alone for two round trips (rule L6).
//   4. Every wait ends at the operation's deadline (rule L3), but that for the end of a chain that
//      failed, which keeps the lock (rule L5): up to `times.lock_recovery_ns`.
//   5. A word is taken from another client only if that client's server has published its death,
//      and only with the exact value that was seen (rule C3). The new holder repairs what the dead
//      client left (compute/index/hold.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/time_constants.h"
#include "compute/core/session_context.h"
#include "compute/lock/held_lock.h"
#include "compute/lock/local_lock.h"
#include "compute/lock/lock_request.h"
#include "pando/options.h"

namespace pando {

class Hocl {
 public:
  struct Options {
    Techniques techniques;
    int handover_max = 32;
    bool write_unlock = true;  // the fabric's capability (rule L4)
    uint64_t own_word = 0;     // LockWord of this client
    TimeConstants times;
    // Called from any session when it cannot free a word although the word's server lives. The
    // client then leaves the cluster, so that the server frees the word. May be empty.
    std::function<void()> on_stuck_word;
  };

  explicit Hocl(Options options);

  // Declares a server's lock table, or that of another life of it, and where it publishes the dead
  // (common/wire/dead_table.h). One thread at a time; others may use the locks meanwhile. Locks of
  // an earlier life stay with their holders and waiters.
  void AddServer(ServerId server, uint64_t life, uint32_t words, uint64_t dead_offset);
  // 0: there is no such server.
  uint32_t Words(ServerId server) const;

  // Takes the lock and reads the target into `image`. DeadlineExceeded: nothing happened.
  absl::StatusOr<HeldLock> Acquire(OperationContext& context, const LockTarget& target,
                                   LocalBuffer image);

  // Makes the request that waits in the caller's place. It names the target's node.
  using Delegate = absl::FunctionRef<LockRequestPtr()>;
  // The same for a single operation on the target. If the lock is taken, the operation waits as the
  // request that `delegate` returns; it is called at most once. An empty optional: a holder
  // executed it, and the request has the result. DeadlineExceeded: nothing happened. Unknown: a
  // holder may have executed it (IsOutcomeUnknown).
  absl::StatusOr<std::optional<HeldLock>> AcquireOrDelegate(OperationContext& context,
                                                            const LockTarget& target,
                                                            LocalBuffer image, Delegate delegate);

  // One attempt, for holders of another lock (rule L2). An empty optional: another holder has it.
  // The lock is never handed over.
  absl::StatusOr<std::optional<HeldLock>> TryAcquire(OperationContext& context,
                                                     const LockTarget& target, LocalBuffer image);

  // One attempt that READs parts of the target alone, where nobody else wants the lock, as far as
  // is known. An empty optional: it was not made, or another client has the word; Acquire() then.
  // Needs local locks. acquire_part.cpp.
  absl::StatusOr<std::optional<HeldLock>> TryAcquireParts(OperationContext& context,
                                                          const LockTarget& target,
                                                          const TargetParts& parts,
                                                          LocalBuffer image);
  // READs all of the target, for a holder who knows parts of it. An error: as after any chain that
  // failed under the lock; it is given up.
  absl::Status ReadAll(OperationContext& context, HeldLock& lock, LocalBuffer image);

  // READs the word and the node it guards in one chain (rule V4). True: the word is free, or its
  // owner is dead: nobody is writing the node, so that the image is final.
  absl::StatusOr<bool> IsAbandoned(OperationContext& context, const LockTarget& target,
                                   LocalBuffer image);

  // READs the target's bytes; for holders of its word.
  absl::Status ReadTarget(OperationContext& context, const LockTarget& target, LocalBuffer image);

  // Waiting operations on the held node that the caller may execute. Every one must go to Finish()
  // or PutBack().
  std::vector<LockRequestPtr> TakeCombinable(HeldLock& lock, uint32_t tree_id, size_t max);
  void PutBack(const HeldLock& lock, const std::vector<LockRequestPtr>& requests);
  // `local`: of the lock that they were taken from, which may be released.
  void Finish(OperationContext& context, LocalLock* local,
              const std::vector<LockRequestPtr>& requests,
              const std::vector<absl::Status>& results);

  // Posts `chain` (the last writes of the critical section; empty: none) with the release behind
  // it, or hands over after them. An error: the writes' outcome is unknown and the word is left to
  // fencing; where there were none, what was answered from an older image must not be.
  absl::Status Release(OperationContext& context, HeldLock&& lock, Chain* chain,
                       const std::byte* image);
  // The same where nothing was written.
  absl::Status ReleaseUnchanged(OperationContext& context, HeldLock lock, const std::byte* image);
  // Posts `chain` with the releases of all these behind it, at least one, each a word of the
  // chain's server; nothing is handed over. There is room for them in the chain (CHECKed). An
  // error: every one of the words is left to fencing. release_together.cpp.
  absl::Status ReleaseTogether(OperationContext& context, absl::Span<HeldLock> locks, Chain* chain);
  // After a chain under the lock that failed with `why` (rule L5). If the fabric recovers, the word
  // is freed once nothing of the chain is in flight any more; else it stays taken. Then local
  // waiters go on and find out for themselves.
  void LeaveToFencing(OperationContext& context, HeldLock lock, const absl::Status& why);
  // Whether a word stayed taken: only this client's death frees it.
  bool has_left_locks() const { return has_left_locks_.load(std::memory_order_relaxed); }
  // Whether that may concern the life of the server that was added last: where that was gone, with
  // the word; or if a word stayed taken on one that is there, which is as if this client had died.
  bool MayHaveLeftLocksOn(ServerId server) const;

  // Appends a verb that frees the word. Exposed for rule variants and the lock benchmark.
  absl::Status AppendRelease(OperationContext& context, const HeldLock& lock, Chain* chain);

 private:
  // `delegate` null: the lock itself is wanted, and the optional never empty.
  absl::StatusOr<std::optional<HeldLock>> AcquireFor(OperationContext& context,
                                                     const LockTarget& target, LocalBuffer image,
                                                     const Delegate* delegate);
  // Takes lock.target()'s word and reads the target. On an error lock.held() says whether the word
  // was taken.
  absl::Status AcquireGlobal(OperationContext& context, LocalBuffer image, HeldLock& lock);
  // Appends the CAS from `expected`: free, or the word of a dead client.
  Verb& AppendTake(const LockTarget& target, uint64_t expected, Chain* chain) const;
  // Rule C3: the server of the word has published its owner's death.
  absl::StatusOr<bool> OwnerIsDead(OperationContext& context, ServerId server, uint64_t word) const;
  // Frees the word of a lock that is useless after the error `why`; not if the chain may still be
  // in flight. OK: the word is free and lock.held() is false; else the reason why not.
  absl::Status GiveBack(OperationContext& context, HeldLock& lock, const absl::Status& why);
  // A CAS that failed so may yet take the word (rule L5).
  void NoteUncertain(OperationContext& context, const HeldLock& lock, const absl::Status& taking);
  // Frees the word after a chain that failed with `why`, once that is safe (lock_recovery.h). If it
  // never is, only fencing frees the word.
  void ReleaseKept(OperationContext& context, const HeldLock& lock, const absl::Status& why);
  absl::StatusOr<LockRequest::State> WaitInQueue(OperationContext& context, LocalLock& local,
                                                 const LockRequestPtr& request, bool* acquired,
                                                 int64_t* stay_away_ns);
  absl::Status AcquireLocalBySpinning(OperationContext& context, LocalLock& local,
                                      int64_t* stay_away_ns);
  // When this compute server may try the word again after releasing it; 0: at once.
  int64_t StayAwayUntil(const OperationContext& context, const HeldLock& lock) const;
  absl::Status ReleaseGlobal(OperationContext& context, const HeldLock& lock, Chain* chain);
  // READs the lock's word (rules L4, V5). True: it is this client's. False: the word is free or
  // another client's, so this client has been fenced. Unavailable: the READ does not get there
  // (rule C2). Any other error: the READ was not made, or was interrupted.
  absl::StatusOr<bool> StillHolds(OperationContext& context, const HeldLock& lock);
  // A lock that StillHolds() says is lost: nothing is written under it, nor its word, and the
  // session is over. Returns why.
  absl::Status LoseLock(OperationContext& context, HeldLock lock);

  const Options options_;
  struct ServerLocks {
    ServerLocks(uint64_t life, uint32_t words, uint32_t local_words, uint64_t dead_offset)
        : life(life), words(words), dead_offset(dead_offset), table(local_words) {}
    const uint64_t life;
    const uint32_t words;
    const uint64_t dead_offset;
    LocalLockTable table;  // no fewer than in earlier lives: a target may be of one of them
    std::atomic<bool> has_left{false};  // while it was gone
  };

  LocalLock& Local(const LockTarget& target) const {
    return servers_[target.server].load(std::memory_order_acquire)->table.At(target.word);
  }
  std::vector<std::atomic<ServerLocks*>> servers_;  // by server id
  std::vector<std::unique_ptr<ServerLocks>> all_servers_;
  std::atomic<bool> has_left_locks_{false};
  std::atomic<bool> has_stuck_locks_{false};  // has left one on a server that is there
};

}  // namespace pando
