#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "common/fabric/server.h"
#include "common/wire/control.h"

namespace pando {

// Stands before a memory server, and counts who asks for orphans.
class ListCounter : public ControlHandler {
 public:
  explicit ListCounter(ControlHandler* server) : server_(*server) {}

  std::string Handle(PeerId peer, std::string_view request) override {
    const absl::StatusOr<ControlMessage> asked = ParseMessage(request);
    PANDO_CHECK_OK(asked.status());
    const auto opcode = static_cast<ControlOpcode>(asked->header.opcode);
    lists_ += opcode == ControlOpcode::kListOrphans ? 1 : 0;
    return server_.Handle(peer, request);
  }
  bool IsKnown(PeerId peer) const override { return server_.IsKnown(peer); }
  void OnPeerGone(PeerId peer) override { server_.OnPeerGone(peer); }
  int64_t OnTimer(int64_t now_ns) override { return server_.OnTimer(now_ns); }

  int lists() const { return lists_; }

 private:
  ControlHandler& server_;
  int lists_ = 0;
};

}  // namespace pando
