// What a member is made of: sessions of its own, what its client lends it, and what it takes note
// of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/time_constants.h"
#include "common/fabric/fabric.h"
#include "compute/core/control_channel.h"
#include "compute/core/membership.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"
#include "compute/owner/claim.h"
#include "compute/owner/member_options.h"
#include "compute/owner/peer_desk.h"

namespace pando {

struct MemberParts {
  std::unique_ptr<SessionContext> session;                    // of its own
  std::function<void(const SessionContext*)> on_session_end;  // before it goes
  bool event_driven = false;  // the session's endpoint drives it; else a thread
  ControlChannel* control = nullptr;
  Membership* members = nullptr;
  ServerId catalog_server = 0;
  TreeContext* cluster_tree = nullptr;
  Fabric* fabric = nullptr;  // for links to other members
  // Of their own: peers' requests are executed on these; at least one.
  std::vector<std::unique_ptr<SessionContext>> service_sessions;
  // That bring records to leaves beside its own one; there may be none.
  std::vector<std::unique_ptr<SessionContext>> flush_sessions;
  PeerDesk::FindFunction find_function;
  std::string service_address;            // "": the fabric chooses
  std::function<bool(ServerId)> is_gone;  // a memory server, for good
  std::function<void()> on_fenced;  // the catalog's server takes this client for dead (rule C2)
  const Clock* lease_clock = nullptr;
  int64_t serving_lease_ns = 0;  // 0: there are no leases
  uint32_t packet_bytes = 4096;
  TimeConstants times;
  MemberOptions options;
};

// Rule O12.
struct RangeWish {
  MappedRange range;                  // nobody's, and somebody is to claim it
  int64_t first_ns = 0, last_ns = 0;  // looks at it
};

}  // namespace pando
