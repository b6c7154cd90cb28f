#include "compute/core/fence_calls.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/control.h"

namespace pando {

absl::StatusOr<FenceReply> Fence(OperationContext& context, ControlChannel& control,
                                 ServerId server, uint16_t compute_server, uint32_t incarnation) {
  PANDO_ASSIGN_OR_RETURN(const std::string body,
                         control.Call(context, server, ControlOpcode::kFence,
                                      EncodeJoinReply({.compute_server = compute_server,
                                                       .incarnation = incarnation})));
  return ParseFenceReply(body);
}

absl::Status AwaitFence(OperationContext& context, ControlChannel& control, ServerId server,
                        uint16_t compute_server, uint32_t incarnation, int64_t answer_ns) {
  while (true) {
    const int64_t left_ns = context.deadline_ns() - context.session.NowNs();
    OperationContext asking(context, left_ns <= answer_ns ? context.deadline_ns()
                                                          : context.session.NowNs() + answer_ns);
    PANDO_ASSIGN_OR_RETURN(const FenceReply reply,
                           Fence(asking, control, server, compute_server, incarnation));
    if (reply.confirmed == 1) return absl::OkStatus();
    const int64_t again_ns = context.session.NowNs() + reply.ask_again_ns;
    if (again_ns >= context.deadline_ns()) {
      return absl::DeadlineExceededError(
          absl::StrCat("memory server ", server, " does not confirm yet that compute server ",
                       compute_server, " (incarnation ", incarnation,
                       ") has ended: it is connected, or its lease to serve runs; ask again, or "
                       "end its process"));
    }
    context.session.scheduler().SleepUntil(again_ns);
  }
}

absl::StatusOr<int64_t> RenewServingLease(OperationContext& context, ControlChannel& control,
                                          ServerId catalog_server) {
  PANDO_ASSIGN_OR_RETURN(const std::string body,
                         control.Call(context, catalog_server, ControlOpcode::kServe, ""));
  PANDO_ASSIGN_OR_RETURN(const uint64_t lease_us, ParseServingLease(body));
  return static_cast<int64_t>(lease_us) * kMicrosecondNs;
}

}  // namespace pando
