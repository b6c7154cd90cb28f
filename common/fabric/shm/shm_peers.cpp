#include "common/fabric/shm/shm_peers.h"

#include <poll.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/body.h"
#include "common/fabric/link/peer_hello.h"
#include "common/fabric/link/peer_hub.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/unix_socket.h"

namespace pando {
namespace {

// Then others get their turn.
constexpr int kMessagesPerEvent = 32;

// Hellos and refusals fit a message.
using MessageBuffer = std::array<std::byte, kPeerMessageBytesMax>;

std::string EncodePeerFrame(ShmFrameType type, const PeerIdentity& identity) {
  return EncodeShmFrame(type, 0, EncodeBody(MakePeerHello(identity)));
}

class ShmPeerLink final : public HubLink {
 public:
  using HubLink::HubLink;
  void set_socket(int socket) {
    std::lock_guard lock(mutex_);
    socket_ = socket;
  }

 private:
  SendResult Transmit(std::string_view message) override { return SendMessage(socket_, message); }
  bool HasRoom() const override {
    pollfd entry = {socket_, POLLOUT, 0};
    return poll(&entry, 1, 0) == 1 && (entry.revents & POLLOUT) != 0;
  }

  int socket_ = -1;  // the connection's
};

class ShmPeerConnection final : public HubConnection {
 public:
  ShmPeerConnection(PeerId peer, UniqueFd socket, const std::string& name,
                    std::shared_ptr<HubLink> link, PeerHub* hub, PeerHandler* handler,
                    MessageBuffer* buffer)
      : HubConnection(peer, std::move(socket), name, name, std::move(link), hub, handler),
        buffer_(*buffer) {}

 private:
  absl::Status Receive() override;
  void SendError(const absl::Status& status) override {
    SendMessage(socket(), EncodeShmFrame(ShmFrameType::kError, 0, EncodeStatus(status)));
  }
  absl::Status Greet(std::string_view bytes);

  MessageBuffer& buffer_;
};

absl::Status ShmPeerConnection::Receive() {
  for (int i = 0; i < kMessagesPerEvent && !is_closing(); ++i) {
    size_t bytes = 0;
    switch (ReceiveMessage(socket(), buffer_, &bytes)) {
      case ReceiveResult::kNothing:
        return absl::OkStatus();
      case ReceiveResult::kGone:
        return EndedByOther();
      case ReceiveResult::kTooLong:
        return Refuse(absl::DataLossError(absl::StrCat("the other compute server sent more than ",
                                                       kPeerMessageBytesMax, " bytes at once")));
      case ReceiveResult::kMessage:
        break;
    }
    const std::string_view message(reinterpret_cast<const char*>(buffer_.data()), bytes);
    if (introduced()) {
      Deliver(message);
    } else {
      PANDO_RETURN_IF_ERROR(Greet(message));
    }
  }
  return absl::OkStatus();
}

absl::Status ShmPeerConnection::Greet(std::string_view bytes) {
  const absl::StatusOr<ShmFrame> frame = ParseShmFrame(bytes);
  if (!frame.ok()) return Refuse(frame.status());
  if (dialled() && frame->type == ShmFrameType::kError) {
    return End(CheckRefusal(ParseStatus(frame->body)));
  }
  const ShmFrameType wanted = dialled() ? ShmFrameType::kPeerHelloReply : ShmFrameType::kPeerHello;
  if (frame->type != wanted) {
    return Refuse(absl::DataLossError(
        dialled() ? "the answer to the hello is something else"
                  : "no hello of a compute server: this is no memory server's socket"));
  }
  const absl::StatusOr<PeerHello> hello = ParsePeerHello(frame->body);
  if (!hello.ok()) return Refuse(hello.status());
  if (!dialled()) {
    const std::string reply =
        EncodePeerFrame(ShmFrameType::kPeerHelloReply, hub()->options().identity);
    // An empty socket takes one small message.
    if (SendMessage(socket(), reply) != SendResult::kSent) return EndedByOther();
  }
  return Opened(hello->identity());
}

class ShmPeerPort final : public PeerHub {
 public:
  static absl::StatusOr<std::unique_ptr<PeerPort>> Open(const PeerOptions& options);
  explicit ShmPeerPort(const PeerOptions& options) : PeerHub(options) {}
  ~ShmPeerPort() override {
    file_.Remove();
    Shutdown();
  }

  const std::string& address() const override { return address_; }

 private:
  absl::StatusOr<UniqueFd> Dial(const std::string& address) override;
  std::shared_ptr<HubLink> NewLink() override { return std::make_shared<ShmPeerLink>(this); }
  std::unique_ptr<HubConnection> NewConnection(PeerId peer, UniqueFd socket, std::string name,
                                               std::shared_ptr<HubLink> link,
                                               PeerHandler* handler) override {
    static_cast<ShmPeerLink&>(*link).set_socket(socket.get());
    return std::make_unique<ShmPeerConnection>(peer, std::move(socket), name, std::move(link), this,
                                               handler, &buffer_);
  }
  absl::StatusOr<std::string> Identify(int socket) override {
    PANDO_ASSIGN_OR_RETURN(const PeerProcess process, IdentifyPeer(socket));
    return absl::StrCat("process ", process.pid);
  }
  void Refuse(int socket, const absl::Status& why) override {
    SendMessage(socket, EncodeShmFrame(ShmFrameType::kError, 0, EncodeStatus(why)));
  }

  std::string address_;
  SocketFile file_;
  MessageBuffer buffer_;  // the hub's thread
};

absl::StatusOr<std::unique_ptr<PeerPort>> ShmPeerPort::Open(const PeerOptions& options) {
  PANDO_RETURN_IF_ERROR(CheckOptions(options));
  auto port = std::make_unique<ShmPeerPort>(options);
  UnixListener listener;
  if (options.acceptor != nullptr) {
    PANDO_ASSIGN_OR_RETURN(listener, ListenAt(options.address));
    port->address_ = options.address;
    port->file_ = SocketFile(options.address, std::move(listener.lock), LockFile::kGoes);
  }
  PANDO_RETURN_IF_ERROR(port->Start(std::move(listener.socket)));
  return port;
}

absl::StatusOr<UniqueFd> ShmPeerPort::Dial(const std::string& address) {
  PANDO_ASSIGN_OR_RETURN(UniqueFd socket, ConnectTo(address, /*deadline_ns=*/0));
  PANDO_RETURN_IF_ERROR(IdentifyPeer(socket.get()).status());
  const std::string hello = EncodePeerFrame(ShmFrameType::kPeerHello, options().identity);
  // A new socket takes it; whether anybody is there to answer is seen later.
  if (SendMessage(socket.get(), hello) == SendResult::kFull) {
    return absl::ResourceExhaustedError("the kernel has no memory for a message");
  }
  return socket;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerPort>> OpenShmPeers(const PeerOptions& options) {
  return ShmPeerPort::Open(options);
}

}  // namespace pando
