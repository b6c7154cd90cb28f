// Of class RedoLog: the chains that write batches and base lines (rules W3, W4, W5).
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "compute/log/log_waiter.h"
#include "compute/log/redo_log.h"

namespace pando {
namespace {

bool MayBeInFlight(const absl::Status& status) {
  return absl::IsUnavailable(status) && IsRecoverable(status);
}

}  // namespace

absl::Status RedoLog::WriteNext(Lock& lock, OperationContext& context) {
  return WriteBatch(lock, context, ring_.Take());
}

absl::Status RedoLog::WriteBatch(Lock& lock, OperationContext& context,
                                 std::shared_ptr<LogBatch> batch) {
  const Target to = TargetNow();
  ++writers_;
  ++batch->chains;
  batch->posted_ns = context.session.NowNs();
  lock.unlock();
  absl::Status status;
  {
    BufferPool& buffers = context.session.buffers();
    const auto bytes = static_cast<uint32_t>(batch->bytes.size());
    const absl::StatusOr<BufferLease> buffer = buffers.Lease(bytes + kLogLineBytes);
    status = buffer.status();
    if (status.ok()) {
      std::memcpy(buffer->data(), batch->bytes.data(), bytes);
      if (batch->has_filler())
        std::memcpy(buffer->data() + bytes, batch->filler.data(), kLogLineBytes);
      const ChainLease chain(&buffers);
      const auto fill = [&] { FillChain(to, *batch, buffer->buffer(), chain.get()); };
      status = PostUntilKnown(lock, context, to, chain.get(), fill, batch.get());
    }
  }
  lock.lock();
  --writers_;
  // The log may have moved while this session was suspended: then its chain counts for nothing.
  if (to.moves != moves_) return absl::OkStatus();  // it is in the new extent, or on its way
  Wakes wakes;
  if (status.ok()) {
    NoteWritten(batch.get());
    WakeDurable(&wakes);
  } else if (absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status) ||
             MayBeInFlight(status)) {
    // Nothing has happened (with MayBeInFlight(): a broken variant believes so).
    if (batch->chains == 1) ring_.NotePutBack(batch.get());
  } else {
    Fail(status, &wakes);
  }
  if (failure_.ok()) ring_.NoteChainOver(batch.get());
  GiveRoom(&wakes);
  GiveTurn(context, &wakes);
  Wake(lock, wakes);
  return status;
}

void RedoLog::NoteWritten(LogBatch* batch) {
  if (batch->written) return;
  if (batch->suspects > 0) --suspects_;
  ++counters_.batches;
  counters_.messages += batch->messages;
  counters_.bytes += batch->position - batch->start + batch->bytes.size();
  ring_.NoteWritten(batch);
}

void RedoLog::FillChain(const Target& to, const LogBatch& batch, LocalBuffer buffer,
                        Chain* chain) const {
  const uint64_t ring = to.extent.offset + kLogRingOffset;
  const auto bytes = static_cast<uint32_t>(batch.bytes.size());
  chain->Reset(to.extent.server);
  if (batch.has_filler()) {
    chain->Write(MemorySpace::kMain, ring + batch.start % to.ring_bytes,
                 buffer.Slice(bytes, kLogLineBytes));
  }
  for (uint32_t at = 0; at < bytes; at += options_.packet_bytes) {
    chain->Write(MemorySpace::kMain, ring + batch.position % to.ring_bytes + at,
                 buffer.Slice(at, std::min(options_.packet_bytes, bytes - at)));
  }
}

absl::Status RedoLog::PostUntilKnown(Lock& lock, OperationContext& context, const Target& to,
                                     Chain* chain, absl::FunctionRef<void()> fill,
                                     LogBatch* batch) {
  fill();
  absl::Status status = context.AwaitOnLife(chain, to.extent.server_life);
  if (!MayBeInFlight(status) || !RuleHolds(Rule::kW4)) return status;
  lock.lock();
  ++counters_.chains_failed;
  if (to.moves == moves_ && batch != nullptr && batch->suspects++ == 0 && !batch->written) {
    ++suspects_;
  }
  lock.unlock();

  SessionContext& session = context.session;
  const TimeConstants& times = options_.times;
  const int64_t give_up_ns =
      std::max(session.NowNs() + times.lock_recovery_ns, context.deadline_ns());
  OperationContext again(context, give_up_ns);
  // The first chain that succeeds is the confirmation; an operation's deadline does not end this,
  // as nobody else can ask this endpoint's queue pair. Nor does it end where the service has
  // written the batch: this chain may land yet, and its place is not used again before that.
  const auto has_moved = [&] {
    std::lock_guard guard(mutex_);
    return to.moves != moves_;
  };
  while ((MayBeInFlight(status) || absl::IsDeadlineExceeded(status)) &&
         session.NowNs() < give_up_ns && !has_moved()) {
    session.scheduler().SleepUntil(session.NowNs() + times.lock_recovery_poll_ns);
    fill();
    status = again.AwaitOnLife(chain, to.extent.server_life);
  }
  if (MayBeInFlight(status) || absl::IsDeadlineExceeded(status)) {
    status = absl::UnavailableError(
        absl::StrCat("what was written may still be in flight, and memory server ",
                     to.extent.server, " has not been reached for ",
                     times.lock_recovery_ns / kMillisecondNs, " ms: ", status.message()));
  }
  lock.lock();
  if (to.moves == moves_ && batch != nullptr && --batch->suspects == 0 && !batch->written) {
    --suspects_;
  }
  lock.unlock();
  return status;
}

// --- Base lines.

absl::Status RedoLog::AdvanceBase(OperationContext& context, Lsn base) {
  Lsn last = kNoLsn;
  {
    std::lock_guard lock(mutex_);
    PANDO_CHECK_LE(base, ring_.next_lsn()) << "a base above the end of the log";
    last = ring_.next_lsn() - 1;
  }
  // The newest message of a record may be behind the base, and the one that it replaces below it:
  // that one is needed until the newest is durable.
  if (RuleHolds(Rule::kW5Durable)) PANDO_RETURN_IF_ERROR(AwaitDurable(context, last));
  Lock lock(mutex_);
  while (base_busy_ && failure_.ok()) {
    const auto waiter = std::make_shared<Waiter>(&context.session.scheduler());
    base_waiters_.push_back(waiter);
    if (!Park(lock, &base_waiters_, waiter, context.deadline_ns())) {
      return context.DeadlineError("waiting for another base line of the redo log");
    }
  }
  if (!failure_.ok()) return failure_;
  if (base <= base_) return absl::OkStatus();
  const LogRing::Mark mark = ring_.MarkAt(base);
  if (!RuleHolds(Rule::kW5Reuse)) ring_.NoteBase(mark);
  return WriteBaseLine(lock, context,
                       {.sequence = base_sequence_ + 1,
                        .lsn = base,
                        .offset = mark.position % ring_.shape().ring_bytes,
                        .place = mark.place},
                       mark.position);
}

absl::Status RedoLog::WriteBaseLine(Lock& lock, OperationContext& context, const LogBaseLine& base,
                                    uint64_t position) {
  const Target to = TargetNow();
  base_busy_ = true;
  ++writers_;
  lock.unlock();
  absl::Status status;
  {
    BufferPool& buffers = context.session.buffers();
    const absl::StatusOr<BufferLease> buffer = buffers.Lease(kLogLineBytes);
    status = buffer.status();
    if (status.ok()) {
      EncodeLogBaseLine(base, std::span<std::byte, kLogLineBytes>(buffer->data(), kLogLineBytes));
      const ChainLease chain(&buffers);
      const auto fill = [&] {
        chain->Reset(to.extent.server);
        // Two base lines in turn: a torn WRITE leaves the one before it whole.
        chain->Write(MemorySpace::kMain, to.extent.offset + base.sequence % 2 * kLogLineBytes,
                     buffer->buffer());
      };
      status = PostUntilKnown(lock, context, to, chain.get(), fill, nullptr);
    }
  }
  lock.lock();
  --writers_;
  if (to.moves != moves_) return absl::UnavailableError("the redo log has moved meanwhile");
  base_busy_ = false;
  Wakes wakes;
  for (auto& waiter : base_waiters_) wakes.push_back(std::move(waiter));
  base_waiters_.clear();
  if (status.ok()) {
    ++counters_.base_lines;
    base_sequence_ = base.sequence;
    base_ = base.lsn;
    // Only now may the space below the base be used again: a reader that still finds the older base
    // line needs it (rule W5).
    ring_.NoteBase({position, base.place});
    GiveRoom(&wakes);
  } else if (!absl::IsDeadlineExceeded(status) && !absl::IsResourceExhausted(status) &&
             !MayBeInFlight(status)) {
    Fail(status, &wakes);
  }
  Wake(lock, wakes);
  return status;
}

}  // namespace pando
