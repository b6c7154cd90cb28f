// A thread-safe front: worker threads with a session each, fed through mailboxes. For callers that
// have no session of their own: many threads, or an event loop. Writes of one tree that wait at the
// same time go together, as in Session::WriteMany(), and are answered one by one; what comes alone
// waits for no others. No order is promised among operations that have not ended yet.
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
  std::string key;       // kScan: from
  std::string value;     // writes; kReplace: what is desired, kUpsert: the operand
  std::string expected;  // kReplace, kEraseIf
  UpsertFunction function = UpsertFunction::kAdd;  // kUpsert
  size_t limit = 0;                                // kScan
  // kScan: keys below this one only; and whether the greatest keys come first (CursorOptions).
  std::optional<std::string> to;
  bool reverse = false;
  // From Submit() on, milliseconds. 0: ClientOptions::operation_timeout_ms; negative ones are
  // InvalidArgument.
  int64_t timeout_ms = 0;
};

struct OperationResult {
  absl::Status status;
  std::string value;  // kGet; kUpsert: the new one; IsConditionFailed(status): the present one
  std::vector<KeyValue> rows;  // kScan
};

// Thread-safe. The client and the trees must outlive it. Destruction finishes what was submitted.
class Executor {
 public:
  struct Options {
    int workers = 2;              // threads, each with a session
    size_t queue_max = 64 << 10;  // operations waiting; Submit beyond it is ResourceExhausted
  };
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Client* client, const Options& options);
  virtual ~Executor() = default;

  // `done` is called once, on a worker thread; it must not block. What it throws is an error in the
  // log and nothing else: the operation has ended. The status says whether it was
  // accepted: on an error `done` is not called. The operation's deadline counts from here: what
  // still waits for its turn by then ends with DeadlineExceeded, whatever holds up those before it.
  virtual absl::Status Submit(const Tree& tree, Operation operation,
                              std::function<void(OperationResult)> done) = 0;
  // Blocking form, from any thread but a worker's.
  OperationResult Execute(const Tree& tree, Operation operation);
};

}  // namespace pando
