// All keys of a range are erased, leaf by leaf: leaves that lie in it as a whole go, several at
// once (absorb.h); of the others, the keys are erased as one run of writes (write_run.h).
//
// Not thread-safe. Inside a coroutine of the context's session. Invariants:
//   1. The place is a cut between keys, and only rises. Each key of the range below it was erased,
//      or was not there, at one moment of the call, and no key is erased twice.
//   2. A step that fails moves nowhere: some of its keys may be erased already.
//   3. Nothing is held between two steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "compute/core/session_context.h"
#include "compute/index/key_range.h"
#include "compute/index/tree_context.h"

namespace pando {

// Told after each step: how many keys are erased for sure, and the place. An error ends the call.
using NoteErased = absl::FunctionRef<absl::Status(uint64_t erased, const KeyCut& at)>;

// What a call has erased, for histories, where somebody asks: these keys for sure; and these,
// unless somebody else was quicker; and whatever other members had in these ranges.
struct ErasedKeys {
  std::vector<std::string> sure, perhaps;
  std::vector<KeyRange> elsewhere;
};

absl::Status EraseRangeOfTree(OperationContext& context, TreeContext& tree, const KeyRange& range,
                              NoteErased note, ErasedKeys* keys = nullptr);

}  // namespace pando
