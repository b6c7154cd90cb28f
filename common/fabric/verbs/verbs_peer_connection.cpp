#include "common/fabric/verbs/verbs_peer_connection.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/fabric/body.h"
#include "common/fabric/verbs/tcp_socket.h"

namespace pando {
namespace {

// Then others get their turn.
constexpr int kPeerReadsPerEvent = 4;

}  // namespace

// --- What users send with.

void VerbsPeerLink::Start(PeerPair* pair) {
  std::lock_guard lock(mutex_);
  pair_ = pair;
}

SendResult VerbsPeerLink::Transmit(std::string_view message) {
  if (!HasRoom()) return SendResult::kFull;
  const SendResult sent = Post(message);
  if (sent == SendResult::kSent) --credit_;
  return sent;
}

SendResult VerbsPeerLink::Post(std::string_view message) {
  const auto slot = static_cast<uint32_t>(posted_ % kPeerSlots);
  const int error = pair_->Post(slot, message, to_give_);
  if (error == ENOMEM || error == EAGAIN) return SendResult::kFull;
  if (error != 0) return SendResult::kGone;
  allowed_ += std::exchange(to_give_, 0);
  ++posted_;
  ++unsent_;
  return SendResult::kSent;
}

void VerbsPeerLink::OnSent() {
  std::lock_guard lock(mutex_);
  --unsent_;
  OfferCredit();
}

absl::Status VerbsPeerLink::OnReceived(size_t bytes, uint32_t credit) {
  std::lock_guard lock(mutex_);
  if (credit > kPeerCredits - credit_) {
    return absl::DataLossError("the other compute server gives credit for what was never sent");
  }
  credit_ += credit;
  if (bytes == 0) {
    if (credit > 0) return absl::OkStatus();
    return absl::DataLossError("the other compute server sent a message without bytes");
  }
  if (allowed_ == 0) {
    return absl::DataLossError("the other compute server sends more than it may");
  }
  --allowed_;
  return absl::OkStatus();
}

void VerbsPeerLink::GiveCredit() {
  std::lock_guard lock(mutex_);
  ++to_give_;
  OfferCredit();
}

void VerbsPeerLink::OfferCredit() {
  // Less goes with the next message, or with what becomes of more; without a slot, when one is
  // free.
  if (2 * to_give_ >= kPeerCredits && pair_ != nullptr && unsent_ < kPeerSlots) Post("");
}

// --- The connection.

VerbsPeerConnection::VerbsPeerConnection(PeerId peer, UniqueFd socket, std::string name,
                                         std::string origin, std::shared_ptr<VerbsPeerLink> link,
                                         PeerHub* hub, VerbsPeerHost* host, PeerHandler* handler)
    : HubConnection(peer, std::move(socket), std::move(name), std::move(origin), link, hub,
                    handler),
      link_(std::move(link)),
      host_(host),
      connecting_(handler != nullptr),
      hello_(MakePeerHello(hub->options().identity)) {
  hello_.compatible = host_->secret() != nullptr ? kVerbsCompatibleProof : 0;
  if (!connecting_) TuneTcp(ServedLink::socket(), host_->silence_ms());
}

VerbsPeerConnection::~VerbsPeerConnection() {
  Detach();
  if (state_ == State::kPairing || state_ == State::kOpen) host_->EndPairing(peer());
  if (pair_ != nullptr) host_->Retire(std::move(pair_));
}

absl::Status VerbsPeerConnection::FinishConnecting() {
  const absl::StatusOr<bool> connected = IsConnectedTcp(socket());
  if (!connected.ok()) {
    return End(Annotate(connected.status(),
                        absl::StrCat("no compute server answers at ", ServedLink::name())));
  }
  if (!*connected) return absl::OkStatus();
  connecting_ = false;
  TuneTcp(socket(), host_->silence_ms());
  Say(VerbsFrameType::kPeerHello, EncodeBody(hello_));
  return absl::OkStatus();
}

void VerbsPeerConnection::Say(VerbsFrameType type, std::string_view body) {
  out_ += EncodeVerbsFrame(type, 0, body);
}

absl::Status VerbsPeerConnection::Flush() {
  if (out_.empty() || SendTcp(socket(), &out_) != TcpResult::kGone) return absl::OkStatus();
  // Its reason may be there to be read.
  out_.clear();
  return absl::OkStatus();
}

void VerbsPeerConnection::SendError(const absl::Status& status) {
  Say(VerbsFrameType::kError, EncodeStatus(status));
  SendTcp(socket(), &out_);
}

absl::Status VerbsPeerConnection::Receive() {
  if (connecting_) PANDO_RETURN_IF_ERROR(FinishConnecting());
  if (connecting_) return absl::OkStatus();
  PANDO_RETURN_IF_ERROR(Flush());
  for (int reads = 0; !is_closing();) {
    absl::StatusOr<std::optional<VerbsFrame>> frame = reader_.Next(kVerbsHelloBytesMax);
    if (!frame.ok()) return Refuse(frame.status());
    if (frame->has_value()) {
      PANDO_RETURN_IF_ERROR(Handle(**frame));
      PANDO_RETURN_IF_ERROR(Flush());
      continue;
    }
    if (reads++ == kPeerReadsPerEvent) return absl::OkStatus();
    std::string bytes;
    switch (ReceiveTcp(socket(), &bytes)) {
      case TcpResult::kNothing:
        return absl::OkStatus();
      case TcpResult::kGone:
        host_->PollMessages();  // what it sent before that has come before it
        return EndedByOther();
      case TcpResult::kSome:
        reader_.Append(bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status VerbsPeerConnection::Refused(const VerbsFrame& frame) {
  return End(CheckRefusal(ParseStatus(frame.body)));
}

absl::Status VerbsPeerConnection::Handle(const VerbsFrame& frame) {
  if (dialled() && frame.type == VerbsFrameType::kError) return Refused(frame);
  switch (state_) {
    case State::kHello:
      return Greet(frame);
    case State::kProof:
      return Prove(frame);
    case State::kOpen:
      return HandleAddress(frame);
    case State::kReady:
      if (frame.type != VerbsFrameType::kPeerReady) break;
      state_ = State::kNothing;
      return early_ ? absl::OkStatus() : Opened(other_);
    case State::kPairing:
    case State::kNothing:
      break;
  }
  return Refuse(absl::DataLossError(absl::StrCat("a compute server does not send frames of type ",
                                                 static_cast<int>(frame.type), " now")));
}

absl::Status VerbsPeerConnection::Greet(const VerbsFrame& frame) {
  const auto wanted = dialled() ? VerbsFrameType::kPeerHelloReply : VerbsFrameType::kPeerHello;
  if (frame.type != wanted) {
    return Refuse(absl::DataLossError(
        dialled() ? "the answer to the hello is something else"
                  : "no hello of a compute server: this is no memory server's port"));
  }
  const absl::StatusOr<PeerHello> hello = ParsePeerHello(frame.body);
  if (!hello.ok()) return Refuse(hello.status());
  other_ = hello->identity();
  const std::string own = EncodeBody(hello_);
  if (!dialled()) Say(VerbsFrameType::kPeerHelloReply, own);
  const bool theirs = (hello->compatible & kVerbsCompatibleProof) != 0;
  if (theirs != (host_->secret() != nullptr)) {
    return Refuse(absl::PermissionDeniedError(
        theirs != dialled()
            ? "the compute server that listens was given no secret, and the other was"
            : "the cluster has a secret, and the connecting program was given none: "
              "--secret_file"));
  }
  if (host_->secret() == nullptr) return Proved();
  state_ = State::kProof;
  if (dialled()) {
    client_proof_.emplace(host_->secret(), Handshakes{own, frame.body});
    Say(VerbsFrameType::kAuth, client_proof_->Hello());
  } else {
    server_proof_.emplace(host_->secret(), Handshakes{frame.body, own});
  }
  return absl::OkStatus();
}

absl::Status VerbsPeerConnection::Prove(const VerbsFrame& frame) {
  if (frame.type != VerbsFrameType::kAuth) {
    return Refuse(absl::PermissionDeniedError(
        "the cluster has a secret, and the other side does not prove that it knows it"));
  }
  std::string token;
  const absl::Status status = dialled() ? client_proof_->Handle(frame.body, &token)
                                        : server_proof_->Handle(frame.body, &token);
  if (!token.empty()) Say(VerbsFrameType::kAuth, token);
  if (!status.ok()) {
    PANDO_RETURN_IF_ERROR(Flush());  // it says why
    return Refuse(status);
  }
  const bool done = dialled() ? client_proof_->done() : server_proof_->done();
  return done ? Proved() : absl::OkStatus();
}

absl::Status VerbsPeerConnection::Proved() {
  state_ = State::kOpen;
  if (!dialled()) return absl::OkStatus();
  const absl::StatusOr<QueuePairAddress> address = host_->MakePair(peer());
  if (!address.ok()) return End(address.status());
  Say(VerbsFrameType::kPeerOpen, EncodeBody(*address));
  return absl::OkStatus();
}

absl::Status VerbsPeerConnection::HandleAddress(const VerbsFrame& frame) {
  const auto wanted = dialled() ? VerbsFrameType::kPeerOpenReply : VerbsFrameType::kPeerOpen;
  if (frame.type != wanted) {
    return Refuse(absl::DataLossError("the address of a queue pair should come now"));
  }
  const auto remote = ParseBody<QueuePairAddress>(frame.body, "the address of a queue pair");
  if (!remote.ok()) return Refuse(remote.status());
  const absl::Status checked = CheckQueuePairAddress(*remote);
  if (!checked.ok()) return Refuse(checked);
  state_ = State::kPairing;
  const absl::Status begun = host_->BeginPairing(peer(), OriginOfTcp(socket()), *remote);
  return begun.ok() ? begun : Refuse(begun);
}

absl::Status VerbsPeerConnection::OnPaired(absl::StatusOr<std::unique_ptr<PeerPair>> pair) {
  if (!pair.ok()) return Refuse(pair.status());
  pair_ = *std::move(pair);
  link_->Start(pair_.get());
  if (dialled()) {
    state_ = State::kNothing;
    Say(VerbsFrameType::kPeerReady, "");
    PANDO_RETURN_IF_ERROR(Flush());
    return Opened(other_);
  }
  state_ = State::kReady;
  Say(VerbsFrameType::kPeerOpenReply, EncodeBody(pair_->address()));
  return Flush();
}

absl::Status VerbsPeerConnection::OnMessage(std::string_view message, bool has_credit,
                                            uint32_t credit) {
  if (has_ended()) return absl::OkStatus();
  // By another way than the other side's word that it is ready, it may be here before that.
  if (!introduced() && state_ == State::kReady) {
    early_ = true;
    PANDO_RETURN_IF_ERROR(Opened(other_));
  }
  const absl::Status status =
      has_credit ? link_->OnReceived(message.size(), credit)
                 : absl::DataLossError("the other compute server sends what is no message");
  if (!status.ok()) return End(status);
  if (message.empty()) return absl::OkStatus();
  Deliver(message);
  link_->GiveCredit();
  return absl::OkStatus();
}

}  // namespace pando
