// What the catalog's server knows of a life of a compute server.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "common/wire/control.h"
#include "compute/core/control_channel.h"
#include "compute/owner/cluster_entries.h"

namespace pando {

inline absl::StatusOr<ClientLiveness> AskClientState(OperationContext& context,
                                                     ControlChannel& control,
                                                     ServerId catalog_server, MemberId member) {
  PANDO_ASSIGN_OR_RETURN(const std::string body,
                         control.Call(context, catalog_server, ControlOpcode::kClientState,
                                      EncodeJoinReply({.compute_server = member.compute_server,
                                                       .incarnation = member.incarnation})));
  return ParseClientState(body);
}

// In order, or cut off: for good. Of one that the catalog's server has never met nothing is known.
inline bool HasEnded(ClientLiveness state) {
  return state == ClientLiveness::kDead || state == ClientLiveness::kLeft;
}

}  // namespace pando
