// Where a member that joins gets memory for its redo log, also while memory servers are full or say
// nothing (rule W7), and what becomes of memory to which something of this member may still be in
// flight.
//
// Not thread-safe: in coroutines of one session, at its member's turnstile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/wire/log_extent.h"
#include "common/wire/remote_address.h"
#include "compute/core/control_channel.h"
#include "compute/core/membership.h"
#include "compute/core/session_context.h"
#include "compute/owner/cluster_entries.h"
#include "compute/owner/map_store.h"

namespace pando {

class LogRoom {
 public:
  struct Parts {
    MemberId self;
    uint64_t wished_bytes = 0;
    ControlChannel* control = nullptr;
    const Membership* members = nullptr;
    MapStore* map = nullptr;
    std::function<bool(ServerId)> is_gone;  // a memory server, for good
    // What is done for room: who has ended; what one of them has left goes to its leaves, for
    // nobody; logs that no entry names are freed.
    std::function<absl::StatusOr<std::vector<MemberId>>(OperationContext&)> list_ended;
    std::function<void(OperationContext&, MemberId)> bring_to_leaves;
    std::function<void(OperationContext&)> free_lost;
  };
  explicit LogRoom(Parts parts) : parts_(std::move(parts)) {}

  // ResourceExhausted: there is no room. Aborted: one that may have some does not answer. Others:
  // also where what is unsure is not freed.
  absl::StatusOr<LogExtent> Obtain(OperationContext& context);
  // Of who gives up then: memory servers that say nothing are waited for no longer. At most as long
  // as ever.
  void LimitPatience(int64_t ns) { silent_ns_max_ = std::min(silent_ns_max_, ns); }
  // It has found no room, but somebody else may have got it a moment ago.
  bool others_may_join(int64_t now_ns) const;

  void NoteUnsure(const LogExtent& extent) { unsure_.push_back(extent); }
  bool IsUnsure(const LogExtent& extent) const {
    return std::ranges::find(unsure_, extent) != unsure_.end();
  }

 private:
  absl::StatusOr<LogExtent> Find(OperationContext& context);
  // Those that are sure by now, or whose servers are gone. An error: a server that answers does not
  // free one.
  absl::Status FreeUnsure(OperationContext& context);

  const Parts parts_;
  absl::Status no_room_;                   // as of the last look
  int64_t asked_ns_ = 0;                   // until then somebody did, for the last time
  int64_t silent_ns_max_ = 5 * kSecondNs;  // before a smaller log will do
  int64_t no_room_since_ns_ = 0, again_ns_ = 0, unanswered_since_ns_ = 0;
  std::vector<LogExtent> unsure_;  // to which something of this member may be in flight
};

}  // namespace pando
