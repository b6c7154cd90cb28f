// Many writes of one tree over the coroutines of a session: what Session::WriteMany(), MultiPut(),
// MultiErase() and the executor's batches do.
//
// Not thread-safe: all of it in the session's thread. Invariants:
//   1. Writes are sorted by key, those of one key in the caller's order. Whoever claims a key has
//      all of its writes, and goes through them one after the other: so they take effect in that
//      order.
//   2. A claim ends where a leaf does, as far as the cached parent knows, or where the tree does:
//      ascending keys beyond the end are one coroutine's, and nobody meets in the last leaf. That
//      shares out work and no more: what is one change is decided by the fences of the leaf.
//   3. Whoever splits leaves the separators to one coroutine, which inserts those that have come
//      together: a parent is written once for many leaves. A write has its result before that.
//   4. Each write gets one result. No run begins after the deadline, and what had no turn by then
//      had no effect. Whatever goes through all writes before (preparing, sorting) looks at the
//      clock on the way: a call of very many ends by its deadline, too.
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
// is no good is refused, and the rest executed. `write_of(i)`: the i-th, whenever it is asked for.
void ExecuteCall(SessionImpl& session, const Tree& tree, size_t count,
                 absl::FunctionRef<CallWrite(size_t)> write_of, const OperationOptions& options,
                 int64_t deadline_ns);

}  // namespace pando
