// Which clients are over, as far as memory servers know (rules C2, C5): for sweeps, each asked
// about once.
//
// Not thread-safe; inside a coroutine of the context's session.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"

namespace pando {

class HolderStates {
 public:
  explicit HolderStates(const TreeContext& tree) : tree_(tree) {}

  // Rule C2: a dead client may still write to servers that have not fenced it. `*asked`: the
  // session's generation then: servers that have been taken up since were not asked. Nobody in
  // particular (incarnation 0) is dead. A server that has once let the deadline pass is not asked
  // again: DeadlineExceeded.
  absl::StatusOr<bool> IsDeadEverywhere(OperationContext& context, uint16_t compute_server,
                                        uint32_t incarnation, uint64_t* asked);

 private:
  struct Holder {
    bool dead;
    uint64_t asked;
  };
  const TreeContext& tree_;
  std::map<std::pair<uint16_t, uint32_t>, Holder> holders_;
  std::set<ServerId> silent_;
};

}  // namespace pando
