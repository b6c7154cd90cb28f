#include "common/fabric/link/link_server.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr int kEventsMax = 64;
constexpr int kAcceptsPerEvent = 16;
constexpr int64_t kAcceptPauseNs = 100 * kMillisecondNs;

// What an epoll event is about, in its 64 bits. Peers count from 1, so that their keys are above
// the fixed ones.
enum class EventKind : uint64_t { kSocket = 0, kExit = 1 };
constexpr uint64_t kStopEvent = 0;
constexpr uint64_t kListenEvent = 1;
constexpr uint64_t kOwnEvent = UINT64_MAX;
uint64_t EventKey(PeerId peer, EventKind kind) { return peer << 1 | static_cast<uint64_t>(kind); }

}  // namespace

absl::Status LinkServer::Open(UniqueFd listener) {
  listener_ = std::move(listener);
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  stop_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (epoll_ && stop_) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "epoll_create1 or eventfd");
}

void LinkServer::Stop() {
  const uint64_t one = 1;
  // Fails only where the counter is at its end: then the loop has been told often enough.
  [[maybe_unused]] const ssize_t ignored = write(stop_.get(), &one, sizeof(one));
}

// --- The loop.

absl::Status LinkServer::Watch(int operation, int fd, uint32_t events, uint64_t key) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "epoll_ctl");
}

absl::Status LinkServer::WatchOwn(int fd) { return Watch(EPOLL_CTL_ADD, fd, EPOLLIN, kOwnEvent); }

absl::Status LinkServer::Run(ControlHandler* handler) {
  handler_ = handler;
  PANDO_RETURN_IF_ERROR(Watch(EPOLL_CTL_ADD, stop_.get(), EPOLLIN, kStopEvent));
  if (listener_) {
    PANDO_RETURN_IF_ERROR(Watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenEvent));
  }
  std::array<epoll_event, kEventsMax> events;
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), kEventsMax, TimeoutMs());
    if (count < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "epoll_wait");
    const absl::flat_hash_set<PeerId> with_more = std::exchange(again_, {});
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kStopEvent) return absl::OkStatus();
      Dispatch(events[i].data.u64, events[i].events);
    }
    GoOnWith(with_more);
    CloseLateStrangers();
    RunTimer();
    AfterTurn();
  }
}

void LinkServer::Dispatch(uint64_t key, uint32_t events) {
  if (key == kListenEvent) return Accept();
  if (key == kOwnEvent) return OnOwnEvent();
  // An earlier event of the same batch may have ended the connection.
  ServedLink* const connection = Find(key >> 1);
  if (connection == nullptr) return;
  if (static_cast<EventKind>(key & 1) == EventKind::kExit) return OnExit(connection);
  if (!connection->is_open()) return;
  // Nothing is read while a connection is held; its end is noticed all the same.
  const bool ended = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (connection->is_held() && ended) return OnClosed(connection);
  GoOn(connection);
}

void LinkServer::GoOnWith(const absl::flat_hash_set<PeerId>& peers) {
  for (const PeerId peer : peers) {
    ServedLink* const connection = Find(peer);
    if (connection != nullptr && connection->is_open() && !again_.contains(peer)) GoOn(connection);
  }
}

int LinkServer::TimeoutMs() const {
  if (!again_.empty()) return 0;
  int64_t next_ns = std::min(timer_ns_, accept_again_ns_ != 0 ? accept_again_ns_ : kNeverNs);
  next_ns = std::min({next_ns, strangers_.next_ns(), NextTurnNs()});
  if (next_ns == kNeverNs) return -1;
  const int64_t left_ns = next_ns - RealClock().NowNs();
  if (left_ns <= 0) return 0;
  return static_cast<int>(std::min<int64_t>(left_ns / kMillisecondNs + 1, INT_MAX));
}

// --- Those who come.

void LinkServer::Accept() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    UniqueFd socket = AboveStandard(
        UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    if (socket) {
      Welcome(std::move(socket));
      continue;
    }
    const int error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      // Said before it is looked whether anybody waits.
      pollfd waiting = {listener_.get(), POLLIN, 0};
      if (poll(&waiting, 1, 0) == 0) return;
      if (EvictForDescriptor() || AcceptWithout(error)) continue;
      PauseAccepting(error);
    }
    if (error != EINTR && error != ECONNABORTED) return;
  }
}

void LinkServer::PauseAccepting(int error) {
  PANDO_LOG_LIMITED(accept_log_, WARNING)
      << "cannot accept clients now: " << absl::ErrnoToStatus(error, "accept");
  // Level-triggered: without a pause this would spin until somebody leaves.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
  accept_again_ns_ = RealClock().NowNs() + kAcceptPauseNs;
}

bool LinkServer::EvictForDescriptor() {
  const std::optional<PeerId> stranger = strangers_.Evict();
  if (!stranger.has_value()) return false;
  Reject(*stranger, absl::UnavailableError(
                        "this server has no descriptor left for a client without an identity: "
                        "connect again"));
  return true;
}

void LinkServer::LogRefused(const std::string& who, const absl::Status& why) {
  PANDO_LOG_LIMITED(refused_log_, WARNING) << who << " refused: " << why;
}

absl::Status LinkServer::CheckRoom() const {
  // Who has ended and is kept may never have been a client.
  const auto ended = std::count_if(connections_.begin(), connections_.end(), [](const auto& entry) {
    return !entry.second->is_open() && !entry.second->had_identity;
  });
  const size_t clients = connections_.size() - strangers_.size() - static_cast<size_t>(ended);
  return clients < limits_.connections_max ? absl::OkStatus() : FullError(clients);
}

absl::Status LinkServer::FullError(size_t clients) const {
  return absl::ResourceExhaustedError(
      absl::StrCat("server ", limits_.server_id, " has ", clients,
                   " clients, as many as it takes: start it with a higher --connections_max"));
}

absl::Status LinkServer::WatchConnection(const ServedLink& connection) {
  const PeerId peer = connection.peer();
  PANDO_RETURN_IF_ERROR(
      Watch(EPOLL_CTL_ADD, connection.socket(), EPOLLIN, EventKey(peer, EventKind::kSocket)));
  if (connection.exit_descriptor() < 0) return absl::OkStatus();
  return Watch(EPOLL_CTL_ADD, connection.exit_descriptor(), EPOLLIN,
               EventKey(peer, EventKind::kExit));
}

void LinkServer::Admit(std::unique_ptr<ServedLink> connection) {
  absl::Status status = CheckRoom();
  if (status.ok()) status = WatchConnection(*connection);
  if (!status.ok()) {
    LogRefused(absl::StrCat("client at ", connection->name()), status);
    connection->Refuse(status).IgnoreError();
    return;
  }
  ServedLink* const admitted = connection.get();
  const PeerId peer = admitted->peer();
  connections_.emplace(peer, std::move(connection));
  if (admitted->is_own()) return GoOn(admitted);
  const int64_t hello_by_ns = RealClock().NowNs() + limits_.hello_timeout_ms * kMillisecondNs;
  if (const auto evicted = strangers_.Add(peer, admitted->origin(), hello_by_ns)) {
    Reject(*evicted, absl::UnavailableError(
                         "too many others introduce themselves at this moment: connect again"));
  }
  GoOn(admitted);  // an honest client's hello is there already
}

// --- Those who are there.

ServedLink* LinkServer::Find(PeerId peer) const {
  const auto found = connections_.find(peer);
  return found == connections_.end() ? nullptr : found->second.get();
}

void LinkServer::GoOn(ServedLink* connection) {
  const absl::Status status = connection->OnReady();
  if (!status.ok()) {
    if (!absl::IsCancelled(status)) {
      PANDO_LOG_LIMITED(closed_log_, WARNING)
          << "connection of " << connection->name() << " closed: " << status;
    }
    return OnClosed(connection);
  }
  // A connection whose replies nobody takes is not read from either. Of one that is held the end
  // alone is looked for: its client may close it and say nothing else.
  uint32_t events = connection->is_held() ? uint32_t{EPOLLRDHUP} : uint32_t{EPOLLIN};
  if (connection->wants_write()) {
    const bool listens = connection->is_held() || connection->reads_while_writing();
    events = listens ? events | EPOLLOUT : uint32_t{EPOLLOUT};
  }
  if (events != connection->watched_events) {
    connection->watched_events = events;
    Watch(EPOLL_CTL_MOD, connection->socket(), events,
          EventKey(connection->peer(), EventKind::kSocket))
        .IgnoreError();
  }
  if (connection->has_more()) again_.insert(connection->peer());
  NoteIdentity(connection);
}

// After anything that may have given or taken it.
void LinkServer::NoteIdentity(ServedLink* connection) {
  if (connection->is_own()) return;
  const PeerId peer = connection->peer();
  if (connection->introduced() && handler_->IsKnown(peer)) {
    connection->had_identity = true;
    return strangers_.Remove(peer);
  }
  if (!strangers_.Contains(peer)) return MakeStranger(connection);  // it has left
  if (!connection->introduced() || connection->has_time) return;
  connection->has_time = true;  // once, whatever it goes on saying
  strangers_.Extend(peer, RealClock().NowNs() + limits_.identity_timeout_ms * kMillisecondNs);
}

void LinkServer::MakeStranger(ServedLink* connection) {
  const PeerId peer = connection->peer();
  if (strangers_.Contains(peer)) return;
  const int64_t until_ns = RealClock().NowNs() + limits_.identity_timeout_ms * kMillisecondNs;
  connection->has_time = true;
  if (const auto evicted = strangers_.Add(peer, connection->origin(), until_ns)) {
    Reject(*evicted, absl::UnavailableError("too many others have no identity, either"));
  }
}

void LinkServer::Reject(PeerId peer, const absl::Status& why) {
  ServedLink* const connection = Find(peer);
  if (connection == nullptr || !connection->is_open()) return;
  PANDO_LOG_LIMITED(late_log_, WARNING) << connection->name() << ": connection closed: " << why;
  connection->Refuse(why).IgnoreError();
  OnClosed(connection);
}

void LinkServer::CloseLateStrangers() {
  const int64_t now_ns = RealClock().NowNs();
  if (accept_again_ns_ != 0 && now_ns >= accept_again_ns_ &&
      Watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenEvent).ok()) {
    accept_again_ns_ = 0;
  }
  while (const std::optional<PeerId> late = strangers_.TakeLate(now_ns)) {
    ServedLink* const connection = Find(*late);
    const bool introduced = connection->introduced();
    // It may have got an identity in another way than by what it sent.
    if (introduced && handler_->IsKnown(*late)) {
      connection->had_identity = true;
      continue;
    }
    Reject(*late, absl::UnavailableError(
                      introduced ? "without an identity for too long: connect again, and join"
                                 : "did not introduce itself in time: connect again"));
  }
}

void LinkServer::Unwatch(ServedLink* connection) {
  strangers_.Remove(connection->peer());
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->socket(), nullptr);
}

void LinkServer::Erase(PeerId peer) {
  strangers_.Remove(peer);
  connections_.erase(peer);
}

}  // namespace pando
