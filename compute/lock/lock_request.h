// A waiter in a local lock's queue (rule L6), and the one state machine that deadline, handover,
// combining and destruction go through.
//
//   kQueued    -> kGrantedLocal   the local lock is the waiter's; the global word is not
//   kQueued    -> kGrantedGlobal  handover: the waiter holds the word, too, maybe with the image
//   kQueued    -> kExecuting      a holder has it in its batch
//   kExecuting -> kDone           with its result
//   kExecuting -> kQueued         it did not fit the batch: back to the front, in order
//   kQueued    -> kAbandoned      the waiter's deadline passed: no effect
//   kExecuting -> kAbandoned      the waiter's deadline passed: outcome unknown
//
// Thread safety: everything but the constants is guarded by the LocalLock's mutex, except that the
// waiter reads the result after it saw kDone under that mutex.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "common/sched/scheduler.h"
#include "common/wire/remote_address.h"

namespace pando {

class LockRequest {
 public:
  enum class State : uint8_t {
    kQueued,
    kGrantedLocal,
    kGrantedGlobal,
    kExecuting,
    kDone,
    kAbandoned,
    kStates
  };

  // A waiter that wants the lock itself.
  LockRequest(Scheduler* scheduler, int64_t deadline_ns)
      : parking(scheduler), deadline_ns(deadline_ns) {}
  // A waiter whose operation a holder may execute on `node` instead. What the operation is, and
  // what it says beside `result`, is between the two: a class derived from this one has it, by
  // value. All requests that name a node are of one such class.
  LockRequest(Scheduler* scheduler, int64_t deadline_ns, uint32_t tree_id, const Reference& node)
      : parking(scheduler), deadline_ns(deadline_ns), tree_id(tree_id), node(node) {}
  virtual ~LockRequest() = default;
  LockRequest(const LockRequest&) = delete;
  LockRequest& operator=(const LockRequest&) = delete;

  Parking parking;
  const int64_t deadline_ns;
  const uint32_t tree_id = 0;
  const Reference node;  // null: not combinable

  bool combinable() const { return !node.is_null(); }

  State state() const { return state_; }
  // CHECKs the table above.
  void MoveTo(State next);

  absl::Status result;             // kDone
  int handovers = 0;               // kGrantedGlobal: in a row, this one included
  int64_t stay_away_until_ns = 0;  // kGrantedLocal: when the global word may be tried (rule L6)

 private:
  State state_ = State::kQueued;
};

using LockRequestPtr = std::shared_ptr<LockRequest>;

}  // namespace pando
