#include "pando/losses.h"

#include <algorithm>
#include <utility>

#include "common/sched/scheduler.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/owner/loss.h"
#include "compute/owner/member.h"

namespace pando {

absl::Status AcceptLoss(Client& client, const AcceptLossOptions& options,
                        std::vector<LossInfo>* losses) {
  losses->clear();
  PANDO_RETURN_IF_ERROR(CheckMayBlock());
  Member* const member = ImplOf(client).member();
  if (member == nullptr) {
    return absl::FailedPreconditionError("this client has no owned tree open");
  }
  LossAcceptance acceptance;
  acceptance.servers_dead.assign(options.servers_dead.begin(), options.servers_dead.end());
  const int64_t timeout_ms = std::clamp(options.timeout_ms, int64_t{0}, kTimeoutMsMax);
  const absl::Status accepted = member->AcceptLoss(&acceptance, timeout_ms * kMillisecondNs);
  for (Loss& loss : acceptance.losses) {
    losses->push_back({.tree = std::move(loss.tree),
                       .low = std::move(loss.low),
                       .high = std::move(loss.high),
                       .owner = {.compute_server = loss.owner.compute_server,
                                 .incarnation = loss.owner.incarnation},
                       .since = loss.since,
                       .why = std::move(loss.why)});
  }
  return accepted;
}

}  // namespace pando
