// One link between compute servers over RDMA: what its users send with, and its connection
// (verbs_peers.h). A connection belongs to its port's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/auth/mutual_proof.h"
#include "common/fabric/link/peer_hello.h"
#include "common/fabric/link/peer_hub.h"
#include "common/fabric/verbs/queue_pair_opener.h"
#include "common/fabric/verbs/verbs_frame.h"
#include "common/fabric/verbs/verbs_peer_room.h"

namespace pando {

// What a connection needs of its port.
class VerbsPeerHost {
 public:
  virtual ~VerbsPeerHost() = default;
  virtual const ClusterSecret* secret() const = 0;
  virtual int silence_ms() const = 0;
  // A queue pair for a link that this side makes: its address.
  virtual absl::StatusOr<QueuePairAddress> MakePair(PeerId peer) = 0;
  // Connects the link's queue pair, made if it is none yet; OnPaired() follows.
  virtual absl::Status BeginPairing(PeerId peer, const std::string& origin,
                                    const QueuePairAddress& remote) = 0;
  // Nobody wants it any more.
  virtual void EndPairing(PeerId peer) = 0;
  virtual void Retire(std::unique_ptr<PeerPair> pair) = 0;
  // Delivers what has come on all links.
  virtual void PollMessages() = 0;
};

class VerbsPeerLink final : public HubLink {
 public:
  using HubLink::HubLink;

  // --- The port's thread.
  void Start(PeerPair* pair);
  void OnSent();
  // What a message of so many bytes, and credit, means for the count. DataLoss: nobody may send it.
  absl::Status OnReceived(size_t bytes, uint32_t credit);
  // A message has been taken: the other end may send another one.
  void GiveCredit();

 private:
  SendResult Transmit(std::string_view message) override;
  bool HasRoom() const override { return pair_ != nullptr && credit_ > 0 && unsent_ < kSendsMax; }
  SendResult Post(std::string_view message);
  void OfferCredit();

  // Of its slots those beyond are for what only gives credit.
  static constexpr uint32_t kSendsMax = kPeerCredits;

  PeerPair* pair_ = nullptr;  // the connection's
  uint32_t credit_ = kPeerCredits;
  uint32_t to_give_ = 0;
  uint32_t allowed_ = kPeerCredits;  // messages that the other end may send now
  uint32_t unsent_ = 0;              // posted, and not known to be sent
  uint64_t posted_ = 0;
};

class VerbsPeerConnection final : public HubConnection {
 public:
  VerbsPeerConnection(PeerId peer, UniqueFd socket, std::string name, std::string origin,
                      std::shared_ptr<VerbsPeerLink> link, PeerHub* hub, VerbsPeerHost* host,
                      PeerHandler* handler);
  ~VerbsPeerConnection() override;

  bool wants_write() const override { return connecting_ || !out_.empty(); }

  // As BeginPairing() ended.
  absl::Status OnPaired(absl::StatusOr<std::unique_ptr<PeerPair>> pair);
  absl::Status OnMessage(std::string_view message, bool has_credit, uint32_t credit);
  void OnSent() { link_->OnSent(); }

 private:
  // What it waits for.
  enum class State : uint8_t { kHello, kProof, kOpen, kPairing, kReady, kNothing };

  absl::Status Receive() override;
  void PollMessages() override { host_->PollMessages(); }
  void SendError(const absl::Status& status) override;
  absl::Status FinishConnecting();
  absl::Status Flush();
  void Say(VerbsFrameType type, std::string_view body);
  absl::Status Handle(const VerbsFrame& frame);
  absl::Status Greet(const VerbsFrame& frame);
  absl::Status Prove(const VerbsFrame& frame);
  absl::Status HandleAddress(const VerbsFrame& frame);
  // Both sides have proved themselves.
  absl::Status Proved();
  absl::Status Refused(const VerbsFrame& frame);

  const std::shared_ptr<VerbsPeerLink> link_;
  VerbsPeerHost* const host_;
  bool connecting_;
  bool early_ = false;  // messages came before the other side said that it is ready
  State state_ = State::kHello;
  PeerHello hello_;  // this side's
  PeerIdentity other_;
  std::optional<ServerProof> server_proof_;
  std::optional<ClientProof> client_proof_;
  VerbsFrameReader reader_;
  std::string out_;
  std::unique_ptr<PeerPair> pair_;
};

}  // namespace pando
