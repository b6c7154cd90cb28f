#include "common/fabric/shm/shm_server.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rate_limited_log.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/fabric/body.h"
#include "common/fabric/link/link_server.h"
#include "common/fabric/shm/shm_connection.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_region.h"
#include "common/fabric/shm/slot_table.h"
#include "common/fabric/shm/unix_socket.h"

namespace pando {
namespace {

constexpr size_t kStrangersMax = 512;
constexpr size_t kStrangersOfProcessMax = 256;
// Which part of all endpoints one process may have without an identity. A client joins over its
// first one, and many clients of a process may be about to; one that comes to another life of a
// server has all its endpoints there before it is introduced.
constexpr uint32_t kStrangersPart = 4;
constexpr uint32_t kStrangersSlotsMin = 4;

UniqueFd OpenSpare() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

class ShmServerImpl final : public ShmServer, private LinkServer {
 public:
  ShmServerImpl(const ShmServerOptions& options, ShmRegion region, UniqueFd path_lock,
                UniqueFd spare)
      : LinkServer({.server_id = options.server_id,
                    .connections_max = options.connections_max,
                    .hello_timeout_ms = options.hello_timeout_ms,
                    .identity_timeout_ms = options.identity_timeout_ms,
                    .strangers = {.max = kStrangersMax, .origin_max = kStrangersOfProcessMax}}),
        options_(options),
        region_(std::move(region)),
        slots_(&region_),
        file_(options.socket_path, std::move(path_lock), LockFile::kStays),
        spare_(std::move(spare)),
        buffer_(kShmFrameBytesMax) {}
  ~ShmServerImpl() override { Close(); }
  using LinkServer::Open;

  const ShmServerOptions& options() const override { return options_; }
  ServerMemory memory() override { return region_.memory(); }
  uint64_t intents_completed() const override {
    return intents_completed_.load(std::memory_order_acquire);
  }

  absl::Status Serve(ControlHandler* handler) override;
  void Stop() override { LinkServer::Stop(); }

 private:
  void Welcome(UniqueFd socket) override;
  bool AcceptWithout(int error) override;
  void OnClosed(ServedLink* connection) override;
  void OnExit(ServedLink* connection) override;

  void Refuse(UniqueFd socket, const absl::Status& why);
  absl::Status DescriptorsExhausted() const;
  absl::Status CheckStrangersSlots(const std::string& process) const;
  void Remove(const ServedLink& connection);
  void Close();

  const ShmServerOptions options_;
  ShmRegion region_;
  SlotTable slots_;
  SocketFile file_;
  UniqueFd spare_;  // given up for a moment to tell a client that there are no descriptors left
  std::vector<std::byte> buffer_;
  std::atomic<bool> served_{false};
  std::atomic<uint64_t> intents_completed_{0};
  RateLimitedLog slot_log_;
  ShmConnection::Context context_ = {};  // of all connections
};

absl::Status ShmServerImpl::Serve(ControlHandler* handler) {
  if (served_.exchange(true)) {
    return absl::FailedPreconditionError("this memory server has served already: create another");
  }
  context_ = {options_.server_id,
              &region_,
              &slots_,
              handler,
              &slot_log_,
              buffer_,
              [this](const std::string& process) { return CheckStrangersSlots(process); }};
  absl::Status status = Run(handler);
  Close();
  return status;
}

// Tells a client that cannot be let in why, instead of letting it wait. False: not even that.
bool ShmServerImpl::AcceptWithout(int error) {
  if (error != EMFILE) return false;
  spare_.Reset();
  UniqueFd socket(accept4(listener(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const bool accepted = static_cast<bool>(socket);
  if (accepted) Refuse(std::move(socket), DescriptorsExhausted());
  spare_ = OpenSpare();
  return accepted;
}

absl::Status ShmServerImpl::DescriptorsExhausted() const {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  return absl::ResourceExhaustedError(
      absl::StrCat("server ", options_.server_id, " has ", connections(),
                   " clients and no file descriptor for another: RLIMIT_NOFILE is ",
                   static_cast<uint64_t>(files.rlim_cur),
                   "; start it with a higher hard limit (ulimit -Hn, LimitNOFILE= of its unit)"));
}

// A connection that has ended keeps its slots until its process exits: it counts on.
absl::Status ShmServerImpl::CheckStrangersSlots(const std::string& process) const {
  const size_t slots_max = std::max(kStrangersSlotsMin, options_.endpoints_max / kStrangersPart);
  size_t slots = 0;
  ForEach([&](const ServedLink* link) {
    if (link->had_identity || link->origin() != process) return;
    slots += static_cast<const ShmConnection*>(link)->slots().size();
  });
  if (slots < slots_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      process, " has ", slots,
      " endpoints without an identity, as many as there are for one process: join, or end it"));
}

void ShmServerImpl::Refuse(UniqueFd socket, const absl::Status& why) {
  LogRefused("client", why);
  SendMessage(socket.get(), EncodeShmFrame(ShmFrameType::kError, 0, EncodeStatus(why)));
}

void ShmServerImpl::Welcome(UniqueFd socket) {
  absl::StatusOr<PeerProcess> process = IdentifyPeer(socket.get());
  if (absl::IsResourceExhausted(process.status()) && EvictForDescriptor()) {
    process = IdentifyPeer(socket.get());
  }
  if (process.ok()) {
    return Admit(std::make_unique<ShmConnection>(NextPeer(), std::move(socket), *std::move(process),
                                                 &context_));
  }
  const bool no_descriptor =
      absl::IsResourceExhausted(process.status()) && !OpenSpare() && errno == EMFILE;
  Refuse(std::move(socket), no_descriptor ? DescriptorsExhausted() : process.status());
}

void ShmServerImpl::OnClosed(ServedLink* connection) {
  auto* const closed = static_cast<ShmConnection*>(connection);
  Unwatch(closed);
  closed->Close();
  // While the process lives its endpoints may still execute verbs: their slots stay theirs (rule
  // F7).
  if (closed->slots().empty()) Remove(*closed);
}

void ShmServerImpl::OnExit(ServedLink* connection) {
  const auto& slots = static_cast<ShmConnection*>(connection)->slots();
  const uint64_t completed = slots_.CompleteAndFree(connection->peer(), slots);
  intents_completed_.fetch_add(completed, std::memory_order_acq_rel);
  if (completed > 0) {
    PANDO_LOG(INFO) << connection->name() << " exited within " << completed << " WRITEs: completed";
  }
  Remove(*connection);
}

void ShmServerImpl::Remove(const ServedLink& connection) {
  const PeerId peer = connection.peer();
  const bool introduced = connection.introduced();
  Erase(peer);
  if (introduced) handler()->OnPeerGone(peer);
}

void ShmServerImpl::Close() {
  if (listener() < 0) return;
  file_.Remove();
  CloseAll();
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
  UniqueFd spare = OpenSpare();
  if (!spare) return absl::ErrnoToStatus(errno, "/dev/null");
  PANDO_ASSIGN_OR_RETURN(UnixListener listener, ListenAt(options.socket_path));
  auto server = std::make_unique<ShmServerImpl>(options, std::move(region),
                                                std::move(listener.lock), std::move(spare));
  PANDO_RETURN_IF_ERROR(server->Open(std::move(listener.socket)));
  return server;
}

}  // namespace pando
