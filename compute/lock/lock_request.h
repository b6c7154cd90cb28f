// A waiter in a local lock's queue (rule L6): the operation by value, and the one state machine
// that deadline, handover, combining and destruction go through.
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
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/sched/scheduler.h"
#include "common/wire/remote_address.h"

namespace pando {

enum class WriteKind : uint8_t { kPut, kInsert, kUpdate, kErase };

// A write to one key. A view: the strings outlive it.
struct WriteOperation {
  WriteKind kind = WriteKind::kPut;
  std::string_view key;
  std::string_view value;
};

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

  // A waiter that wants the lock itself (structural changes).
  LockRequest(Scheduler* scheduler, int64_t deadline_ns)
      : parking(scheduler), deadline_ns(deadline_ns) {}
  // A waiter whose operation a holder may execute on `node` instead.
  LockRequest(Scheduler* scheduler, int64_t deadline_ns, uint32_t tree_id, const Reference& node,
              const WriteOperation& operation)
      : parking(scheduler),
        deadline_ns(deadline_ns),
        tree_id(tree_id),
        node(node),
        kind(operation.kind),
        key(operation.key),
        value(operation.value) {}

  Parking parking;
  const int64_t deadline_ns;
  const uint32_t tree_id = 0;
  const Reference node;  // null: not combinable
  const WriteKind kind = WriteKind::kPut;
  const std::string key;
  const std::string value;

  bool combinable() const { return !node.is_null(); }
  WriteOperation operation() const { return {kind, key, value}; }

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
