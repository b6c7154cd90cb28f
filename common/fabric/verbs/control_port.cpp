#include "common/fabric/verbs/control_port.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/body.h"

namespace pando {
namespace {

constexpr int kEventsMax = 64;
constexpr int kAcceptsPerEvent = 16;
constexpr int64_t kAcceptPauseNs = 100 * kMillisecondNs;
constexpr int64_t kQuietAgainNs = 100 * kMillisecondNs;  // after a loopback that failed

// Peers count from 1, and the others are above them all.
constexpr uint64_t kStopEvent = 0;
constexpr uint64_t kListenEvent = UINT64_MAX;
constexpr uint64_t kOpenedEvent = UINT64_MAX - 1;

void Nudge(int event_fd) {
  const uint64_t one = 1;
  // Fails only where the counter is at its end: then the loop has been told often enough.
  [[maybe_unused]] const ssize_t ignored = write(event_fd, &one, sizeof(one));
}

}  // namespace

ControlPort::ControlPort(const Options& options, QueuePairHost* device)
    : options_(options), device_(device), strangers_(options.strangers) {}

absl::StatusOr<std::unique_ptr<ControlPort>> ControlPort::Listen(const Options& options,
                                                                 const HostPort& address,
                                                                 QueuePairHost* device) {
  std::unique_ptr<ControlPort> port(new ControlPort(options, device));
  port->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  port->stop_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  port->opened_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!port->epoll_ || !port->stop_ || !port->opened_) {
    return absl::ErrnoToStatus(errno, "epoll_create1 or eventfd");
  }
  PANDO_ASSIGN_OR_RETURN(TcpListener listener, ListenTcp(address));
  port->listener_ = std::move(listener.socket);
  port->bound_ = std::move(listener.bound);
  return port;
}

void ControlPort::Stop() { Nudge(stop_.get()); }

absl::Status ControlPort::Watch(int operation, int fd, uint32_t events, uint64_t key) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "epoll_ctl");
}

absl::Status ControlPort::Serve(ControlHandler* handler) {
  handler_ = handler;
  opener_.emplace([this](const QueuePairAddress& remote) { return device_->OpenQueuePair(remote); },
                  [this] { Nudge(opened_.get()); });
  absl::Status status = Loop();
  CloseAll();
  return status;
}

absl::Status ControlPort::Loop() {
  PANDO_RETURN_IF_ERROR(Watch(EPOLL_CTL_ADD, stop_.get(), EPOLLIN, kStopEvent));
  PANDO_RETURN_IF_ERROR(Watch(EPOLL_CTL_ADD, opened_.get(), EPOLLIN, kOpenedEvent));
  PANDO_RETURN_IF_ERROR(Watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenEvent));
  std::array<epoll_event, kEventsMax> events;
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), kEventsMax, TimeoutMs());
    if (count < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "epoll_wait");
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kStopEvent) return absl::OkStatus();
      OnEvent(events[i].data.u64, events[i].events);
    }
    CloseLateStrangers();
    timer_ns_ = handler_->OnTimer(RealClock().NowNs());
    ReportGone();
  }
}

void ControlPort::OnEvent(uint64_t key, uint32_t events) {
  if (key == kListenEvent) return Accept();
  if (key == kOpenedEvent) return OnOpened();
  // An earlier event of the same batch may have ended the connection.
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;
  // Nothing is read while a connection is held; its end is noticed all the same.
  if (found->second->is_held() && (events & (EPOLLHUP | EPOLLERR)) != 0) return OnClosed(key);
  OnSocket(found->second.get());
}

void ControlPort::Accept() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      Welcome(std::move(socket));
      continue;
    }
    const int error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      // Said before it is looked whether anybody waits.
      pollfd waiting = {listener_.get(), POLLIN, 0};
      if (poll(&waiting, 1, 0) == 0) return;
      PANDO_LOG_LIMITED(accept_log_, WARNING)
          << "cannot accept clients now: " << absl::ErrnoToStatus(error, "accept");
      if (const std::optional<PeerId> stranger = strangers_.Evict(); stranger.has_value()) {
        TurnOut(*stranger, absl::UnavailableError(
                               "this memory server has no descriptor left for a client without an "
                               "identity: connect again"));
        continue;
      }
      // Level-triggered: without a pause this would spin until somebody leaves.
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      accept_again_ns_ = RealClock().NowNs() + kAcceptPauseNs;
    }
    if (error != EINTR && error != ECONNABORTED) return;
  }
}

void ControlPort::Welcome(UniqueFd socket) {
  TuneTcp(socket.get(), options_.silence_ms);
  const int fd = socket.get();
  const std::string name = PeerOfTcp(fd);
  absl::Status status;
  const size_t clients = connections_.size() - strangers_.size();
  if (clients >= options_.connections_max) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("server ", options_.server_id, " has ", clients,
                     " clients, as many as it takes: start it with a higher --connections_max"));
  }
  if (status.ok()) status = Watch(EPOLL_CTL_ADD, fd, EPOLLIN, last_peer_ + 1);
  if (!status.ok()) {
    PANDO_LOG_LIMITED(refused_log_, WARNING) << "client at " << name << " refused: " << status;
    std::string bytes = EncodeVerbsFrame(VerbsFrameType::kError, 0, EncodeStatus(status));
    SendTcp(fd, &bytes);
    return;
  }
  const PeerId peer = ++last_peer_;
  const int64_t hello_by_ns = RealClock().NowNs() + options_.hello_timeout_ms * kMillisecondNs;
  const std::string origin = OriginOfTcp(fd);
  VerbsConnection* const connection =
      connections_
          .emplace(peer, std::make_unique<VerbsConnection>(peer, std::move(socket), name, origin,
                                                           static_cast<VerbsHost*>(this)))
          .first->second.get();
  if (const std::optional<PeerId> evicted = strangers_.Add(peer, origin, hello_by_ns)) {
    TurnOut(*evicted, absl::UnavailableError(
                          "too many others introduce themselves at this moment: connect again"));
  }
  OnSocket(connection);  // an honest client's hello is there already
}

void ControlPort::OnSocket(VerbsConnection* connection) {
  const absl::Status status = connection->OnReady();
  if (!status.ok()) {
    if (!absl::IsCancelled(status)) {
      PANDO_LOG_LIMITED(closed_log_, WARNING)
          << "connection of " << connection->name() << " closed: " << status;
    }
    return OnClosed(connection->peer());
  }
  // A connection whose replies nobody takes is not read from either.
  uint32_t events = connection->is_held() ? 0 : uint32_t{EPOLLIN};
  if (connection->wants_write()) events = EPOLLOUT;
  if (events != connection->watched_events) {
    connection->watched_events = events;
    Watch(EPOLL_CTL_MOD, connection->socket(), events, connection->peer()).IgnoreError();
  }
  NoteIdentity(connection);
}

// After anything that may have given or taken it.
void ControlPort::NoteIdentity(VerbsConnection* connection) {
  const PeerId peer = connection->peer();
  if (connection->introduced() && handler_->IsKnown(peer)) return strangers_.Remove(peer);
  if (!strangers_.Contains(peer)) return MakeStranger(connection);  // it has left
  if (!connection->introduced() || connection->has_time) return;
  connection->has_time = true;  // once, whatever it goes on saying
  strangers_.Extend(peer, RealClock().NowNs() + options_.identity_timeout_ms * kMillisecondNs);
}

void ControlPort::MakeStranger(VerbsConnection* connection) {
  const PeerId peer = connection->peer();
  if (strangers_.Contains(peer)) return;
  const int64_t until_ns = RealClock().NowNs() + options_.identity_timeout_ms * kMillisecondNs;
  connection->has_time = true;
  if (const std::optional<PeerId> evicted = strangers_.Add(peer, connection->origin(), until_ns)) {
    TurnOut(*evicted, absl::UnavailableError("too many others have no identity, either"));
  }
}

void ControlPort::TurnOut(PeerId peer, const absl::Status& why) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  PANDO_LOG_LIMITED(late_log_, WARNING) << found->second->name() << ": connection closed: " << why;
  found->second->Refuse(why).IgnoreError();
  OnClosed(peer);
}

void ControlPort::OnClosed(PeerId peer) {
  const auto found = connections_.find(peer);
  // Who was cut off is reported once more: nothing arrives from him any more.
  const bool to_report = found->second->introduced();
  strangers_.Remove(peer);
  if (opening_.contains(peer)) opener_->Withdraw(peer);
  connections_.erase(found);
  if (to_report) leaving_.push_back(peer);
}

void ControlPort::CutOff(PeerId peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end() || found->second->cut_off()) return;
  PANDO_LOG(WARNING) << "client at " << found->second->name() << " is cut off";
  found->second->CutOff();
  if (opening_.contains(peer)) opener_->Withdraw(peer);
  leaving_.push_back(peer);
  MakeStranger(found->second.get());  // it is told, and has its time
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
  for (const PeerId peer : gone) handler_->OnPeerGone(peer);
  timer_ns_ = handler_->OnTimer(RealClock().NowNs());
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

void ControlPort::OnOpened() {
  uint64_t count;
  [[maybe_unused]] const ssize_t ignored = read(opened_.get(), &count, sizeof(count));
  for (QueuePairOpener::Result& result : opener_->TakeDone()) {
    opening_.erase(result.peer);
    if (!result.pair.ok()) OnQueuePairsClosed(1);
    const auto found = connections_.find(result.peer);
    if (found != connections_.end()) {
      found->second->OnOpened(std::move(result.pair));
      OnSocket(found->second.get());
    } else if (result.pair.ok()) {
      result.pair->reset();
      OnQueuePairsClosed(1);
    }
  }
}

void ControlPort::CloseLateStrangers() {
  const int64_t now_ns = RealClock().NowNs();
  if (accept_again_ns_ != 0 && now_ns >= accept_again_ns_) {
    if (Watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenEvent).ok()) accept_again_ns_ = 0;
  }
  while (const std::optional<PeerId> late = strangers_.TakeLate(now_ns)) {
    const auto found = connections_.find(*late);
    // It may have got an identity in another way than by what it sent.
    if (found->second->introduced() && handler_->IsKnown(*late)) continue;
    TurnOut(*late,
            absl::UnavailableError(found->second->introduced()
                                       ? "without an identity for too long: connect again, and join"
                                       : "did not introduce itself in time: connect again"));
  }
}

int ControlPort::TimeoutMs() const {
  int64_t next_ns = std::min(timer_ns_, accept_again_ns_ != 0 ? accept_again_ns_ : kNeverNs);
  next_ns = std::min(next_ns, strangers_.next_ns());
  // Those whose queue pair is being connected wait for kOpenedEvent.
  const auto can_report = [this](PeerId peer) { return !opening_.contains(peer); };
  if (std::any_of(leaving_.begin(), leaving_.end(), can_report)) {
    next_ns = std::min(next_ns, quiet_again_ns_);
  }
  if (next_ns == kNeverNs) return -1;
  const int64_t left_ns = next_ns - RealClock().NowNs();
  if (left_ns <= 0) return 0;
  return static_cast<int>(std::min<int64_t>(left_ns / kMillisecondNs + 1, INT_MAX));
}

void ControlPort::CloseAll() {
  opener_.reset();  // joins its threads
  // First, so that no verb arrives any more when clients learn that the server is gone.
  for (const auto& [peer, connection] : connections_) connection->DestroyQueuePairs();
  connections_.clear();
  listener_.Reset();
}

}  // namespace pando
