// A write to one key, as the operations of leaves see it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "compute/lock/lock_request.h"

namespace pando {

enum class WriteKind : uint8_t { kPut, kInsert, kUpdate, kErase };

// A view: the strings outlive it.
struct WriteOperation {
  WriteKind kind = WriteKind::kPut;
  std::string_view key;
  std::string_view value;
};

// The same by value, waiting for a leaf's lock: whoever holds the lock may execute it (rule U2).
class WriteRequest final : public LockRequest {
 public:
  WriteRequest(Scheduler* scheduler, int64_t deadline_ns, uint32_t tree_id, const Reference& leaf,
               const WriteOperation& operation)
      : LockRequest(scheduler, deadline_ns, tree_id, leaf),
        kind_(operation.kind),
        key_(operation.key),
        value_(operation.value) {}

  // A view of this request.
  WriteOperation operation() const { return {kind_, key_, value_}; }

 private:
  const WriteKind kind_;
  const std::string key_;
  const std::string value_;
};

}  // namespace pando
