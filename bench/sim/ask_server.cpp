#include "bench/sim/ask_server.h"

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "common/wire/owner_messages.h"

namespace pando {
namespace {

// The reply's body.
std::string Ask(memory::MemoryServer* server, ControlOpcode opcode, std::string_view body) {
  ControlHeader header;
  header.opcode = static_cast<uint16_t>(opcode);
  const std::string reply = server->Handle(/*peer=*/0, EncodeMessage(header, body));
  const absl::StatusOr<std::string_view> answer = ParseReply(reply, opcode, header.sequence);
  PANDO_CHECK_OK(answer.status());
  return std::string(*answer);
}

}  // namespace

ClientLiveness AskState(memory::MemoryServer* server, const AskedClient& client) {
  JoinReply identity;
  identity.compute_server = client.compute_server;
  identity.incarnation = client.incarnation;
  const auto state =
      ParseClientState(Ask(server, ControlOpcode::kClientState, EncodeJoinReply(identity)));
  PANDO_CHECK_OK(state.status());
  return *state;
}

bool AskHasLog(memory::MemoryServer* server, const AskedClient& client) {
  ExtentQuery query = {.max = 64};
  for (;;) {
    const auto list =
        ParseExtentList(Ask(server, ControlOpcode::kListExtents, EncodeExtentQuery(query)));
    PANDO_CHECK_OK(list.status());
    for (const ListedExtent& extent : list->extents) {
      if (extent.compute_server == client.compute_server &&
          extent.incarnation == client.incarnation)
        return true;
      query.after_offset = extent.offset;
    }
    if (list->more == 0 || list->extents.empty()) return false;
  }
}

}  // namespace pando
