// Many writes of one tree over the coroutines of a session: what Session::WriteMany(), MultiPut(),
// MultiErase() and the executor's batches do.
//
// Not thread-safe: all of it in the session's thread. What is promised of their order is said in
// compute/index/write_workers.h, which shares them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "compute/client/session_impl.h"

namespace pando {

// Executes `writes`, which are prepared (SessionImpl::Prepare()), and returns when all of them have
// their results. `done(i)` is called as soon as writes[i] has its own, in any order, while others
// go on; it suspends nowhere. In a coroutine of the session, or outside.
void ExecuteWrites(SessionImpl& session, const Tree& tree, absl::Span<const RunWrite> writes,
                   const OperationOptions& options, int64_t deadline_ns,
                   absl::FunctionRef<void(size_t)> done);

// One write of a call, unchecked, and where its result goes.
struct CallWrite {
  WriteOperation operation;
  UpsertFunction function = UpsertFunction::kAdd;  // kUpsert
  absl::Status* result = nullptr;
  std::string* answer = nullptr;  // may be null; left empty where it says nothing
};

// The same for a call of `count` writes with these options, which is to end by `deadline_ns`: what
// is invalid is refused, and the rest executed. `write_of(i)`: the i-th, whenever it is asked for.
void ExecuteCall(SessionImpl& session, const Tree& tree, size_t count,
                 absl::FunctionRef<CallWrite(size_t)> write_of, const OperationOptions& options,
                 int64_t deadline_ns);

}  // namespace pando
