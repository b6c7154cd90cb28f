#include "compute/core/extent_calls.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/owner_messages.h"

namespace pando {
namespace {

// A server has at most so many chunks, and every call but the last brings a full part.
constexpr size_t kListCallsMax = 1 << 16;

}  // namespace

absl::StatusOr<LogExtent> AllocateExtent(OperationContext& context, ControlChannel& control,
                                         ServerId server, uint64_t bytes) {
  while (true) {
    PANDO_ASSIGN_OR_RETURN(const std::string body,
                           control.Call(context, server, ControlOpcode::kAllocateExtent,
                                        EncodeExtentRequest({bytes})));
    PANDO_ASSIGN_OR_RETURN(const ExtentGrant grant, ParseExtentGrant(body));
    if (grant.id != 0) {
      if (grant.bytes < bytes) {
        return absl::DataLossError(absl::StrCat("memory server ", server, " gave ", grant.bytes,
                                                " bytes for a log of ", bytes));
      }
      return LogExtent{.server = server,
                       .server_life = grant.life,
                       .offset = grant.offset,
                       .bytes = grant.bytes,
                       .id = grant.id};
    }
    const int64_t again_ns = context.session.NowNs() + grant.ask_again_ns;
    if (again_ns >= context.deadline_ns()) {
      return absl::DeadlineExceededError(
          absl::StrCat("memory server ", server, " has ", bytes,
                       " bytes for a log only once memory that was freed has rested and is zeroed, "
                       "in some ",
                       grant.ask_again_ns / kMillisecondNs, " ms more"));
    }
    context.session.scheduler().SleepUntil(again_ns);
  }
}

absl::StatusOr<bool> FreeExtent(OperationContext& context, ControlChannel& control,
                                const LogExtent& extent, uint32_t holder_incarnation) {
  PANDO_ASSIGN_OR_RETURN(
      const std::string body,
      control.Call(context, extent.server, ControlOpcode::kFreeExtent,
                   EncodeExtentFree({extent.server_life, extent.id, holder_incarnation})));
  return ParseExtentFreed(body);
}

absl::StatusOr<std::vector<HeldExtent>> ListExtents(OperationContext& context,
                                                    ControlChannel& control, ServerId server) {
  std::vector<HeldExtent> extents;
  ExtentQuery query = {.max = kListedExtentsMax};
  uint64_t life = 0;
  for (size_t calls = 0; calls < kListCallsMax; ++calls) {
    PANDO_ASSIGN_OR_RETURN(
        const std::string body,
        control.Call(context, server, ControlOpcode::kListExtents, EncodeExtentQuery(query)));
    PANDO_ASSIGN_OR_RETURN(const ExtentList list, ParseExtentList(body));
    if (life != 0 && list.life != life) {
      return absl::UnavailableError(absl::StrCat(
          "memory server ", server, " was restarted while it listed its logs: ask again"));
    }
    life = list.life;
    for (const ListedExtent& listed : list.extents) {
      if (listed.offset <= query.after_offset) {
        return absl::DataLossError(
            absl::StrCat("memory server ", server, " lists its logs in no order"));
      }
      query.after_offset = listed.offset;
      extents.push_back({.extent = {.server = server,
                                    .server_life = life,
                                    .offset = listed.offset,
                                    .bytes = listed.bytes,
                                    .id = listed.id},
                         .compute_server = listed.compute_server,
                         .incarnation = listed.incarnation,
                         .holder = listed.holder});
    }
    if (list.more == 0) return extents;
  }
  return absl::DataLossError(
      absl::StrCat("memory server ", server, " lists more logs than it can have"));
}

}  // namespace pando
