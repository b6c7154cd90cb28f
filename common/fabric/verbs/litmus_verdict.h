// What litmus tests say about `write_unlock` and `lines_atomic` (rules F1, L4). Pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/fabric/verbs/litmus.h"

namespace pando {

// What a memory server would take for granted of this device; what was seen can only take from it.
struct LitmusVerdict {
  bool write_unlock = false;  // a WRITE of 0 releases a lock; else CAS does
  bool lines_atomic = false;  // else lines have checksums
  // FailedPrecondition: what Pando takes for granted on such a device was seen to be false (says
  // what to do).
  absl::Status contradiction;
};

LitmusVerdict JudgeLitmus(const LitmusResult& result);

// What was seen, test by test, and the verdict. Several lines.
std::string DescribeLitmus(const LitmusResult& result);

}  // namespace pando
