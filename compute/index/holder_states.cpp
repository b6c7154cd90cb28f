#include "compute/index/holder_states.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "common/wire/control.h"

namespace pando {

absl::StatusOr<bool> HolderStates::IsDeadEverywhere(OperationContext& context,
                                                    uint16_t compute_server, uint32_t incarnation,
                                                    uint64_t* asked) {
  *asked = context.session.generation();
  if (incarnation == 0 || !RuleHolds(Rule::kC5Everywhere)) return true;
  context.session.AdoptServers();
  const std::pair<uint16_t, uint32_t> key(compute_server, incarnation);
  if (const auto known = holders_.find(key); known != holders_.end()) {
    *asked = known->second.asked;
    return known->second.dead;
  }
  Holder holder{true, context.session.generation()};
  *asked = holder.asked;
  const std::vector<ServerId> servers = tree_.environment.members.Ids();
  for (const ServerId server : servers) {
    if (!silent_.contains(server)) continue;
    return absl::DeadlineExceededError(
        absl::StrCat("memory server ", server, " did not say whether a client lives"));
  }
  for (const ServerId server : servers) {
    const absl::StatusOr<std::string> body =
        tree_.environment.control.Call(context, server, ControlOpcode::kClientState,
                                       EncodeJoinReply({compute_server, incarnation}));
    // Of a server that is gone no node can be read: nothing is freed that it may have linked.
    if (absl::IsUnavailable(body.status()) && !IsRecoverable(body.status())) continue;
    if (absl::IsDeadlineExceeded(body.status())) silent_.insert(server);
    PANDO_RETURN_IF_ERROR(body.status());
    PANDO_ASSIGN_OR_RETURN(const ClientLiveness state, ParseClientState(*body));
    if (state == ClientLiveness::kJoined) holder.dead = false;
  }
  // Not before all have answered: the one that has not may know that the holder lives.
  holders_.emplace(key, holder);
  return holder.dead;
}

}  // namespace pando
