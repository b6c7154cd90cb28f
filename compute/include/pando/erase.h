// Erasing a range of keys: Session::EraseRange().
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "pando/options.h"

namespace pando {

// How far it has come.
struct RangeErased {
  // Keys that are erased for sure. Where the call's outcome is unknown there may be more: those of
  // some leaves.
  uint64_t erased = 0;
  // All keys of the range below this one were gone through: a call from here on does the rest. Any
  // bytes, also such as no key can be.
  std::string next;
  bool done = false;  // so was the whole range
};

struct EraseRangeOptions {
  // The deadline is of the whole call, whatever the range has: what was erased by then stays so.
  OperationOptions operation;
  // Called on the way, after each few leaves, in the session's thread; it calls no operation of the
  // session. False: the call ends, with Cancelled; if it throws, too.
  std::function<bool(const RangeErased&)> progress;
};

}  // namespace pando
