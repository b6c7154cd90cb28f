// For tests: a compute server that sends back, on every link that it takes, what it is sent, in its
// order.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/fabric/peer.h"

namespace pando {

class PeerEcho final : public PeerAcceptor, private PeerHandler {
 public:
  PeerHandler* OnAccepted(const std::shared_ptr<PeerLink>&) override { return this; }

 private:
  void OnMessage(PeerLink* link, std::string_view message) override {
    std::vector<std::string>& waiting = waiting_[link];
    if (waiting.empty() && link->TrySend(message) != PeerSend::kFull) return;
    waiting.emplace_back(message);
  }
  void OnWritable(PeerLink* link) override {
    std::vector<std::string>& waiting = waiting_[link];
    size_t sent = 0;
    while (sent < waiting.size() && link->TrySend(waiting[sent]) == PeerSend::kSent) ++sent;
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<ptrdiff_t>(sent));
  }
  void OnBroken(PeerLink* link, const absl::Status&) override { waiting_.erase(link); }

  std::map<PeerLink*, std::vector<std::string>> waiting_;  // for room
};

}  // namespace pando
