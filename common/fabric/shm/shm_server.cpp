#include "common/fabric/shm/shm_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/rate_limited_log.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/fabric/body.h"
#include "common/fabric/shm/shm_connection.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_region.h"
#include "common/fabric/shm/slot_table.h"
#include "common/fabric/shm/unix_socket.h"
#include "common/fabric/strangers.h"

namespace pando {
namespace {

constexpr int kEventsMax = 64;
constexpr int kAcceptsPerEvent = 16;
constexpr int64_t kAcceptPauseNs = 100 * kMillisecondNs;
constexpr size_t kStrangersMax = 512;
constexpr size_t kStrangersOfProcessMax = 256;

std::string OriginOf(const ShmConnection& connection) {
  return absl::StrCat("process ", connection.pid());
}

// What an epoll event is about, in its 64 bits: peers count from 1, so their keys are above the two
// fixed ones.
enum class EventKind : uint64_t { kSocket = 0, kProcess = 1 };
constexpr uint64_t kStopEvent = 0;
constexpr uint64_t kListenEvent = 1;
uint64_t EventKey(PeerId peer, EventKind kind) { return peer << 1 | static_cast<uint64_t>(kind); }

UniqueFd OpenSpare() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

class ShmServerImpl final : public ShmServer {
 public:
  ShmServerImpl(const ShmServerOptions& options, ShmRegion region, UnixListener listener,
                UniqueFd epoll, UniqueFd stop, UniqueFd spare)
      : options_(options),
        region_(std::move(region)),
        slots_(&region_),
        listener_(std::move(listener.socket)),
        path_lock_(std::move(listener.lock)),
        epoll_(std::move(epoll)),
        stop_(std::move(stop)),
        spare_(std::move(spare)),
        buffer_(kShmFrameBytesMax) {
    struct stat file;
    if (stat(options_.socket_path.c_str(), &file) == 0) socket_inode_ = file.st_ino;
  }
  ~ShmServerImpl() override { CloseAll(); }

  const ShmServerOptions& options() const override { return options_; }
  ServerMemory memory() override { return region_.memory(); }
  uint64_t intents_completed() const override {
    return intents_completed_.load(std::memory_order_acquire);
  }

  absl::Status Serve(ControlHandler* handler) override;
  void Stop() override {
    const uint64_t one = 1;
    // Fails only where the counter is at its end: then the server has been told often enough.
    [[maybe_unused]] const ssize_t ignored = write(stop_.get(), &one, sizeof(one));
  }

 private:
  absl::Status Loop();
  void Dispatch(const epoll_event& event);
  void Accept();
  bool AcceptWithTheSpare();
  bool MakeRoom();
  void Refuse(UniqueFd socket, const absl::Status& why);
  absl::Status DescriptorsExhausted() const;
  void Welcome(UniqueFd socket);
  absl::Status Watch(int fd, uint32_t events, uint64_t key);
  void CloseLateStrangers();
  void NoteIdentity(ShmConnection* connection);
  // Says why, then closes. Unavailable: whoever connects again may have better luck.
  void TurnOut(PeerId peer, const absl::Status& why);
  void RunTimer();
  int TimeoutMs() const;
  void OnSocket(ShmConnection* connection, uint32_t events);
  // These may end the connection: `connection` may be gone afterwards.
  void OnProcessExit(ShmConnection* connection);
  void OnClosed(ShmConnection* connection);
  void Remove(ShmConnection* connection);
  void CloseAll();

  const ShmServerOptions options_;
  ShmRegion region_;
  SlotTable slots_;
  UniqueFd listener_;
  const UniqueFd path_lock_;  // held until the socket's file is removed
  UniqueFd epoll_, stop_;
  UniqueFd spare_;  // given up for a moment to tell a client that there are no descriptors left
  ino_t socket_inode_ = 0;
  std::vector<std::byte> buffer_;
  ControlHandler* handler_ = nullptr;
  std::atomic<bool> served_{false};
  std::atomic<uint64_t> intents_completed_{0};
  PeerId last_peer_ = 0;
  int64_t accept_again_ns_ = 0;  // 0: accepting
  int64_t timer_ns_ = kNeverNs;  // when the handler wants to be called
  Strangers strangers_{{.max = kStrangersMax, .origin_max = kStrangersOfProcessMax}};
  RateLimitedLog accept_log_, refused_log_, closed_log_, late_log_, slot_log_;
  absl::flat_hash_map<PeerId, std::unique_ptr<ShmConnection>> connections_;
};

absl::Status ShmServerImpl::Watch(int fd, uint32_t events, uint64_t key) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "epoll_ctl");
}

absl::Status ShmServerImpl::Serve(ControlHandler* handler) {
  if (served_.exchange(true)) {
    return absl::FailedPreconditionError("this memory server has served already: create another");
  }
  handler_ = handler;
  absl::Status status = Loop();
  CloseAll();
  return status;
}

absl::Status ShmServerImpl::Loop() {
  PANDO_RETURN_IF_ERROR(Watch(stop_.get(), EPOLLIN, kStopEvent));
  PANDO_RETURN_IF_ERROR(Watch(listener_.get(), EPOLLIN, kListenEvent));
  std::array<epoll_event, kEventsMax> events;
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), kEventsMax, TimeoutMs());
    if (count < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "epoll_wait");
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kStopEvent) return absl::OkStatus();
      Dispatch(events[i]);
    }
    CloseLateStrangers();
    RunTimer();
  }
}

void ShmServerImpl::Dispatch(const epoll_event& event) {
  if (event.data.u64 == kListenEvent) return Accept();
  // An earlier event of the same batch may have ended the connection.
  const auto found = connections_.find(event.data.u64 >> 1);
  if (found == connections_.end()) return;
  ShmConnection* connection = found->second.get();
  switch (static_cast<EventKind>(event.data.u64 & 1)) {
    case EventKind::kSocket:
      return OnSocket(connection, event.events);
    case EventKind::kProcess:
      return OnProcessExit(connection);
  }
}

void ShmServerImpl::Accept() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      Welcome(std::move(socket));
      continue;
    }
    const int error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      // Said before it is looked whether anybody waits.
      if (!WaitReadable(listener_.get(), 0)) return;
      if (MakeRoom() || (error == EMFILE && AcceptWithTheSpare())) continue;
      PANDO_LOG_LIMITED(accept_log_, WARNING)
          << "cannot accept clients now: " << absl::ErrnoToStatus(error, "accept");
      // Level-triggered: without a pause this would spin until somebody leaves.
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      accept_again_ns_ = RealClock().NowNs() + kAcceptPauseNs;
    }
    if (error != EINTR && error != ECONNABORTED) return;
  }
}

// No descriptor is left: of those without an identity one goes. False: there is none.
bool ShmServerImpl::MakeRoom() {
  const std::optional<PeerId> stranger = strangers_.Evict();
  if (!stranger.has_value()) return false;
  TurnOut(*stranger, absl::UnavailableError(
                         "this memory server has no descriptor left for a client without an "
                         "identity: connect again"));
  return true;
}

// Who cannot be let in is told why, instead of waiting for an answer. False: not even that.
bool ShmServerImpl::AcceptWithTheSpare() {
  spare_.Reset();
  UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const bool accepted = static_cast<bool>(socket);
  if (accepted) Refuse(std::move(socket), DescriptorsExhausted());
  spare_ = OpenSpare();
  return accepted;
}

absl::Status ShmServerImpl::DescriptorsExhausted() const {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  return absl::ResourceExhaustedError(
      absl::StrCat("server ", options_.server_id, " has ", connections_.size(),
                   " clients and no file descriptor for another: RLIMIT_NOFILE is ",
                   static_cast<uint64_t>(files.rlim_cur),
                   "; start it with a higher hard limit (ulimit -Hn, LimitNOFILE= of its unit)"));
}

void ShmServerImpl::Refuse(UniqueFd socket, const absl::Status& why) {
  PANDO_LOG_LIMITED(refused_log_, WARNING) << "client refused: " << why;
  SendMessage(socket.get(), EncodeShmFrame(ShmFrameType::kError, 0, EncodeStatus(why)));
}

void ShmServerImpl::Welcome(UniqueFd socket) {
  absl::StatusOr<PeerProcess> process = IdentifyPeer(socket.get());
  absl::Status status = process.status();
  if (absl::IsResourceExhausted(status) && MakeRoom()) {
    process = IdentifyPeer(socket.get());
    status = process.status();
  }
  if (absl::IsResourceExhausted(status) && !OpenSpare() && errno == EMFILE) {
    status = DescriptorsExhausted();
  }
  const size_t clients = connections_.size() - strangers_.size();
  if (status.ok() && clients >= options_.connections_max) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("server ", options_.server_id, " has ", clients,
                     " clients, as many as it takes: start it with a higher --connections_max"));
  }
  if (status.ok()) {
    const PeerId peer = ++last_peer_;
    const int64_t hello_by_ns = RealClock().NowNs() + options_.hello_timeout_ms * kMillisecondNs;
    auto connection = std::make_unique<ShmConnection>(peer, std::move(socket), *std::move(process));
    status = Watch(connection->socket(), EPOLLIN, EventKey(peer, EventKind::kSocket));
    if (status.ok()) {
      status = Watch(connection->pidfd(), EPOLLIN, EventKey(peer, EventKind::kProcess));
    }
    if (status.ok()) {
      ShmConnection* const greeter = connection.get();
      connections_.emplace(peer, std::move(connection));
      if (const std::optional<PeerId> evicted =
              strangers_.Add(peer, OriginOf(*greeter), hello_by_ns)) {
        TurnOut(*evicted,
                absl::UnavailableError(
                    "too many others introduce themselves at this moment: connect again"));
      }
      return OnSocket(greeter, EPOLLIN);  // an honest client's hello is there already
    }
    PANDO_LOG_LIMITED(refused_log_, WARNING) << "client refused: " << status;
    return;
  }
  Refuse(std::move(socket), status);
}

void ShmServerImpl::OnSocket(ShmConnection* connection, uint32_t events) {
  ShmConnection::Context context = {options_.server_id, &region_,   &slots_,
                                    handler_,           &slot_log_, buffer_};
  const absl::Status status = connection->OnReady(context, events != EPOLLIN);
  if (!status.ok()) {
    if (!absl::IsCancelled(status)) {
      PANDO_LOG_LIMITED(closed_log_, WARNING)
          << "connection of process " << connection->pid() << " closed: " << status;
    }
    return OnClosed(connection);
  }
  // A connection whose replies nobody takes is not read from either.
  epoll_event event = {};
  event.events = connection->wants_write() ? EPOLLOUT : EPOLLIN;
  event.data.u64 = EventKey(connection->peer(), EventKind::kSocket);
  if (event.events != connection->watched_events) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection->socket(), &event);
    connection->watched_events = event.events;
  }
  NoteIdentity(connection);
}

// After anything that may have given or taken it.
void ShmServerImpl::NoteIdentity(ShmConnection* connection) {
  const PeerId peer = connection->peer();
  if (connection->introduced() && handler_->IsKnown(peer)) return strangers_.Remove(peer);
  const int64_t until_ns = RealClock().NowNs() + options_.identity_timeout_ms * kMillisecondNs;
  if (!strangers_.Contains(peer)) {  // it has left
    if (const std::optional<PeerId> evicted =
            strangers_.Add(peer, OriginOf(*connection), until_ns)) {
      TurnOut(*evicted, absl::UnavailableError("too many others have no identity, either"));
    }
  } else if (connection->introduced() && !connection->has_time) {
    strangers_.Extend(peer, until_ns);  // once: whatever it goes on saying
  }
  connection->has_time = connection->introduced();
}

void ShmServerImpl::TurnOut(PeerId peer, const absl::Status& why) {
  const auto found = connections_.find(peer);
  if (found == connections_.end() || !found->second->is_open()) return;
  PANDO_LOG_LIMITED(late_log_, WARNING)
      << "process " << found->second->pid() << ": connection closed: " << why;
  found->second->Refuse(why).IgnoreError();
  OnClosed(found->second.get());
}

void ShmServerImpl::OnClosed(ShmConnection* connection) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->socket(), nullptr);
  connection->CloseSocket();
  strangers_.Remove(connection->peer());
  // While the process lives its endpoints may still execute verbs: their slots stay theirs (rule
  // F7).
  if (connection->slots().empty()) Remove(connection);
}

void ShmServerImpl::OnProcessExit(ShmConnection* connection) {
  const uint64_t completed = slots_.CompleteAndFree(connection->peer(), connection->slots());
  intents_completed_.fetch_add(completed, std::memory_order_acq_rel);
  if (completed > 0) {
    PANDO_LOG(INFO) << "process " << connection->pid() << " exited within " << completed
                    << " WRITEs: completed";
  }
  Remove(connection);
}

void ShmServerImpl::Remove(ShmConnection* connection) {
  const PeerId peer = connection->peer();
  const bool introduced = connection->introduced();
  strangers_.Remove(peer);
  connections_.erase(peer);
  if (introduced) handler_->OnPeerGone(peer);
}

void ShmServerImpl::CloseLateStrangers() {
  const int64_t now_ns = RealClock().NowNs();
  if (accept_again_ns_ != 0 && now_ns >= accept_again_ns_) {
    if (Watch(listener_.get(), EPOLLIN, kListenEvent).ok()) accept_again_ns_ = 0;
  }
  while (const std::optional<PeerId> late = strangers_.TakeLate(now_ns)) {
    TurnOut(*late,
            absl::UnavailableError(connections_.at(*late)->introduced()
                                       ? "without an identity for too long: connect again, and join"
                                       : "did not introduce itself in time: connect again"));
  }
}

void ShmServerImpl::RunTimer() { timer_ns_ = handler_->OnTimer(RealClock().NowNs()); }

int ShmServerImpl::TimeoutMs() const {
  int64_t next_ns = std::min(timer_ns_, accept_again_ns_ != 0 ? accept_again_ns_ : kNeverNs);
  next_ns = std::min(next_ns, strangers_.next_ns());
  if (next_ns == kNeverNs) return -1;
  const int64_t left_ns = next_ns - RealClock().NowNs();
  if (left_ns <= 0) return 0;
  return static_cast<int>(std::min<int64_t>(left_ns / kMillisecondNs + 1, INT_MAX));
}

void ShmServerImpl::CloseAll() {
  if (!listener_) return;
  // Only our own file: somebody may have replaced it meanwhile.
  struct stat file;
  if (stat(options_.socket_path.c_str(), &file) == 0 && file.st_ino == socket_inode_) {
    unlink(options_.socket_path.c_str());
  }
  connections_.clear();
  listener_.Reset();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmServer>> ShmServer::Create(const ShmServerOptions& options) {
  PANDO_ASSIGN_OR_RETURN(const ShmGeometry geometry,
                         ShmGeometry::Create(options.main_bytes, options.lock_bytes,
                                             options.packet_bytes, options.endpoints_max));
  if (options.connections_max == 0 || options.hello_timeout_ms <= 0 ||
      options.identity_timeout_ms <= 0) {
    return absl::InvalidArgumentError(
        "connections_max, hello_timeout_ms and identity_timeout_ms have to be above 0");
  }
  PANDO_ASSIGN_OR_RETURN(ShmRegion region,
                         ShmRegion::Create(geometry, options.huge_pages, options.numa_node));
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !stop) return absl::ErrnoToStatus(errno, "epoll_create1 or eventfd");
  UniqueFd spare = OpenSpare();
  if (!spare) return absl::ErrnoToStatus(errno, "/dev/null");
  PANDO_ASSIGN_OR_RETURN(UnixListener listener, ListenAt(options.socket_path));
  return std::make_unique<ShmServerImpl>(options, std::move(region), std::move(listener),
                                         std::move(epoll), std::move(stop), std::move(spare));
}

}  // namespace pando
