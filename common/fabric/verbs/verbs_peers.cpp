#include "common/fabric/verbs/verbs_peers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/body.h"
#include "common/fabric/verbs/completion_error.h"
#include "common/fabric/verbs/service_address.h"
#include "common/fabric/verbs/tcp_socket.h"
#include "common/fabric/verbs/verbs_peer_connection.h"

namespace pando {
namespace {

// How long the thread looks for more before it sleeps, once something has come.
constexpr int64_t kPeerSpinNs = 20 * kMicrosecondNs;
constexpr int kPollsPerTurn = 64;
constexpr int kCompletionsPerPoll = 32;

class VerbsPeerPort final : public PeerHub, private VerbsPeerHost {
 public:
  static absl::StatusOr<std::unique_ptr<PeerPort>> Open(std::shared_ptr<VerbsDevice> device,
                                                        const VerbsPeerOptions& verbs,
                                                        const PeerOptions& options);
  VerbsPeerPort(std::shared_ptr<VerbsDevice> device, const VerbsPeerOptions& verbs,
                const PeerOptions& options)
      : PeerHub(options), device_(std::move(device)), verbs_(verbs) {}
  ~VerbsPeerPort() override;

  const std::string& address() const override { return address_; }

 private:
  struct Pairing {
    PeerPlace place;
    QueuePair pair;
  };

  // --- PeerHub.
  absl::StatusOr<UniqueFd> Dial(const std::string& address) override;
  std::shared_ptr<HubLink> NewLink() override { return std::make_shared<VerbsPeerLink>(this); }
  std::unique_ptr<HubConnection> NewConnection(PeerId peer, UniqueFd socket, std::string name,
                                               std::shared_ptr<HubLink> link,
                                               PeerHandler* handler) override;
  absl::StatusOr<std::string> Identify(int socket) override { return PeerOfTcp(socket); }
  void Refuse(int socket, const absl::Status& why) override;
  absl::Status WatchMore() override { return WatchOwn(channel_->fd); }
  void OnOwnEvent() override;
  void AfterTurn() override;

  // --- VerbsPeerHost.
  const ClusterSecret* secret() const override { return verbs_.secret.get(); }
  int silence_ms() const override { return verbs_.silence_ms; }
  absl::StatusOr<QueuePairAddress> MakePair(PeerId peer) override;
  absl::Status BeginPairing(PeerId peer, const std::string& origin,
                            const QueuePairAddress& remote) override;
  void EndPairing(PeerId peer) override;
  void Retire(std::unique_ptr<PeerPair> pair) override;
  void PollMessages() override { PollRooms(); }

  absl::Status InitChannel();
  absl::Status Listen(UniqueFd* listener);
  absl::StatusOr<PeerPlace> TakePlace();
  // On the opener's threads.
  ServedPairOr Pair(const QueuePairOpener::Request& request);
  void TakePaired();
  // How many completions there were; what they mean for connections is left to Settle().
  int PollRooms();
  void Settle();
  int Poll() {
    const int count = PollRooms();
    Settle();
    return count;
  }
  void OnCompletion(PeerRoom* room, const ibv_wc& completion);
  void EndWith(PeerId peer, const absl::Status& why);
  VerbsPeerConnection* ConnectionOf(PeerId peer) const {
    return static_cast<VerbsPeerConnection*>(Find(peer));
  }

  const std::shared_ptr<VerbsDevice> device_;
  const VerbsPeerOptions verbs_;
  std::string address_;
  CompletionChannelHandle channel_;
  std::vector<std::shared_ptr<PeerRoom>> rooms_;
  std::vector<std::unique_ptr<PeerPair>> graveyard_;  // broken, to be destroyed
  absl::flat_hash_map<uint32_t, PeerId> links_;       // by queue pair
  std::vector<PeerId> touched_;                       // by the completions of this poll
  std::vector<PeerId> ended_;
  bool busy_ = false;  // something completed in this turn
  std::mutex mutex_;
  absl::flat_hash_map<PeerId, Pairing> pairing_;  // with the opener's threads
  std::optional<QueuePairOpener> opener_;         // goes first
};

absl::StatusOr<std::unique_ptr<PeerPort>> VerbsPeerPort::Open(std::shared_ptr<VerbsDevice> device,
                                                              const VerbsPeerOptions& verbs,
                                                              const PeerOptions& options) {
  PANDO_RETURN_IF_ERROR(CheckOptions(options));
  auto port = std::make_unique<VerbsPeerPort>(std::move(device), verbs, options);
  PANDO_RETURN_IF_ERROR(port->InitChannel());
  UniqueFd listener;
  if (options.acceptor != nullptr) PANDO_RETURN_IF_ERROR(port->Listen(&listener));
  VerbsPeerPort* const raw = port.get();
  raw->opener_.emplace([raw](const auto& request) { return raw->Pair(request); },
                       [raw] { raw->Wake(); });
  PANDO_RETURN_IF_ERROR(raw->Start(std::move(listener)));
  return port;
}

VerbsPeerPort::~VerbsPeerPort() {
  Shutdown();
  opener_.reset();
  Poll();
  graveyard_.clear();
}

absl::Status VerbsPeerPort::InitChannel() {
  channel_.reset(ibv_create_comp_channel(device_->context()));
  if (channel_ != nullptr &&
      fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) == 0) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "RDMA device ", device_->name(), ": no completion channel: ", std::strerror(errno)));
}

absl::Status VerbsPeerPort::Listen(UniqueFd* listener) {
  const GidFacts& gid = device_->path().gid;
  PANDO_ASSIGN_OR_RETURN(const HostPort wanted, AddressToListenAt(options().address, gid));
  PANDO_ASSIGN_OR_RETURN(TcpListener listening, ListenTcp(wanted));
  address_ = AddressToPublish(listening.bound, gid).ToString();
  *listener = std::move(listening.socket);
  return absl::OkStatus();
}

// --- Connections.

absl::StatusOr<UniqueFd> VerbsPeerPort::Dial(const std::string& address) {
  PANDO_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  return StartTcp(parsed);
}

std::unique_ptr<HubConnection> VerbsPeerPort::NewConnection(PeerId peer, UniqueFd socket,
                                                            std::string name,
                                                            std::shared_ptr<HubLink> link,
                                                            PeerHandler* handler) {
  std::string origin = OriginOfTcp(socket.get());
  VerbsPeerHost* const host = this;
  return std::make_unique<VerbsPeerConnection>(
      peer, std::move(socket), std::move(name), std::move(origin),
      std::static_pointer_cast<VerbsPeerLink>(std::move(link)), this, host, handler);
}

void VerbsPeerPort::Refuse(int socket, const absl::Status& why) {
  std::string frame = EncodeVerbsFrame(VerbsFrameType::kError, 0, EncodeStatus(why));
  SendTcp(socket, &frame);
}

// --- Queue pairs.

absl::StatusOr<PeerPlace> VerbsPeerPort::TakePlace() {
  auto room = std::find_if(rooms_.begin(), rooms_.end(),
                           [](const auto& one) { return one->links() < PeerRoom::kLinksMax; });
  if (room == rooms_.end()) {
    PANDO_ASSIGN_OR_RETURN(std::shared_ptr<PeerRoom> another,
                           PeerRoom::Create(device_, channel_.get()));
    ibv_req_notify_cq(another->completions(), 0);
    rooms_.push_back(std::move(another));
    room = std::prev(rooms_.end());
  }
  PeerPlace place(*room);
  PANDO_RETURN_IF_ERROR((*room)->Provide());
  return place;
}

absl::StatusOr<QueuePairAddress> VerbsPeerPort::MakePair(PeerId peer) {
  Pairing pairing;
  PANDO_ASSIGN_OR_RETURN(pairing.place, TakePlace());
  PANDO_ASSIGN_OR_RETURN(pairing.pair, PeerPair::Make(*device_, *pairing.place.get()));
  const QueuePairAddress address = pairing.pair.address();
  std::lock_guard lock(mutex_);
  pairing_.insert_or_assign(peer, std::move(pairing));
  return address;
}

absl::Status VerbsPeerPort::BeginPairing(PeerId peer, const std::string& origin,
                                         const QueuePairAddress& remote) {
  bool made = false;
  {
    std::lock_guard lock(mutex_);
    made = pairing_.contains(peer);
  }
  if (!made) {
    Pairing pairing;
    PANDO_ASSIGN_OR_RETURN(pairing.place, TakePlace());
    std::lock_guard lock(mutex_);
    pairing_.insert_or_assign(peer, std::move(pairing));
  }
  return opener_->Start({peer, origin, remote});
}

ServedPairOr VerbsPeerPort::Pair(const QueuePairOpener::Request& request) {
  Pairing pairing;
  {
    std::lock_guard lock(mutex_);
    auto found = pairing_.extract(request.peer);
    if (!found) return absl::CancelledError("the connection that asked for it is gone");
    pairing = std::move(found.mapped());
  }
  return PeerPair::Connect(*device_, std::move(pairing.place), std::move(pairing.pair),
                           request.remote);
}

void VerbsPeerPort::EndPairing(PeerId peer) {
  {
    std::lock_guard lock(mutex_);
    pairing_.erase(peer);
  }
  opener_->Withdraw(peer);
}

void VerbsPeerPort::TakePaired() {
  for (QueuePairOpener::Result& result : opener_->TakeDone()) {
    absl::StatusOr<std::unique_ptr<PeerPair>> pair;
    if (result.pair.ok()) {
      pair = std::unique_ptr<PeerPair>(static_cast<PeerPair*>(result.pair->release()));
    } else {
      pair = result.pair.status();
    }
    VerbsPeerConnection* const connection = ConnectionOf(result.peer);
    if (connection == nullptr) {
      if (pair.ok()) Retire(*std::move(pair));
      continue;
    }
    if (pair.ok()) links_.emplace((*pair)->address().number, result.peer);
    const absl::Status paired = connection->OnPaired(std::move(pair));
    if (paired.ok()) {
      GoOn(connection);
    } else {
      OnClosed(connection);
    }
  }
}

void VerbsPeerPort::Retire(std::unique_ptr<PeerPair> pair) {
  links_.erase(pair->address().number);
  pair->Break();
  graveyard_.push_back(std::move(pair));
}

// --- Completions.

int VerbsPeerPort::PollRooms() {
  std::array<ibv_wc, kCompletionsPerPoll> completions;
  int total = 0;
  for (const auto& room : rooms_) {
    for (int polls = 0; polls < kPollsPerTurn; ++polls) {
      const int count = ibv_poll_cq(room->completions(), kCompletionsPerPoll, completions.data());
      for (int i = 0; i < count; ++i) OnCompletion(room.get(), completions[i]);
      total += std::max(count, 0);
      if (count < kCompletionsPerPoll) break;
    }
  }
  return total;
}

void VerbsPeerPort::Settle() {
  for (const PeerId peer : std::exchange(touched_, {})) {
    if (VerbsPeerConnection* const connection = ConnectionOf(peer)) connection->CheckWritable();
  }
  for (const PeerId peer : std::exchange(ended_, {})) {
    if (ServedLink* const connection = Find(peer)) OnClosed(connection);
  }
}

void VerbsPeerPort::EndWith(PeerId peer, const absl::Status& why) {
  ConnectionOf(peer)->End(why).IgnoreError();
  ended_.push_back(peer);
}

void VerbsPeerPort::OnCompletion(PeerRoom* room, const ibv_wc& completion) {
  const auto link = links_.find(completion.qp_num);
  const PeerId peer = link == links_.end() ? 0 : link->second;
  VerbsPeerConnection* const connection = peer == 0 ? nullptr : ConnectionOf(peer);
  const bool good = completion.status == IBV_WC_SUCCESS;
  if (connection != nullptr && (touched_.empty() || touched_.back() != peer)) {
    touched_.push_back(peer);
  }
  if (connection != nullptr && !good) {
    const bool too_long = completion.status == IBV_WC_LOC_LEN_ERR;
    EndWith(peer, too_long ? absl::DataLossError("the other compute server sent what is too long")
                           : absl::UnavailableError(DescribeCompletionStatus(completion.status)));
  }
  if (completion.wr_id == PeerRoom::kSendId) {
    if (connection != nullptr && good) connection->OnSent();
    return;
  }
  if (connection != nullptr && good) {
    const absl::Status taken = connection->OnMessage(
        room->Message(completion.wr_id, completion.byte_len),
        (completion.wc_flags & IBV_WC_WITH_IMM) != 0, ntohl(completion.imm_data));
    if (!taken.ok()) EndWith(peer, taken);
  }
  room->PostReceive(completion.wr_id);
}

void VerbsPeerPort::OnOwnEvent() {
  PeerHub::OnOwnEvent();
  TakePaired();
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
  // Asks for an event at the next completion; one that came meanwhile causes none.
  for (const auto& room : rooms_) ibv_req_notify_cq(room->completions(), 0);
  busy_ = Poll() > 0 || busy_;
}

void VerbsPeerPort::AfterTurn() {
  PeerHub::AfterTurn();
  Settle();
  if (std::exchange(busy_, false)) {
    const int64_t until_ns = RealClock().NowNs() + kPeerSpinNs;
    do {
      sched_yield();
      Poll();
    } while (RealClock().NowNs() < until_ns);
  }
  if (graveyard_.empty()) return;
  Poll();  // what they have received gives its buffers back
  graveyard_.clear();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerPort>> OpenVerbsPeers(std::shared_ptr<VerbsDevice> device,
                                                         const VerbsPeerOptions& verbs,
                                                         const PeerOptions& options) {
  return VerbsPeerPort::Open(std::move(device), verbs, options);
}

}  // namespace pando
