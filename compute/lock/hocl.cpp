#include "compute/lock/hocl.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/dead_table.h"
#include "common/wire/lock_word.h"
#include "compute/lock/lock_recovery.h"

namespace pando {

using State = LockRequest::State;

namespace {

// Back-off between attempts at a global word, in chain times: doubled from the first to the last.
// With operation combining a turn at the word is short, whatever waits, so that it is asked for
// soon again, until its owner is suspected (below); without it turns are long and asking often is
// in vain. Measured: see README.md.
constexpr int64_t kBackOffFirst = 2;
constexpr int64_t kBackOffLast = 64;
constexpr int64_t kBackOffCombining = 2;
// The first attempts carry the READ: an uncontended word is free, a briefly held one is free by the
// next.
constexpr int kAttemptsWithRead = 2;
// Before a READ that was interrupted is tried again.
constexpr int64_t kReadBackOff = 4;
// Chain times for which a word has to show the same owner before that owner's death is considered
// (rule C3); the memory server clears the words of the dead by itself, so asking early gains
// little.
constexpr int64_t kSuspectChains = 512;

// What the CAS of a chain that failed before it has "found"; no word of a client looks like this.
constexpr uint64_t kNotExecuted = ~uint64_t{0};

}  // namespace

Hocl::Hocl(Options options) : options_(std::move(options)), servers_(size_t{UINT16_MAX} + 1) {}

void Hocl::AddServer(ServerId server, uint64_t life, uint32_t words, uint64_t dead_offset) {
  const ServerLocks* const before = servers_[server].load(std::memory_order_acquire);
  const uint32_t local_words = std::max(words, before == nullptr ? 0 : before->table.words());
  all_servers_.push_back(std::make_unique<ServerLocks>(life, words, local_words, dead_offset));
  servers_[server].store(all_servers_.back().get(), std::memory_order_release);
}

uint32_t Hocl::Words(ServerId server) const {
  const ServerLocks* const locks = servers_[server].load(std::memory_order_acquire);
  return locks == nullptr ? 0 : locks->words;
}

absl::StatusOr<HeldLock> Hocl::Acquire(OperationContext& context, const LockTarget& target,
                                       LocalBuffer image) {
  absl::StatusOr<std::optional<HeldLock>> lock = AcquireFor(context, target, image, nullptr);
  if (!lock.ok()) return lock.status();
  return **std::move(lock);
}

absl::StatusOr<std::optional<HeldLock>> Hocl::AcquireOrDelegate(OperationContext& context,
                                                                const LockTarget& target,
                                                                LocalBuffer image,
                                                                Delegate delegate) {
  return AcquireFor(context, target, image,
                    options_.techniques.operation_combining ? &delegate : nullptr);
}

inline absl::StatusOr<std::optional<HeldLock>> Hocl::AcquireFor(OperationContext& context,
                                                                const LockTarget& target,
                                                                LocalBuffer image,
                                                                const Delegate* delegate) {
  HeldLock lock;
  lock.target_ = target;
  int64_t stay_away_ns = 0;
  if (options_.techniques.local_locks) {
    LocalLock& local = Local(target);
    lock.local_ = &local;
    // The local lock's miss and the node's together.
    __builtin_prefetch(&local, 1);
    context.session.endpoint().WillRead(target.server, target.read_offset, target.read_bytes);
    if (!options_.techniques.wait_queue) {
      PANDO_RETURN_IF_ERROR(AcquireLocalBySpinning(context, local, &stay_away_ns));
    } else if (!local.TryAcquire(&stay_away_ns)) {
      const LockRequestPtr request =
          delegate != nullptr
              ? (*delegate)()
              : std::make_shared<LockRequest>(&context.session.scheduler(), context.deadline_ns());
      bool acquired = false;
      PANDO_ASSIGN_OR_RETURN(const State state,
                             WaitInQueue(context, local, request, &acquired, &stay_away_ns));
      if (state == State::kDone) return std::optional<HeldLock>();
      if (state == State::kGrantedGlobal) {
        lock.held_ = true;
        lock.handovers_ = request->handovers;
        lock.image_is_fresh_ = local.TakeImage(target.node, image.data, target.read_bytes);
        lock.image_is_older_ = lock.image_is_fresh_;
        if (!lock.image_is_fresh_) {
          const absl::Status read = ReadTarget(context, target, image);
          if (!read.ok()) {
            LeaveToFencing(context, std::move(lock), read);
            return read;
          }
          lock.image_is_fresh_ = true;
        }
        return std::optional<HeldLock>(std::move(lock));
      }
    }
    if (stay_away_ns != 0 && stay_away_ns > context.session.NowNs()) {
      context.session.scheduler().SleepUntil(std::min(stay_away_ns, context.deadline_ns()));
    }
  }
  const absl::Status status = AcquireGlobal(context, image, lock);
  if (!status.ok()) {
    LeaveToFencing(context, std::move(lock), status);
    return status;
  }
  lock.image_is_fresh_ = true;
  return std::optional<HeldLock>(std::move(lock));
}

absl::StatusOr<State> Hocl::WaitInQueue(OperationContext& context, LocalLock& local,
                                        const LockRequestPtr& request, bool* acquired,
                                        int64_t* stay_away_ns) {
  *acquired = local.AcquireOrEnqueue(request, stay_away_ns);
  if (*acquired) return State::kGrantedLocal;
  while (true) {
    const bool woken = request->parking.ParkUntil(context.deadline_ns());
    switch (const State state = local.Resolve(request, /*timed_out=*/!woken)) {
      case State::kGrantedLocal:
        *stay_away_ns = request->stay_away_until_ns;
        return state;
      case State::kGrantedGlobal:
      case State::kDone:
        return state;
      case State::kAbandoned:
        return context.DeadlineError("waiting in a local lock queue");
      case State::kExecuting:
        if (!woken) {
          return OutcomeUnknownError(
              "deadline passed while the lock's holder was executing the operation");
        }
        break;
      default:
        break;  // an early wake-up: wait on
    }
  }
}

absl::Status Hocl::AcquireLocalBySpinning(OperationContext& context, LocalLock& local,
                                          int64_t* stay_away_ns) {
  while (!local.TryAcquire(stay_away_ns)) {
    if (context.expired()) return context.DeadlineError("trying a local lock");
    context.BackOff(1);
  }
  return absl::OkStatus();
}

absl::Status Hocl::ReadTarget(OperationContext& context, const LockTarget& target,
                              LocalBuffer image) {
  ChainLease chain(&context.session.buffers());
  while (true) {
    chain->Reset(target.server);
    chain->Read(MemorySpace::kMain, target.read_offset, image.Slice(0, target.read_bytes));
    absl::Status status = context.Await(chain.get());
    // Aborted: the fabric was interrupted and gave the READ up (rule F2).
    if (!absl::IsAborted(status)) return status;
    if (context.expired()) return context.DeadlineError("reading a node under its lock");
    context.BackOff(kReadBackOff);
  }
}

Verb& Hocl::AppendTake(const LockTarget& target, uint64_t expected, Chain* chain) const {
  Verb& take = chain->CompareSwap(MemorySpace::kLocks, uint64_t{target.word} * 8, expected,
                                  options_.own_word);
  take.old_value = kNotExecuted;
  return take;
}

absl::StatusOr<bool> Hocl::OwnerIsDead(OperationContext& context, ServerId server,
                                       uint64_t word) const {
  if (!RuleHolds(Rule::kC3)) return true;  // the variant takes slow for dead
  PANDO_ASSIGN_OR_RETURN(const BufferLease entry, context.session.buffers().Lease(sizeof(word)));
  ChainLease chain(&context.session.buffers());
  chain->Reset(server);
  chain->Read(MemorySpace::kMain,
              servers_[server].load(std::memory_order_acquire)->dead_offset +
                  DeadEntryOffset(LockWord::Decode(word).owner),
              entry.buffer());
  const absl::Status read = context.Await(chain.get());
  if (absl::IsAborted(read)) return false;  // interrupted: asked again later
  PANDO_RETURN_IF_ERROR(read);
  uint64_t published;
  std::memcpy(&published, entry.data(), sizeof(published));
  return SaysDead(published, word);
}

absl::StatusOr<bool> Hocl::IsAbandoned(OperationContext& context, const LockTarget& target,
                                       LocalBuffer image) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease lease,
                         context.session.buffers().Lease(sizeof(uint64_t)));
  ChainLease chain(&context.session.buffers());
  chain->Reset(target.server);
  // The word before the node: if it is free, the last holder's WRITEs have landed before the READ
  // of the node.
  chain->Read(MemorySpace::kLocks, uint64_t{target.word} * 8, lease.buffer());
  chain->Read(MemorySpace::kMain, target.read_offset, image.Slice(0, target.read_bytes));
  const absl::Status read = context.Await(chain.get());
  if (absl::IsAborted(read)) return false;
  PANDO_RETURN_IF_ERROR(read);
  uint64_t word;
  std::memcpy(&word, lease.data(), sizeof(word));
  if (word == LockWord::kFree) return true;
  return OwnerIsDead(context, target.server, word);
}

absl::Status Hocl::AcquireGlobal(OperationContext& context, LocalBuffer image, HeldLock& lock) {
  const LockTarget& target = lock.target_;
  ChainLease chain(&context.session.buffers());
  SessionCounters& counters = context.session.counters();
  uint64_t last_seen = LockWord::kFree;
  uint64_t expected = LockWord::kFree;
  int64_t suspect_ns = 0;  // when the owner's death is considered
  bool changed_hands = false;
  const bool combining = options_.techniques.operation_combining;
  int64_t back_off = combining ? kBackOffCombining : kBackOffFirst;
  int64_t back_off_last = combining ? kBackOffCombining : kBackOffLast;
  for (int attempt = 0;; ++attempt) {
    chain->Reset(target.server);
    AppendTake(target, expected, chain.get());
    // Rule L3: read with the attempt that is likely to win: an early one, or one after the word
    // changed hands.
    const bool with_read =
        options_.techniques.lock_and_read &&
        (attempt < kAttemptsWithRead || changed_hands || expected != LockWord::kFree);
    if (with_read) {
      chain->Read(MemorySpace::kMain, target.read_offset, image.Slice(0, target.read_bytes));
    }
    counters.lock_attempts.Add();
    absl::Status status = context.Await(chain.get());
    if (chain->verb(0).swapped()) {  // also where the READ behind it failed
      lock.held_ = true;
      if (status.ok() ? !with_read && RuleHolds(Rule::kL3) : absl::IsAborted(status)) {
        status = ReadTarget(context, target, image);
      }
      return status;
    }
    if (!status.ok() && !absl::IsAborted(status)) {
      NoteUncertain(context, lock, status);
      return status;
    }
    counters.lock_failures.Add();
    lock.wanted_ = true;
    const uint64_t before = std::exchange(last_seen, chain->verb(0).old_value);
    changed_hands = before != last_seen;
    if (lock.local_ != nullptr && last_seen != LockWord::kFree) {
      lock.local_->NoteRival(LockWord::Decode(last_seen).owner, context.session.NowNs(),
                             kRivalChains * context.session.chain_ns());
    }
    expected = LockWord::kFree;
    if (changed_hands) {
      suspect_ns = context.session.NowNs() + kSuspectChains * context.session.chain_ns();
      back_off_last = combining ? kBackOffCombining : kBackOffLast;
      back_off = std::min(back_off, back_off_last);
    } else if (last_seen != LockWord::kFree && context.session.NowNs() >= suspect_ns) {
      PANDO_ASSIGN_OR_RETURN(const bool dead, OwnerIsDead(context, target.server, last_seen));
      if (dead) {
        expected = last_seen;
        continue;
      }
      suspect_ns = context.session.NowNs() + kSuspectChains * context.session.chain_ns();
      back_off_last = kBackOffLast;  // its holder lives, but does not go on
    }
    if (context.expired()) {
      return context.DeadlineError(
          absl::StrCat("waiting for lock word ", target.word, " of server ", target.server,
                       " held by compute server ", LockWord::Decode(last_seen).owner));
    }
    if (options_.techniques.lock_back_off) {
      context.BackOff(back_off);
      back_off = std::min(back_off * 2, back_off_last);
    } else {
      context.session.scheduler().Yield();  // the holder may be a coroutine of this session
    }
  }
}

absl::StatusOr<std::optional<HeldLock>> Hocl::TryAcquire(OperationContext& context,
                                                         const LockTarget& target,
                                                         LocalBuffer image) {
  HeldLock lock;
  lock.target_ = target;
  lock.may_hand_over_ = false;
  if (options_.techniques.local_locks) {
    LocalLock& local = Local(target);
    int64_t stay_away_ns = 0;
    if (!local.TryAcquire(&stay_away_ns)) return std::optional<HeldLock>();
    lock.local_ = &local;
  }
  ChainLease chain(&context.session.buffers());
  chain->Reset(target.server);
  AppendTake(target, LockWord::kFree, chain.get());
  chain->Read(MemorySpace::kMain, target.read_offset, image.Slice(0, target.read_bytes));
  context.session.counters().lock_attempts.Add();
  absl::Status status = context.Await(chain.get());
  lock.held_ = chain->verb(0).swapped();  // also where the READ behind it failed
  if (lock.held_ && absl::IsAborted(status)) status = ReadTarget(context, target, image);
  if (lock.held_ && status.ok()) return std::optional<HeldLock>(std::move(lock));
  if (!lock.held_) {
    NoteUncertain(context, lock, status);
    context.session.counters().lock_failures.Add();
  }
  LeaveToFencing(context, std::move(lock), status);
  if (!status.ok() && !absl::IsAborted(status)) return status;
  return std::optional<HeldLock>();
}

std::vector<LockRequestPtr> Hocl::TakeCombinable(HeldLock& lock, uint32_t tree_id, size_t max) {
  if (lock.local_ == nullptr || !options_.techniques.operation_combining) return {};
  std::vector<LockRequestPtr> taken = lock.local_->TakeCombinable(tree_id, lock.target_.node, max);
  lock.wanted_ = lock.wanted_ || !taken.empty();
  lock.image_is_older_ = lock.image_is_older_ || !taken.empty();
  return taken;
}

void Hocl::PutBack(const HeldLock& lock, const std::vector<LockRequestPtr>& requests) {
  if (!requests.empty()) lock.local_->PutBack(requests);
}

void Hocl::Finish(OperationContext& context, LocalLock* local,
                  const std::vector<LockRequestPtr>& requests,
                  const std::vector<absl::Status>& results) {
  if (requests.empty()) return;
  context.session.counters().combined.Add(requests.size());
  local->Finish(requests, results);
}

absl::Status Hocl::AppendRelease(OperationContext& context, const HeldLock& lock, Chain* chain) {
  const uint64_t offset = uint64_t{lock.target_.word} * 8;
  if (options_.write_unlock) {
    PANDO_ASSIGN_OR_RETURN(const LocalBuffer zero, context.session.ZeroWord());
    chain->Write(MemorySpace::kLocks, offset, zero);
  } else {
    chain->CompareSwap(MemorySpace::kLocks, offset, options_.own_word, LockWord::kFree);
  }
  return absl::OkStatus();
}

absl::Status Hocl::ReleaseGlobal(OperationContext& context, const HeldLock& lock, Chain* chain) {
  PANDO_RETURN_IF_ERROR(AppendRelease(context, lock, chain));
  PANDO_RETURN_IF_ERROR(context.Await(chain));
  if (!options_.write_unlock && !chain->verbs().back().swapped()) {
    return LostLockError();
  }
  return absl::OkStatus();
}

absl::Status Hocl::Release(OperationContext& context, HeldLock&& lock, Chain* chain,
                           const std::byte* image) {
  PANDO_CHECK(lock.held_);
  const Techniques& techniques = options_.techniques;
  bool hand_over = lock.local_ != nullptr && lock.may_hand_over_ && techniques.handover &&
                   (lock.handovers_ < options_.handover_max || !RuleHolds(Rule::kL6)) &&
                   lock.local_->HasWaiters();
  absl::Status status;
  // A client that was stopped under the lock and fenced meanwhile does not know it, and a handover
  // alone posts nothing: the image may be out of date.
  if (hand_over && lock.answers_from_image_ && lock.image_is_older_ && RuleHolds(Rule::kV5)) {
    const absl::StatusOr<bool> holds = StillHolds(context, lock);
    if (holds.ok() && !*holds) return LoseLock(context, std::move(lock));
    status = holds.status();
    if (!status.ok() && !absl::IsUnavailable(status)) {  // no answer: the release is one, too
      hand_over = false;
      status = absl::OkStatus();
    }
  }
  if (!status.ok()) {
    // As after any chain that failed under the lock.
  } else if (hand_over) {
    if (chain->size() > 0) status = context.Await(chain);
  } else if (chain->size() > 0 && !techniques.command_combining) {
    status = context.Await(chain);
    if (status.ok()) {
      chain->Reset(lock.target_.server);
      status = ReleaseGlobal(context, lock, chain);
    }
  } else {
    status = ReleaseGlobal(context, lock, chain);
  }
  if (!status.ok()) {
    LeaveToFencing(context, std::move(lock), status);
    return status;
  }
  if (hand_over) {
    const bool with_image = techniques.handover_image && image != nullptr;
    if (lock.local_->Handover(lock.handovers_ + 1, lock.target_.node, with_image ? image : nullptr,
                              with_image ? lock.target_.read_bytes : 0)) {
      context.session.counters().handovers.Add();
      lock.held_ = false;
      return absl::OkStatus();
    }
    // Every waiter has given up meanwhile.
    chain->Reset(lock.target_.server);
    status = ReleaseGlobal(context, lock, chain);
    if (!status.ok()) {
      LeaveToFencing(context, std::move(lock), status);
      return absl::OkStatus();  // the writes themselves have completed
    }
  }
  lock.held_ = false;
  if (lock.local_ != nullptr) {
    lock.local_->Release(StayAwayUntil(context, lock));
  }
  return absl::OkStatus();
}

absl::Status Hocl::ReleaseUnchanged(OperationContext& context, HeldLock lock,
                                    const std::byte* image) {
  ChainLease nothing(&context.session.buffers());
  nothing->Reset(lock.target_.server);
  return Release(context, std::move(lock), nothing.get(), image);
}

int64_t Hocl::StayAwayUntil(const OperationContext& context, const HeldLock& lock) const {
  int64_t chains = 0;
  if (lock.handovers_ >= options_.handover_max) chains = kStayAwayChains;
  // A look at the clock costs more than all else here: most words have no other client waiting.
  if (options_.techniques.operation_combining && lock.wanted_ && lock.local_->MayHaveRivals()) {
    const int rivals = lock.local_->CountRivals(context.session.NowNs(),
                                                kRivalChains * context.session.chain_ns());
    chains = std::max(chains, StayAwayChains(rivals));
  }
  return chains == 0 ? 0 : context.session.NowNs() + context.session.WaitNs(chains);
}

}  // namespace pando
