#include "common/fabric/verbs/verbs_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/body.h"
#include "common/fabric/verbs/lock_space.h"
#include "common/fabric/verbs/loopback.h"
#include "common/fabric/verbs/registered_memory.h"
#include "common/fabric/verbs/tcp_socket.h"
#include "common/fabric/verbs/unreachable_peers.h"
#include "common/fabric/verbs/verbs_connection.h"

namespace pando {
namespace {

constexpr int kEventsMax = 64;
constexpr int kAcceptsPerEvent = 16;
// Connections that have not introduced themselves take no client's place.
constexpr size_t kGreetersMax = 256;
constexpr int64_t kAcceptPauseNs = 100 * kMillisecondNs;
constexpr int64_t kQuietAgainNs = 100 * kMillisecondNs;  // after a loopback that failed

constexpr uint64_t kStopEvent = 0;  // peers count from 1, and the listener is above them all
constexpr uint64_t kListenEvent = UINT64_MAX;

class VerbsServerImpl final : public VerbsServer, private VerbsHost {
 public:
  explicit VerbsServerImpl(const VerbsServerOptions& options) : options_(options) {}
  ~VerbsServerImpl() override { CloseAll(); }
  absl::Status Init();

  const VerbsServerOptions& options() const override { return options_; }
  const std::string& address() const override { return address_; }
  bool needs_crc() const override { return described_.lines_atomic == 0; }
  uint32_t on_chip_bytes() const override { return described_.on_chip_bytes; }
  std::string DescribeDevice() const override;
  ServerMemory memory() override { return {main_.bytes(), locks_->host_memory(), locks_.get()}; }
  size_t queue_pairs() const override { return queue_pairs_.load(std::memory_order_acquire); }

  absl::Status Serve(ControlHandler* handler) override;
  void Stop() override {
    const uint64_t one = 1;
    // Fails only where the counter is at its end: then the server has been told often enough.
    [[maybe_unused]] const ssize_t ignored = write(stop_.get(), &one, sizeof(one));
  }
  void CutOff(PeerId peer) override;

 private:
  const VerbsHelloReply& hello() const override { return hello_; }
  const VerbsMemory& described_memory() const override { return described_; }
  const ClusterSecret* secret() const override { return options_.secret.get(); }
  ControlHandler* handler() override { return handler_; }
  absl::StatusOr<QueuePair> OpenQueuePair(const QueuePairAddress& remote) override;
  void OnQueuePairsClosed(size_t count) override {
    queue_pairs_.fetch_sub(count, std::memory_order_acq_rel);
  }
  absl::Status AwaitQuiet() override;

  absl::Status CheckOptions();
  absl::Status InitMemory();
  absl::Status InitListener();
  absl::Status Loop();
  void Accept();
  void Welcome(UniqueFd socket);
  absl::Status Watch(int operation, int fd, uint32_t events, uint64_t key);
  void CloseLateGreeters();
  int TimeoutMs() const;
  void OnSocket(VerbsConnection* connection);
  void OnClosed(VerbsConnection* connection);
  // Reports whom nothing is in flight of any more.
  void ReportGone();
  void CloseAll();

  VerbsServerOptions options_;
  std::shared_ptr<VerbsDevice> device_;
  CompletionQueueHandle completions_;  // nothing completes at a server's queue pairs
  std::unique_ptr<Loopback> loopback_;
  RegisteredMemory main_;
  std::unique_ptr<LockSpace> locks_;
  VerbsHelloReply hello_;
  VerbsMemory described_;
  std::string address_;
  UniqueFd listener_, epoll_, stop_;
  ControlHandler* handler_ = nullptr;
  std::atomic<bool> served_{false};
  std::atomic<size_t> queue_pairs_{0};
  PeerId last_peer_ = 0;
  size_t greeting_ = 0;          // connections that have not introduced themselves yet
  int64_t accept_again_ns_ = 0;  // 0: accepting
  int64_t quiet_again_ns_ = 0;
  int64_t timer_ns_ = kNeverNs;  // when the handler wants to be called
  absl::flat_hash_map<PeerId, std::unique_ptr<VerbsConnection>> connections_;
  std::vector<PeerId> leaving_;       // cut off or closed, and not reported gone yet
  absl::flat_hash_set<PeerId> busy_;  // have_more() of them
  UnreachablePeers unreachable_;
};

absl::Status VerbsServerImpl::CheckOptions() {
  if (options_.main_bytes == 0 || options_.main_bytes % 4096 != 0 || options_.lock_bytes == 0 ||
      options_.lock_bytes % 64 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "main memory has to be a multiple of 4096 bytes and the lock table of 64, not ",
        options_.main_bytes, " and ", options_.lock_bytes));
  }
  if (options_.connections_max == 0 || options_.hello_timeout_ms <= 0 || options_.silence_ms <= 0) {
    return absl::InvalidArgumentError(
        "connections_max, hello_timeout_ms and silence_ms have to be above 0");
  }
  if (options_.packet_bytes % 64 != 0 || options_.packet_bytes > (64 << 10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("packet_bytes is a multiple of 64 up to 65536, not ", options_.packet_bytes));
  }
  return absl::OkStatus();
}

absl::Status VerbsServerImpl::Init() {
  PANDO_RETURN_IF_ERROR(CheckOptions());
  PANDO_ASSIGN_OR_RETURN(device_, VerbsDevice::Open(options_.device));
  const uint32_t mtu_bytes = device_->path().mtu_bytes;
  if (options_.packet_bytes == 0) options_.packet_bytes = mtu_bytes;
  if (options_.packet_bytes > mtu_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("packets of ", options_.packet_bytes,
                                                   " bytes do not fit the MTU of ", mtu_bytes,
                                                   " bytes of ", DescribeDevice()));
  }
  PANDO_RETURN_IF_ERROR(InitMemory());
  return InitListener();
}

absl::Status VerbsServerImpl::InitMemory() {
  completions_.reset(ibv_create_cq(device_->context(), 16, nullptr, nullptr, 0));
  if (completions_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "RDMA device ", device_->name(), ": no completion queue: ", std::strerror(errno)));
  }
  PANDO_ASSIGN_OR_RETURN(loopback_, Loopback::Create(device_));
  PANDO_ASSIGN_OR_RETURN(main_, RegisteredMemory::Create(*device_, options_.main_bytes,
                                                         {.remote = true,
                                                          .huge_pages = options_.huge_pages,
                                                          .numa_node = options_.numa_node}));
  DeviceMemoryCalls* const calls = options_.device_memory_calls != nullptr
                                       ? options_.device_memory_calls
                                       : RealDeviceMemoryCalls();
  PANDO_ASSIGN_OR_RETURN(
      locks_, LockSpace::Create(device_, {options_.lock_bytes, options_.device_memory}, calls,
                                loopback_.get()));
  described_.main_bytes = options_.main_bytes;
  described_.main_address = reinterpret_cast<uintptr_t>(main_.data());
  described_.main_key = main_.remote_key();
  described_.lock_bytes = locks_->space().bytes;
  described_.lock_address = locks_->space().address;
  described_.lock_key = locks_->space().key;
  described_.packet_bytes = options_.packet_bytes;
  described_.mtu_bytes = device_->path().mtu_bytes;
  described_.on_chip_bytes = locks_->on_chip() ? static_cast<uint32_t>(options_.lock_bytes) : 0;
  hello_.server_id = options_.server_id;
  hello_.features.compatible = options_.secret != nullptr ? kVerbsCompatibleProof : 0;
  described_.lines_atomic = device_->is_software() ? 0 : 1;
  // Rule L4: where atomics and WRITEs of one word meet in host memory nothing promises that a CAS
  // that fails leaves a WRITE alone.
  described_.write_unlock = locks_->on_chip() && !device_->is_software() ? 1 : 0;
  // Without it nobody's death could be dealt with: better known now.
  return Annotate(AwaitQuiet(), absl::StrCat(DescribeDevice(), ": READing by loopback"));
}

absl::Status VerbsServerImpl::InitListener() {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  stop_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !stop_) return absl::ErrnoToStatus(errno, "epoll_create1 or eventfd");
  HostPort wanted = {"", "0"};
  const GidFacts& gid = device_->path().gid;
  if (!options_.listen.empty()) {
    PANDO_ASSIGN_OR_RETURN(wanted, ParseHostPort(options_.listen));
  } else if (gid.IsIpv4()) {
    wanted.host = FormatGid(gid);
  }
  PANDO_ASSIGN_OR_RETURN(TcpListener listener, ListenTcp(wanted));
  listener_ = std::move(listener.socket);
  if (listener.bound.host.empty()) {
    std::array<char, HOST_NAME_MAX + 1> name = {};
    gethostname(name.data(), name.size() - 1);
    listener.bound.host = name.data();
  }
  address_ = listener.bound.ToString();
  return absl::OkStatus();
}

std::string VerbsServerImpl::DescribeDevice() const {
  const DeviceChoice& path = device_->path();
  return absl::StrCat(device_->name(), " port ", path.port.number, ", GID ", FormatGid(path.gid),
                      " (index ", path.gid.index, "), MTU ", path.mtu_bytes,
                      device_->is_software() ? ", software" : "");
}

absl::Status VerbsServerImpl::Watch(int operation, int fd, uint32_t events, uint64_t key) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "epoll_ctl");
}

absl::Status VerbsServerImpl::Serve(ControlHandler* handler) {
  if (served_.exchange(true)) {
    return absl::FailedPreconditionError("this memory server has served already: create another");
  }
  handler_ = handler;
  absl::Status status = Loop();
  CloseAll();
  return status;
}

absl::Status VerbsServerImpl::Loop() {
  PANDO_RETURN_IF_ERROR(Watch(EPOLL_CTL_ADD, stop_.get(), EPOLLIN, kStopEvent));
  PANDO_RETURN_IF_ERROR(Watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenEvent));
  std::array<epoll_event, kEventsMax> events;
  for (;;) {
    const int timeout_ms = busy_.empty() ? TimeoutMs() : 0;
    const int count = epoll_wait(epoll_.get(), events.data(), kEventsMax, timeout_ms);
    if (count < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "epoll_wait");
    for (int i = 0; i < count; ++i) {
      const uint64_t key = events[i].data.u64;
      if (key == kStopEvent) return absl::OkStatus();
      if (key == kListenEvent) {
        Accept();
        continue;
      }
      // An earlier event of the same batch may have ended the connection.
      const auto found = connections_.find(key);
      if (found != connections_.end()) OnSocket(found->second.get());
    }
    for (const PeerId peer : std::exchange(busy_, {})) {
      const auto found = connections_.find(peer);
      if (found != connections_.end() && found->second->has_more()) OnSocket(found->second.get());
    }
    CloseLateGreeters();
    timer_ns_ = handler_->OnTimer(RealClock().NowNs());
    ReportGone();
  }
}

void VerbsServerImpl::Accept() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      Welcome(std::move(socket));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // Level-triggered: without a pause this would spin until somebody leaves.
      PANDO_LOG(WARNING) << "cannot accept clients now: " << absl::ErrnoToStatus(errno, "accept");
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
      accept_again_ns_ = RealClock().NowNs() + kAcceptPauseNs;
    }
    if (errno != EINTR && errno != ECONNABORTED) return;
  }
}

void VerbsServerImpl::Welcome(UniqueFd socket) {
  TuneTcp(socket.get(), options_.silence_ms);
  const int fd = socket.get();
  const std::string name = PeerOfTcp(fd);
  absl::Status status;
  if (connections_.size() - greeting_ >= options_.connections_max) {
    status = absl::ResourceExhaustedError(absl::StrCat("server ", options_.server_id, " has ",
                                                       connections_.size() - greeting_,
                                                       " clients (connections_max)"));
  } else if (greeting_ >= kGreetersMax) {
    status = absl::ResourceExhaustedError(absl::StrCat(
        "server ", options_.server_id, ": ", greeting_, " others are introducing themselves"));
  }
  if (status.ok()) status = Watch(EPOLL_CTL_ADD, fd, EPOLLIN, last_peer_ + 1);
  if (!status.ok()) {
    PANDO_LOG(WARNING) << "client at " << name << " refused: " << status;
    std::string bytes = EncodeVerbsFrame(VerbsFrameType::kError, 0, EncodeStatus(status));
    SendTcp(fd, &bytes);
    return;
  }
  const PeerId peer = ++last_peer_;
  ++greeting_;
  const int64_t hello_by_ns = RealClock().NowNs() + options_.hello_timeout_ms * kMillisecondNs;
  connections_.emplace(peer,
                       std::make_unique<VerbsConnection>(peer, std::move(socket), name, hello_by_ns,
                                                         static_cast<VerbsHost*>(this)));
}

void VerbsServerImpl::OnSocket(VerbsConnection* connection) {
  const bool was_greeting = !connection->introduced();
  const absl::Status status = connection->OnReady();
  if (was_greeting && connection->introduced()) --greeting_;
  if (!status.ok()) {
    if (!absl::IsCancelled(status)) {
      PANDO_LOG(WARNING) << "connection of " << connection->name() << " closed: " << status;
    }
    return OnClosed(connection);
  }
  if (connection->has_more()) busy_.insert(connection->peer());
  // A connection whose replies nobody takes is not read from either.
  if (connection->wants_write() != connection->watches_write) {
    connection->watches_write = connection->wants_write();
    const uint32_t events = connection->watches_write ? EPOLLOUT : EPOLLIN;
    Watch(EPOLL_CTL_MOD, connection->socket(), events, connection->peer()).IgnoreError();
  }
}

void VerbsServerImpl::OnClosed(VerbsConnection* connection) {
  const PeerId peer = connection->peer();
  if (!connection->introduced()) --greeting_;
  // Who was cut off is reported once more: nothing arrives from him any more.
  const bool to_report = connection->introduced();
  connections_.erase(peer);
  if (to_report) leaving_.push_back(peer);
}

void VerbsServerImpl::CutOff(PeerId peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end() || found->second->cut_off()) return;
  PANDO_LOG(WARNING) << "client at " << found->second->name() << " is cut off";
  found->second->CutOff();
  leaving_.push_back(peer);
}

void VerbsServerImpl::ReportGone() {
  if (leaving_.empty() || RealClock().NowNs() < quiet_again_ns_) return;
  const absl::Status quiet = AwaitQuiet();
  if (!quiet.ok()) {
    PANDO_LOG(ERROR) << "whether clients that left have anything in flight is not known: " << quiet;
    return;
  }
  for (const PeerId peer : std::exchange(leaving_, {})) handler_->OnPeerGone(peer);
  timer_ns_ = handler_->OnTimer(RealClock().NowNs());
}

absl::Status VerbsServerImpl::AwaitQuiet() {
  // A device that is ill takes its time to say so: others would wait with us.
  if (RealClock().NowNs() < quiet_again_ns_) {
    return absl::UnavailableError("the memory server's own device does not work at the moment");
  }
  std::array<std::byte, 8> word;
  const RemoteSpace main = {described_.main_address, described_.main_bytes, described_.main_key};
  absl::Status status = loopback_->Read(main, 0, word);
  if (status.ok()) status = loopback_->Read(locks_->space(), 0, word);
  quiet_again_ns_ = status.ok() ? 0 : RealClock().NowNs() + kQuietAgainNs;
  return status;
}

absl::StatusOr<QueuePair> VerbsServerImpl::OpenQueuePair(const QueuePairAddress& remote) {
  if (queue_pairs() >= options_.endpoints_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "server ", options_.server_id, " has ", queue_pairs(), " queue pairs (endpoints_max)"));
  }
  PANDO_RETURN_IF_ERROR(unreachable_.Check(remote.gid, RealClock().NowNs()));
  PANDO_ASSIGN_OR_RETURN(QueuePair pair, QueuePair::Create(*device_, completions_.get(), {}));
  const int64_t begun_ns = RealClock().NowNs();
  const absl::Status connected = pair.Connect(*device_, remote);
  unreachable_.Note(remote.gid, connected.ok(), begun_ns, RealClock().NowNs());
  PANDO_RETURN_IF_ERROR(connected);
  queue_pairs_.fetch_add(1, std::memory_order_acq_rel);
  return pair;
}

void VerbsServerImpl::CloseLateGreeters() {
  const int64_t now_ns = RealClock().NowNs();
  if (accept_again_ns_ != 0 && now_ns >= accept_again_ns_) {
    if (Watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN, kListenEvent).ok()) accept_again_ns_ = 0;
  }
  if (greeting_ == 0) return;
  std::vector<VerbsConnection*> late;
  for (const auto& [peer, connection] : connections_) {
    if (!connection->introduced() && connection->hello_by_ns() <= now_ns) {
      late.push_back(connection.get());
    }
  }
  for (VerbsConnection* connection : late) {
    PANDO_LOG(WARNING) << connection->name()
                       << " connected and did not introduce itself in time: connection closed";
    OnClosed(connection);
  }
}

int VerbsServerImpl::TimeoutMs() const {
  int64_t next_ns = std::min(timer_ns_, accept_again_ns_ != 0 ? accept_again_ns_ : kNeverNs);
  if (!leaving_.empty()) next_ns = std::min(next_ns, quiet_again_ns_);
  for (const auto& [peer, connection] : connections_) {
    if (greeting_ == 0) break;
    if (!connection->introduced()) next_ns = std::min(next_ns, connection->hello_by_ns());
  }
  if (next_ns == kNeverNs) return -1;
  const int64_t left_ns = next_ns - RealClock().NowNs();
  if (left_ns <= 0) return 0;
  return static_cast<int>(std::min<int64_t>(left_ns / kMillisecondNs + 1, INT_MAX));
}

void VerbsServerImpl::CloseAll() {
  // First, so that no verb arrives any more when clients learn that the server is gone.
  for (const auto& [peer, connection] : connections_) connection->DestroyQueuePairs();
  connections_.clear();
  listener_.Reset();
}

}  // namespace

absl::StatusOr<std::unique_ptr<VerbsServer>> VerbsServer::Create(
    const VerbsServerOptions& options) {
  auto server = std::make_unique<VerbsServerImpl>(options);
  PANDO_RETURN_IF_ERROR(server->Init());
  return server;
}

}  // namespace pando
