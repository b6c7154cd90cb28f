#include "common/fabric/verbs/control_port.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr int64_t kQuietAgainNs = 100 * kMillisecondNs;  // after a loopback that failed

void Nudge(int event_fd) {
  const uint64_t one = 1;
  // Fails only where the counter is at its end: then the loop has been told often enough.
  [[maybe_unused]] const ssize_t ignored = write(event_fd, &one, sizeof(one));
}

}  // namespace

ControlPort::ControlPort(const Options& options, QueuePairHost* device)
    : LinkServer({.server_id = options.server_id,
                  .connections_max = options.connections_max,
                  .hello_timeout_ms = options.hello_timeout_ms,
                  .identity_timeout_ms = options.identity_timeout_ms,
                  .strangers = options.strangers}),
      options_(options),
      device_(device) {}

absl::StatusOr<std::unique_ptr<ControlPort>> ControlPort::Listen(const Options& options,
                                                                 const HostPort& address,
                                                                 QueuePairHost* device) {
  std::unique_ptr<ControlPort> port(new ControlPort(options, device));
  port->opened_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!port->opened_) return absl::ErrnoToStatus(errno, "eventfd");
  PANDO_ASSIGN_OR_RETURN(TcpListener listener, ListenTcp(address));
  port->bound_ = std::move(listener.bound);
  PANDO_RETURN_IF_ERROR(port->Open(std::move(listener.socket)));
  return port;
}

absl::Status ControlPort::Serve(ControlHandler* handler) {
  opener_.emplace([this](const auto& request) { return device_->OpenQueuePair(request.remote); },
                  [this] { Nudge(opened_.get()); });
  absl::Status status = WatchOwn(opened_.get());
  if (status.ok()) status = Run(handler);
  Close();
  return status;
}

void ControlPort::Welcome(UniqueFd socket) {
  TuneTcp(socket.get(), options_.silence_ms);
  const int fd = socket.get();
  Admit(std::make_unique<VerbsConnection>(NextPeer(), std::move(socket), PeerOfTcp(fd),
                                          OriginOfTcp(fd), static_cast<VerbsHost*>(this)));
}

void ControlPort::OnClosed(ServedLink* connection) {
  const PeerId peer = connection->peer();
  // A client that was cut off is reported once more: nothing arrives from it any more.
  const bool to_report = connection->introduced();
  if (opening_.contains(peer)) opener_->Withdraw(peer);
  Erase(peer);
  if (to_report) leaving_.push_back(peer);
}

bool ControlPort::CutOff(PeerId peer) {
  VerbsConnection* const connection = ConnectionOf(peer);
  if (connection == nullptr) return false;
  if (connection->cut_off()) return true;
  PANDO_LOG(WARNING) << "client at " << connection->name() << " is cut off";
  connection->CutOff();
  if (opening_.contains(peer)) opener_->Withdraw(peer);
  leaving_.push_back(peer);
  MakeStranger(connection);  // it is told, and has its time
  return true;
}

void ControlPort::ReportGone() {
  if (leaving_.empty() || RealClock().NowNs() < quiet_again_ns_) return;
  const auto later = std::partition(leaving_.begin(), leaving_.end(),
                                    [this](PeerId peer) { return !opening_.contains(peer); });
  if (later == leaving_.begin()) return;
  const absl::Status quiet = AwaitQuiet();
  if (!quiet.ok()) {
    PANDO_LOG_LIMITED(quiet_log_, ERROR)
        << "whether clients that left have anything in flight is not known: " << quiet;
    return;
  }
  const std::vector<PeerId> gone(leaving_.begin(), later);
  leaving_.erase(leaving_.begin(), later);
  for (const PeerId peer : gone) handler()->OnPeerGone(peer);
  RunTimer();
}

absl::Status ControlPort::AwaitQuiet() {
  // A device that is ill takes its time to say so: others would wait with us.
  if (RealClock().NowNs() < quiet_again_ns_) {
    return absl::UnavailableError("the memory server's own device does not work at the moment");
  }
  absl::Status status = device_->AwaitQuiet();
  quiet_again_ns_ = status.ok() ? 0 : RealClock().NowNs() + kQuietAgainNs;
  return status;
}

absl::Status ControlPort::BeginOpen(const VerbsConnection& connection,
                                    const QueuePairAddress& remote) {
  if (queue_pairs() >= options_.endpoints_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "server ", options_.server_id, " has ", queue_pairs(), " queue pairs (endpoints_max)"));
  }
  PANDO_RETURN_IF_ERROR(CheckQueuePairAddress(remote));
  PANDO_RETURN_IF_ERROR(opener_->Start({connection.peer(), connection.origin(), remote}));
  queue_pairs_.fetch_add(1, std::memory_order_acq_rel);
  opening_.insert(connection.peer());
  return absl::OkStatus();
}

void ControlPort::OnOwnEvent() {
  uint64_t count;
  [[maybe_unused]] const ssize_t ignored = read(opened_.get(), &count, sizeof(count));
  for (QueuePairOpener::Result& result : opener_->TakeDone()) {
    opening_.erase(result.peer);
    if (!result.pair.ok()) OnQueuePairsClosed(1);
    VerbsConnection* const connection = ConnectionOf(result.peer);
    if (connection != nullptr) {
      connection->OnOpened(std::move(result.pair));
      GoOn(connection);
    } else if (result.pair.ok()) {
      result.pair->reset();
      OnQueuePairsClosed(1);
    }
  }
}

int64_t ControlPort::NextTurnNs() const {
  // Those whose queue pair is being connected wait for OnOwnEvent().
  const auto can_report = [this](PeerId peer) { return !opening_.contains(peer); };
  return std::any_of(leaving_.begin(), leaving_.end(), can_report) ? quiet_again_ns_ : kNeverNs;
}

void ControlPort::Close() {
  opener_.reset();  // joins its threads
  // First, so that no verb arrives any more when clients learn that the server is gone.
  ForEach([](ServedLink* link) { static_cast<VerbsConnection*>(link)->DestroyQueuePairs(); });
  CloseAll();
}

}  // namespace pando
