// A thread-safe front: worker threads with a session each, fed through mailboxes. For callers that
// have no session of their own: many threads, or an event loop. A worker executes writes of one
// tree that wait at the same time together, as Session::WriteMany() does, and answers them one by
// one; a single operation waits for no others. Operations that have not ended yet have no order
// among each other.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pando/client.h"

namespace pando {

struct Operation {
  enum class Kind : uint8_t {
    kGet,
    kPut,
    kInsert,
    kUpdate,
    kErase,
    kScan,
    kReplace,
    kEraseIf,
    kUpsert
  };
  Kind kind = Kind::kGet;
  std::string key = {};       // kScan: from
  std::string value = {};     // writes; kReplace: the desired value, kUpsert: the operand
  std::string expected = {};  // kReplace, kEraseIf
  UpsertFunction function = UpsertFunction::kAdd;  // kUpsert
  size_t limit = 0;                                // kScan: rows, at most (SIZE_MAX: all)
  // kScan: only keys below this one; and whether the greatest keys come first (CursorOptions).
  std::optional<std::string> to = {};
  bool reverse = false;
  // From Submit() on, milliseconds. 0: ClientOptions::operation_timeout_ms. Negative:
  // InvalidArgument.
  int64_t timeout_ms = 0;
};

struct OperationResult {
  absl::Status status;
  std::string value;  // kGet; kUpsert: the new one; IsConditionFailed(status): the present value
  std::vector<KeyValue> rows;  // kScan
};

// Thread-safe. The client must outlive it, and a tree all operations that were submitted for it:
// once they have ended it can be closed, outside of their callbacks. The executor's destructor
// finishes all submitted operations; what their callbacks submit from then on is refused
// (FailedPrecondition).
class Executor {
 public:
  struct Options {
    int workers = 2;              // threads, each with a session; one thread more closes trees
    size_t queue_max = 64 << 10;  // that have not ended; Submit() of more is ResourceExhausted
  };
  // InvalidArgument: not 1 to 1,024 workers. ResourceExhausted: no more threads or coroutines.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Client* client, const Options& options);
  virtual ~Executor() = default;

  // Calls `done` once, on a worker thread; it must not block. It may run on a coroutine's stack of
  // 128 KiB: no deep recursion, no large arrays. An exception that it throws is logged and has no
  // other effect: the operation has ended. An error means that the operation was not
  // accepted and that `done` is not called. The operation's deadline counts from here. An operation
  // that still waits for its turn by then ends with DeadlineExceeded, whatever delays those before
  // it.
  virtual absl::Status Submit(const Tree& tree, Operation operation,
                              std::function<void(OperationResult)> done) = 0;
  // Blocking form, from any thread except a worker's.
  OperationResult Execute(const Tree& tree, Operation operation);
};

}  // namespace pando
