// Where a redo log has room: asked of all memory servers (rules W1, W6, W7).
//
// Not thread-safe: in coroutines of one session.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/wire/log_extent.h"
#include "common/wire/remote_address.h"
#include "compute/core/control_channel.h"
#include "compute/core/session_context.h"

namespace pando {

class ExtentSearch {
 public:
  ExtentSearch(ControlChannel* control, std::vector<ServerId> servers)
      : control_(*control), servers_(std::move(servers)) {}

  // The server with most free memory first; `last` only where no other one has room. Whoever does
  // not say how much it has leaves time for the others, and is not asked again by this search,
  // unless all are like that. ResourceExhausted: those that answer have no room. DeadlineExceeded:
  // nobody answers, or memory has to rest for longer. Unavailable: they are gone.
  absl::StatusOr<LogExtent> Find(OperationContext& context, uint64_t bytes, ServerId last = 0);

  // False: somebody has said nothing, and may have room.
  bool all_answered() const { return all_answered_; }
  // All of its memory, of the one with most of it that has answered.
  uint64_t largest_bytes() const { return largest_bytes_; }

 private:
  // Who answers, the one with most free memory first. An error: nobody does.
  absl::StatusOr<std::vector<ServerId>> Ask(OperationContext& context, ServerId last);

  ControlChannel& control_;
  std::vector<ServerId> servers_;  // but for those that said nothing
  bool all_answered_ = true;
  uint64_t largest_bytes_ = 0;
};

}  // namespace pando
