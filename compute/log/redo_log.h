// The redo log of a member (rules W1 to W6): numbers changes, brings them to remote memory many at
// once, and says what is durable there. All sessions of the member share one. It has no session or
// thread of its own: a session that must wait for a write does it.
//
// Thread safety: all methods from any thread; those that take an OperationContext in a coroutine of
// its session. Append() may be called under other mutexes. None is held across a suspension, and
// nothing else is called under the log's own. Invariants (those of the ring: log_ring.h):
//   1. LSNs are 1, 2, 3, ... in the order of the calls of Append(), which never waits and never
//      fails.
//   2. An LSN is durable when its batch and all batches before it are complete; then the reader
//      finds its message, until a base above it is. durable() never goes back and costs one load.
//   3. At most two batches are being written, the second only when eight messages wait for it, or
//      one is full. The session that completes a batch wakes those whose LSN is durable by that, in
//      the order of LSNs, then one waiter of the next batch, which writes it. No session writes
//      more than it takes to make its own LSN durable.
//   4. A turn to write has one holder. A holder whose session does not poll for 8 chain times loses
//      its turn to the service (Tend()), also if it has written and has not heard of it. Its chain
//      counts as in flight until it does, and a batch in flight keeps its place in the ring
//      (log_ring.h, invariant 4).
//   5. A chain that fails with Unavailable may still be in flight (rule L5): its batch is written
//      again, the same bytes at the same place, until a chain of the same endpoint succeeds. Until
//      that batch is complete no other is begun. With base lines too: there is no next one before.
//      Unconfirmed for 15 s, the log has failed.
//   6. A log that has failed (its server is gone, or this client is cut off) begins nothing more
//      until it moves. Its messages stay; of them only what was being written may become durable,
//      and nothing in an extent that Move() has not come to name. Until then, and while it moves,
//      no room is given to new messages: those of Move() come first.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/spinning_mutex.h"
#include "common/base/time_constants.h"
#include "common/wire/log_extent.h"
#include "common/wire/log_format.h"
#include "common/wire/lsn.h"
#include "compute/core/session_context.h"
#include "compute/log/log_ring.h"

namespace pando {

struct LogCounters {
  uint64_t batches = 0;        // complete
  uint64_t messages = 0;       // in them
  uint64_t bytes = 0;          // of them, with padding and fillers
  uint64_t padding_bytes = 0;  // of batches that are closed
  uint64_t base_lines = 0;
  uint64_t written_again = 0;  // by the service
  uint64_t turns_taken = 0;    // from sessions that did not use them
  uint64_t chains_failed = 0;  // that might have been in flight still (rule W4)
  uint64_t parked = 0;         // waits for a batch, in the queue of waiters
};

class RedoLog {
 public:
  struct Options {
    LogExtent extent;     // zeroed
    uint64_t log_id = 0;  // not 0; a member's own, each life another
    uint32_t epoch = 1;   // another one for each extent of a log
    Lsn first_lsn = 1;
    uint32_t packet_bytes = 4096;  // Capabilities::packet_bytes
    // The largest batch: less where the ring has no room for eight, or a chain none for so many
    // packets.
    uint32_t batch_bytes_max = 16 << 10;
    // If its server is gone, waiters go on waiting, to the deadline: the owner of the log will
    // Move() it, or say that it cannot (NoteStays()).
    bool moves = false;
    TimeConstants times;
  };
  // kReserve may use the last sixteenth of the ring: for records that are appended again, claims
  // and recovery. kMove as well, and while the log moves nobody else gets room: of Move()'s own.
  enum class Purpose : uint8_t { kWrite, kReserve, kMove };

  // Room for one message. Move-only; unused, it returns its room.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept { *this = std::move(other); }
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(log_, other.log_);
      std::swap(cost_, other.cost_);
      return *this;
    }
    ~Reservation() {
      if (log_ != nullptr) log_->Return(cost_);
    }

    bool holds_room() const { return log_ != nullptr; }

   private:
    friend class RedoLog;
    Reservation(RedoLog* log, uint64_t cost) : log_(log), cost_(cost) {}
    RedoLog* log_ = nullptr;
    uint64_t cost_ = 0;
  };

  // Writes the first base line. InvalidArgument: the options do not fit together; else as
  // AwaitDurable().
  static absl::StatusOr<std::unique_ptr<RedoLog>> Create(OperationContext& context,
                                                         const Options& options);
  // There must be no waiter, no writer and no reservation (CHECKed).
  ~RedoLog();
  RedoLog(const RedoLog&) = delete;
  RedoLog& operator=(const RedoLog&) = delete;

  // Room for a message with a key and a value of at most so many bytes. Waits while there is none,
  // to the deadline: DeadlineExceeded, nothing has happened. Unavailable, FailedPrecondition: the
  // log has failed.
  absl::StatusOr<Reservation> Reserve(OperationContext& context, size_t key_bytes,
                                      size_t value_bytes, Purpose purpose = Purpose::kWrite);
  Lsn Append(Reservation reservation, const LogMessage& message);
  // Reserves and appends at once, if there is room and no waiter for room. No value: nothing has
  // happened; call Reserve(). Like Append(), may be called under other mutexes.
  std::optional<Lsn> TryAppend(const LogMessage& message, Purpose purpose = Purpose::kWrite);

  // Waits until the LSN, which has been appended, is durable, and writes batches where it is this
  // waiter's turn. Ok: it is. DeadlineExceeded: it was not by then, and may become so. Unavailable,
  // FailedPrecondition: the log has failed. If a chain of this session fails it ends when that is
  // known to be over (invariant 5), not at the deadline.
  absl::Status AwaitDurable(OperationContext& context, Lsn lsn) {
    if (durable() >= lsn) [[likely]]
      return absl::OkStatus();
    return AwaitBatch(context, lsn);
  }
  Lsn durable() const { return durable_.load(std::memory_order_acquire); }
  Lsn next_lsn() const;

  // Rule W5: the caller has looked at all partitions before this call, and no record needs a
  // message below `base` any more. Waits until everything that was appended before this call is
  // durable, writes the base line, and lets the space be used again. OK also if the base is there
  // already. Errors as AwaitDurable(). When it returns, however late, the outcome of every base
  // line is known, unless the log has failed.
  absl::Status AdvanceBase(OperationContext& context, Lsn base);
  Lsn base() const;

  // Rule W6, after failure(): goes on in another extent, zeroed, of at least extent_bytes(), under
  // another epoch. Whatever is not durable is written there first, with the LSNs that it has; then
  // `again` appends, with room of kMove, all records that are dirty and whose newest message is
  // below base() (it may be in an old extent alone); when all of that is complete `commit` has the
  // log's entry name the new extent, and only then anything more is durable. Ok: that has happened.
  // Else the log has failed again, nothing more is durable, and another extent is needed.
  // InvalidArgument: this one does not do; FailedPrecondition: the log has not failed. One at a
  // time. Chains to the old extent may still be in flight: the caller frees it only once this
  // client's queue pairs there are gone.
  absl::Status Move(OperationContext& context, const LogExtent& extent, uint32_t epoch,
                    absl::FunctionRef<absl::Status()> again,
                    absl::FunctionRef<absl::Status()> commit);
  // In `again`: waits until the LSN is complete in the new extent, so that it takes no more room
  // than it has to. Errors as AwaitDurable().
  absl::Status AwaitComplete(OperationContext& context, Lsn lsn) {
    return AwaitBatch(context, lsn, /*moving=*/true);
  }
  // Its server is gone, as the caller knows before any chain says so.
  void NoteServerGone(const absl::Status& why);
  // A log that has failed does not move, for that reason, until Move() is called again: waiters
  // end.
  void NoteStays(const absl::Status& why);
  // It has failed, and waiters wait for Move().
  bool will_move() const;
  // It has not failed, and does not move.
  bool is_in_place() const;

  // The service calls it often: takes over what a session that does not poll has left (invariant
  // 4). OK also if there is nothing to do. Errors as AwaitDurable().
  absl::Status Tend(OperationContext& context);

  // Rule W6: Ok, or why nothing more can become durable here.
  absl::Status failure() const;

  // No waiter, no writer, no reservation: a log that has not failed may be freed as long as nothing
  // is appended. One that has may have something in flight still.
  bool idle() const;
  // With what is promised to writers. At 3/4 of capacity_bytes() the member flushes the records
  // that hold the base.
  uint64_t used_bytes() const;
  // Of the extent that it has, or of the last one that it did not come to move to: the next one has
  // as many at least.
  uint64_t extent_bytes() const;
  // One load.
  uint64_t capacity_bytes() const { return capacity_.load(std::memory_order_relaxed); }
  LogCounters counters() const;

 private:
  struct Waiter;
  using Waiters = std::deque<std::shared_ptr<Waiter>>;
  using Wakes = absl::InlinedVector<std::shared_ptr<Waiter>, 16>;
  using Lock = std::unique_lock<SpinningMutex>;
  // The turn to write: a new number each time. 0: no session has it.
  using Turn = uint64_t;

  RedoLog(const Options& options, const LogRing::Shape& shape);

  // redo_log.cpp: waiting.
  void Return(uint64_t cost);
  // `moving`: of Move(), for which complete is enough.
  absl::Status AwaitBatch(OperationContext& context, Lsn lsn, bool moving = false);
  // The log has failed, and its waiters have to wait for the move.
  bool WillMove() const { return options_.moves && !stays_ && absl::IsUnavailable(failure_); }
  bool GivesRoom(Purpose purpose) const {
    return failure_.ok() && (!moving_ || purpose == Purpose::kMove);
  }
  Lsn Complete(bool moving) const { return moving ? ring_.durable() : durable(); }
  // Suspends without the lock; whether it was woken. It is in no queue afterwards.
  bool Park(Lock& lock, Waiters* queue, const std::shared_ptr<Waiter>& waiter, int64_t deadline_ns);
  Turn TakeTurn(OperationContext& context);
  // Whether the next holder of the turn may begin a batch.
  bool MayWrite() const;
  // With the lock; what is to be woken is collected.
  void GiveTurn(OperationContext& context, Wakes* wakes);
  void WakeDurable(Wakes* wakes);
  void GiveRoom(Wakes* wakes);
  void GiveRoomNow(Lock& lock);
  void Fail(const absl::Status& why, Wakes* wakes);
  void TakeAll(Wakes* wakes);
  // Without the lock for a moment.
  static void Wake(Lock& lock, const Wakes& wakes);

  // write_log.cpp: chains. Without the lock meanwhile.
  absl::Status WriteNext(Lock& lock, OperationContext& context);
  absl::Status WriteBatch(Lock& lock, OperationContext& context, std::shared_ptr<LogBatch> batch);
  void NoteWritten(LogBatch* batch);
  // Where a chain goes; as of when it was begun, whatever becomes of the log meanwhile.
  struct Target {
    LogExtent extent;
    uint64_t ring_bytes = 0;
    uint64_t moves = 0;
  };
  Target TargetNow() const { return {extent_, ring_.shape().ring_bytes, moves_}; }
  void FillChain(const Target& to, const LogBatch& batch, LocalBuffer buffer, Chain* chain) const;
  // `fill` makes the chain, of the same bytes each time. Posts it until it is known what became of
  // it (invariant 5); DeadlineExceeded: nothing of it has happened. Called without the lock.
  absl::Status PostUntilKnown(Lock& lock, OperationContext& context, const Target& to, Chain* chain,
                              absl::FunctionRef<void()> fill, LogBatch* batch);
  absl::Status WriteBaseLine(Lock& lock, OperationContext& context, const LogBaseLine& base,
                             uint64_t position = 0);

  const Options options_;
  mutable SpinningMutex mutex_;
  LogExtent extent_;
  uint32_t epoch_;
  LogRing ring_;
  std::atomic<uint64_t> capacity_;  // the ring's
  uint64_t moves_ = 0;              // how often it has moved
  bool moving_ = false;             // no entry names the extent: what is complete is not durable
  bool stays_ = false;              // nobody waits for a move
  std::atomic<Lsn> durable_;
  absl::Status failure_;
  Turn turn_ = 0, last_turn_ = 0;
  int64_t turn_ns_ = 0;  // when it was given
  // Whose coroutine lets the others of its session run before it writes; a hint: two may, where the
  // service has taken a turn.
  std::atomic<const Scheduler*> yielding_{nullptr};
  int suspects_ = 0;         // batches that are not written and may be in flight (invariant 5)
  Waiters durable_waiters_;  // by LSN
  Waiters room_waiters_, base_waiters_;
  Lsn base_;
  uint64_t base_sequence_ = 0;               // of the last base line that is complete
  bool base_busy_ = false;                   // somebody writes one
  uint64_t reservations_ = 0, writers_ = 0;  // unused ones; chains
  LogCounters counters_;
};

}  // namespace pando
