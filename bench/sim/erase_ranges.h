// Range deletes in a history: an erase for each of the keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/history/history.h"
#include "compute/index/erase_range.h"
#include "pando/client.h"

namespace pando {

// What a range delete has done, by its own account.
struct RangeErasing {
  absl::Status status;
  RangeErased erased;
  ErasedKeys keys;
};

// Erases the keys from `from` to `last`, both with it. Inside a task of the session, or outside.
RangeErasing PerformEraseRange(Session& session, const Tree& tree, const std::string& from,
                               const std::string& last);

// The operations of such a call before it has ended: for all that is known their outcome is
// unknown. `keys`: all that may be in the range.
std::vector<history::Operation> EraseOperations(const std::vector<std::string>& keys,
                                                int32_t client, int64_t call_ns);
// The same once it has: what is known of each is said. A key that was perhaps erased by somebody
// else meanwhile was absent at some moment of the call, and that is all.
void SettleErases(const RangeErasing& erasing, int64_t return_ns,
                  std::vector<history::Operation>* operations);

}  // namespace pando
