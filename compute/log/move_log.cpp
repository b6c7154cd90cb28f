// Of class RedoLog: on to another extent (rule W6).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "compute/log/log_waiter.h"
#include "compute/log/redo_log.h"

namespace pando {

absl::Status RedoLog::Move(OperationContext& context, const LogExtent& extent, uint32_t epoch,
                           absl::FunctionRef<absl::Status()> again,
                           absl::FunctionRef<absl::Status()> commit) {
  Lock lock(mutex_);
  if (failure_.ok()) {
    return absl::FailedPreconditionError("the redo log is where it is: it has not failed");
  }
  const LogRing::Shape shape = {extent.bytes - kLogRingOffset, ring_.shape().batch_bytes_max};
  if ((extent.offset | extent.bytes) % kLogLineBytes != 0 || extent.bytes < extent_.bytes ||
      epoch == epoch_ || extent == extent_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the redo log moves from ", extent_.bytes, " bytes of epoch ", epoch_,
                     " to other memory, at least as much, and another epoch: not to ", extent.bytes,
                     " of epoch ", epoch));
  }
  ++moves_;
  moving_ = true;
  extent_ = extent;
  epoch_ = epoch;
  ring_.MoveTo(shape, epoch);
  capacity_.store(ring_.capacity_bytes(), std::memory_order_relaxed);
  failure_ = absl::OkStatus();
  stays_ = false;
  turn_ = 0;
  suspects_ = 0;
  // What was complete in an extent that no entry has named is in its records (`again`).
  const LogRing::Mark first = ring_.MarkAt(durable() + 1);
  absl::Status status =
      WriteBaseLine(lock, context, {.sequence = 1, .lsn = first.place.lsn, .place = first.place});
  if (status.ok()) {
    lock.unlock();
    // `commit` names the new extent in the log's entry, so the extent holds everything before (rule
    // W6).
    status = again();
    const Lsn last = next_lsn() - 1;
    if (status.ok()) status = AwaitBatch(context, last, /*moving=*/true);
    if (status.ok()) status = commit();
    lock.lock();
  }
  Wakes wakes;
  if (status.ok()) {
    moving_ = false;
    WakeDurable(&wakes);
    GiveTurn(context, &wakes);
    GiveRoom(&wakes);
  } else {
    // It goes on moving: a chain to this extent may end yet, which no entry names.
    Fail(status, &wakes);
  }
  Wake(lock, wakes);
  return status;
}

}  // namespace pando
