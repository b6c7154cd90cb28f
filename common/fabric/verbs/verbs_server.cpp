#include "common/fabric/verbs/verbs_server.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/verbs/control_port.h"
#include "common/fabric/verbs/lock_space.h"
#include "common/fabric/verbs/loopback.h"
#include "common/fabric/verbs/registered_memory.h"
#include "common/fabric/verbs/service_address.h"

namespace pando {
namespace {

class DevicePair final : public ServedPair {
 public:
  explicit DevicePair(QueuePair pair) : pair_(std::move(pair)) {}
  QueuePairAddress address() const override { return pair_.address(); }

 private:
  const QueuePair pair_;
};

class VerbsServerImpl final : public VerbsServer, private QueuePairHost {
 public:
  explicit VerbsServerImpl(const VerbsServerOptions& options) : options_(options) {}
  absl::Status Init();

  const VerbsServerOptions& options() const override { return options_; }
  const std::string& address() const override { return address_; }
  bool needs_crc() const override { return described_.lines_atomic == 0; }
  uint32_t on_chip_bytes() const override { return described_.on_chip_bytes; }
  std::string DescribeDevice() const override;
  ServerMemory memory() override { return {main_.bytes(), locks_->host_memory(), locks_.get()}; }
  size_t queue_pairs() const override { return port_->queue_pairs(); }

  absl::Status Serve(ControlHandler* handler) override;
  void Stop() override { port_->Stop(); }
  bool CutOff(PeerId peer) override { return port_->CutOff(peer); }

 private:
  ServedPairOr OpenQueuePair(const QueuePairAddress& remote) override;
  absl::Status AwaitQuiet() override;

  absl::Status CheckOptions();
  absl::Status InitMemory();
  absl::Status InitListener();

  VerbsServerOptions options_;
  std::shared_ptr<VerbsDevice> device_;
  CompletionQueueHandle completions_;  // nothing completes at a server's queue pairs
  std::unique_ptr<Loopback> loopback_;
  RegisteredMemory main_;
  std::unique_ptr<LockSpace> locks_;
  VerbsHelloReply hello_;
  VerbsMemory described_;
  std::string address_;
  std::atomic<bool> served_{false};
  std::unique_ptr<ControlPort> port_;  // goes first: its queue pairs are the device's
};

absl::Status VerbsServerImpl::CheckOptions() {
  if (options_.main_bytes == 0 || options_.main_bytes % 4096 != 0 || options_.lock_bytes == 0 ||
      options_.lock_bytes % 64 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "main memory has to be a multiple of 4096 bytes and the lock table of 64, not ",
        options_.main_bytes, " and ", options_.lock_bytes));
  }
  if (options_.connections_max == 0 || options_.hello_timeout_ms <= 0 ||
      options_.identity_timeout_ms <= 0 || options_.silence_ms <= 0) {
    return absl::InvalidArgumentError(
        "connections_max, hello_timeout_ms, identity_timeout_ms and silence_ms have to be above 0");
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
  const GidFacts& gid = device_->path().gid;
  PANDO_ASSIGN_OR_RETURN(const HostPort wanted, AddressToListenAt(options_.listen, gid));
  const ControlPort::Options options = {.server_id = options_.server_id,
                                        .endpoints_max = options_.endpoints_max,
                                        .connections_max = options_.connections_max,
                                        .hello_timeout_ms = options_.hello_timeout_ms,
                                        .identity_timeout_ms = options_.identity_timeout_ms,
                                        .silence_ms = options_.silence_ms,
                                        .secret = options_.secret};
  PANDO_ASSIGN_OR_RETURN(port_, ControlPort::Listen(options, wanted, this));
  port_->Describe(hello_, described_);
  address_ = AddressToPublish(port_->bound(), gid).ToString();
  return absl::OkStatus();
}

std::string VerbsServerImpl::DescribeDevice() const {
  const DeviceChoice& path = device_->path();
  return absl::StrCat(device_->name(), " port ", path.port.number, ", GID ", FormatGid(path.gid),
                      " (index ", path.gid.index, "), MTU ", path.mtu_bytes,
                      device_->is_software() ? ", software" : "");
}

absl::Status VerbsServerImpl::Serve(ControlHandler* handler) {
  if (served_.exchange(true)) {
    return absl::FailedPreconditionError("this memory server has served already: create another");
  }
  return port_->Serve(handler);
}

absl::Status VerbsServerImpl::AwaitQuiet() {
  std::array<std::byte, 8> word;
  const RemoteSpace main = {described_.main_address, described_.main_bytes, described_.main_key};
  PANDO_RETURN_IF_ERROR(loopback_->Read(main, 0, word));
  return loopback_->Read(locks_->space(), 0, word);
}

ServedPairOr VerbsServerImpl::OpenQueuePair(const QueuePairAddress& remote) {
  PANDO_ASSIGN_OR_RETURN(QueuePair pair, QueuePair::Create(*device_, completions_.get(), {}));
  PANDO_RETURN_IF_ERROR(pair.Connect(*device_, remote));
  return std::make_unique<DevicePair>(std::move(pair));
}

}  // namespace

absl::StatusOr<std::unique_ptr<VerbsServer>> VerbsServer::Create(
    const VerbsServerOptions& options) {
  auto server = std::make_unique<VerbsServerImpl>(options);
  PANDO_RETURN_IF_ERROR(server->Init());
  return server;
}

}  // namespace pando
