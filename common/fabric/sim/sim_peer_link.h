// One end of a simulated link, as the compute server that has it sees it. One thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/fabric/peer.h"
#include "common/fabric/sim/peer_network.h"

namespace pando::sim {

inline absl::Status OtherEndGone(const char* what) {
  return absl::UnavailableError(absl::StrCat("the link to the other compute server: ", what));
}

class SimPeerLink final : public PeerLink {
 public:
  SimPeerLink(PeerNetwork* network, uint32_t end, PeerIdentity other)
      : network_(network), end_(end), other_(other) {}

  PeerSend TrySend(std::string_view message) override {
    if (message.empty() || message.size() > kPeerMessageBytesMax) return PeerSend::kRefused;
    return network_ == nullptr ? PeerSend::kBroken : network_->TrySend(end_, message);
  }
  void Close() override {
    if (network_ != nullptr) network_->Close(end_);
    closed_ = true;
  }
  bool broken() const override {
    return closed_ || network_ == nullptr || network_->IsKilled(end_);
  }
  PeerIdentity other() const override { return other_; }

  void set_other(PeerIdentity other) { other_ = other; }
  // Its end is no more.
  void Detach() { network_ = nullptr; }

 private:
  PeerNetwork* network_;
  const uint32_t end_;
  PeerIdentity other_;
  bool closed_ = false;
};

}  // namespace pando::sim
