// A lock that is taken with a READ of parts of what it guards.
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "common/wire/lock_word.h"
#include "compute/lock/hocl.h"

namespace pando {
namespace {

// Behind an attempt that failed, in chain times: as ever where operations are combined (hocl.cpp).
constexpr int64_t kBackOff = 2;

}  // namespace

absl::StatusOr<std::optional<HeldLock>> Hocl::TryAcquireParts(OperationContext& context,
                                                              const LockTarget& target,
                                                              const TargetParts& parts,
                                                              LocalBuffer image) {
  LocalLock& local = Local(target);
  int64_t stay_away_ns = 0;
  if (local.TakeCrowdedTurn() || !local.TryAcquire(&stay_away_ns)) return std::optional<HeldLock>();
  const bool rivals =
      local.MayHaveRivals() &&
      local.CountRivals(context.session.NowNs(), kRivalChains * context.session.chain_ns()) > 0;
  if (rivals || stay_away_ns > context.session.NowNs()) {
    local.Release(stay_away_ns);
    return std::optional<HeldLock>();
  }
  HeldLock lock;
  lock.target_ = target;
  lock.local_ = &local;
  ChainLease chain(&context.session.buffers());
  chain->Reset(target.server);
  AppendTake(target, LockWord::kFree, chain.get());
  for (uint32_t i = 0; i < parts.count; ++i) {
    const TargetParts::Part& part = parts.parts[i];
    chain->Read(MemorySpace::kMain, target.read_offset + part.offset,
                image.Slice(part.offset, part.bytes));
  }
  SessionCounters& counters = context.session.counters();
  counters.lock_attempts.Add();
  absl::Status status = context.Await(chain.get());
  lock.held_ = chain->verb(0).swapped();  // also where a READ behind it failed
  if (lock.held_ && absl::IsAborted(status)) {
    status = ReadTarget(context, target, image);
    lock.image_is_fresh_ = status.ok();
  }
  if (lock.held_ && status.ok()) return std::optional<HeldLock>(std::move(lock));
  const bool taken = !lock.held_ && status.ok();
  if (taken) {
    counters.lock_failures.Add();
    const uint64_t seen = chain->verb(0).old_value;
    if (seen != LockWord::kFree) {
      local.NoteRival(LockWord::Decode(seen).owner, context.session.NowNs(),
                      kRivalChains * context.session.chain_ns());
    }
  } else if (!lock.held_) {
    NoteUncertain(context, lock, status);
  }
  LeaveToFencing(context, std::move(lock), status);
  if (!status.ok() && !absl::IsAborted(status)) return status;
  if (taken && options_.techniques.lock_back_off) context.BackOff(kBackOff);
  return std::optional<HeldLock>();
}

absl::Status Hocl::ReadAll(OperationContext& context, HeldLock& lock, LocalBuffer image) {
  PANDO_CHECK(lock.held_);
  const absl::Status read = ReadTarget(context, lock.target_, image);
  lock.image_is_fresh_ = read.ok();
  if (!read.ok()) LeaveToFencing(context, std::move(lock), read);
  return read;
}

}  // namespace pando
