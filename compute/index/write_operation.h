// A write to one key, as the operations of leaves see it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compute/lock/lock_request.h"
#include "pando/upsert.h"
#include "pando/write.h"

namespace pando {

using WriteKind = Write::Kind;

constexpr bool MayErase(WriteKind kind) {
  return kind == WriteKind::kErase || kind == WriteKind::kEraseIf;
}
// The key may need a slot that it has not.
constexpr bool MayAdd(WriteKind kind) {
  return kind == WriteKind::kPut || kind == WriteKind::kInsert || kind == WriteKind::kUpsert;
}

// A view: the strings outlive it, and the function does.
struct WriteOperation {
  WriteKind kind = WriteKind::kPut;
  std::string_view key;
  std::string_view value;                                 // kUpsert: the operand
  std::string_view expected = {};                         // kReplace, kEraseIf
  const UpsertCallback* function = nullptr;               // kUpsert: throws nothing
  UpsertFunction function_number = UpsertFunction::kAdd;  // kUpsert: for who executes it elsewhere
  // Put, insert, update, erase of a shared tree: `answer` gets the value that the key had, where
  // the write took effect; empty where it had none.
  bool wants_previous = false;
};

// One operation of a run, and where its result goes. Views.
struct RunWrite {
  const WriteOperation* operation;
  absl::Status* result;
  std::string* answer;  // may be null; what WriteKey() says beside the result
};

// Statuses of outcomes, beside OK. Static messages: none of them is a failure.
absl::Status KeyNotFound();   // update, erase, replace, erase if
absl::Status KeyExists();     // insert
absl::Status ValueDiffers();  // replace, erase if: IsConditionFailed()

// The same by value, waiting for a leaf's lock: the lock's holder may execute it (rule U2).
class WriteRequest final : public LockRequest {
 public:
  WriteRequest(Scheduler* scheduler, int64_t deadline_ns, uint32_t tree_id, const Reference& leaf,
               const WriteOperation& operation)
      : LockRequest(scheduler, deadline_ns, tree_id, leaf),
        kind_(operation.kind),
        key_(operation.key),
        value_(operation.value),
        expected_(operation.expected),
        function_(operation.function),
        wants_previous_(operation.wants_previous) {}

  // A view of this request.
  WriteOperation operation() const {
    return {.kind = kind_,
            .key = key_,
            .value = value_,
            .expected = expected_,
            .function = function_,
            .wants_previous = wants_previous_};
  }

  // The answer beside `result` (LeafBatch::Apply()). The executing holder writes it before kDone;
  // the waiter reads it after. A copy: the leaf's image belongs to the holder.
  std::string answer;

 private:
  const WriteKind kind_;
  const std::string key_;
  const std::string value_;
  const std::string expected_;
  const UpsertCallback* const function_;
  const bool wants_previous_;
};

}  // namespace pando
