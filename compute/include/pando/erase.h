// Erasing a range of keys: Session::EraseRange().
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "pando/options.h"

namespace pando {

// How far the call got.
struct RangeErased {
  // Keys that are erased for sure. If the call's outcome is unknown, it may have erased the keys of
  // some more leaves. In an owned tree calls that erase a key at the same time may each count it.
  uint64_t erased = 0;
  // The call is finished with all keys of the range below this one: a call from here on does the
  // rest. Any bytes, even if no key can be so long.
  std::string next;
  bool done = false;  // the whole range is finished
};

struct EraseRangeOptions {
  // The deadline is for the whole call, however large the range is. Keys that were erased by then
  // stay erased.
  OperationOptions operation = {};
  // Called after every few leaves, in the session's thread, on a coroutine's stack of 128 KiB: no
  // deep recursion, no large arrays. It must not call an operation of the session. If it returns
  // false or throws, the call ends with Cancelled.
  std::function<bool(const RangeErased&)> progress = {};
};

}  // namespace pando
