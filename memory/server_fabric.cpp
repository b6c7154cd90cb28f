#include "memory/server_fabric.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/fabric/shm/shm_server.h"
#ifdef PANDO_HAVE_VERBS
#include "common/fabric/verbs/verbs_server.h"
#endif

namespace pando::memory {
namespace {

constexpr uint32_t kPacketBytesDefault = 4096;

class ShmServerFabric final : public ServerFabric {
 public:
  static absl::StatusOr<std::unique_ptr<ServerFabric>> Create(const ServerFabricOptions& options) {
    ShmServerOptions shm;
    shm.socket_path = options.socket_path;
    shm.server_id = options.server_id;
    shm.main_bytes = options.main_bytes;
    shm.lock_bytes = options.lock_bytes;
    shm.packet_bytes = options.packet_bytes != 0 ? options.packet_bytes : kPacketBytesDefault;
    shm.numa_node = options.numa_node;
    shm.huge_pages = options.huge_pages;
    shm.connections_max = options.connections_max;
    if (options.endpoints_max != 0) shm.endpoints_max = options.endpoints_max;
    shm.identity_timeout_ms = options.identity_timeout_ms;
    PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ShmServer> server, ShmServer::Create(shm));
    return std::make_unique<ShmServerFabric>(std::move(server));
  }
  explicit ShmServerFabric(std::unique_ptr<ShmServer> server) : server_(std::move(server)) {}

  ServerMemory memory() override { return server_->memory(); }
  uint32_t packet_bytes() const override { return server_->options().packet_bytes; }
  bool needs_crc() const override { return false; }
  PeerFence* fence() override { return nullptr; }
  std::string address() const override { return server_->options().socket_path; }
  std::string description() const override { return ""; }
  absl::Status Serve(ControlHandler* handler) override { return server_->Serve(handler); }
  void Stop() override { server_->Stop(); }

 private:
  const std::unique_ptr<ShmServer> server_;
};

#ifdef PANDO_HAVE_VERBS

class VerbsServerFabric final : public ServerFabric {
 public:
  static absl::StatusOr<std::unique_ptr<ServerFabric>> Create(const ServerFabricOptions& options) {
    VerbsServerOptions verbs;
    verbs.device = {options.device,    options.port,          options.gid_index,
                    options.mtu_bytes, options.traffic_class, options.service_level,
                    options.pkey_index};
    verbs.listen = options.listen;
    verbs.server_id = options.server_id;
    verbs.main_bytes = options.main_bytes;
    verbs.lock_bytes = options.lock_bytes;
    verbs.device_memory = options.device_memory;
    verbs.packet_bytes = options.packet_bytes;
    verbs.numa_node = options.numa_node;
    verbs.huge_pages = options.huge_pages;
    verbs.connections_max = options.connections_max;
    if (options.endpoints_max != 0) verbs.endpoints_max = options.endpoints_max;
    verbs.identity_timeout_ms = options.identity_timeout_ms;
    PANDO_ASSIGN_OR_RETURN(verbs.secret, LoadClusterSecret(options.secret_file));
    PANDO_ASSIGN_OR_RETURN(std::unique_ptr<VerbsServer> server, VerbsServer::Create(verbs));
    return std::make_unique<VerbsServerFabric>(std::move(server));
  }
  explicit VerbsServerFabric(std::unique_ptr<VerbsServer> server) : server_(std::move(server)) {}

  ServerMemory memory() override { return server_->memory(); }
  uint32_t packet_bytes() const override { return server_->options().packet_bytes; }
  bool needs_crc() const override { return server_->needs_crc(); }
  PeerFence* fence() override { return server_.get(); }
  std::string address() const override { return server_->address(); }
  std::string description() const override {
    return absl::StrCat(
        " over ", server_->DescribeDevice(),
        server_->on_chip_bytes() > 0 ? ", locks on the NIC" : ", locks in host memory");
  }
  absl::Status Serve(ControlHandler* handler) override { return server_->Serve(handler); }
  void Stop() override { server_->Stop(); }

 private:
  const std::unique_ptr<VerbsServer> server_;
};

#endif

}  // namespace

std::string ServerFabricNames() {
#ifdef PANDO_HAVE_VERBS
  return "shm, verbs";
#else
  return "shm";
#endif
}

absl::StatusOr<std::unique_ptr<ServerFabric>> ServerFabric::Create(
    const ServerFabricOptions& options) {
  if (options.fabric == "shm") return ShmServerFabric::Create(options);
#ifdef PANDO_HAVE_VERBS
  if (options.fabric == "verbs") return VerbsServerFabric::Create(options);
#endif
  return absl::InvalidArgumentError(
      absl::StrCat("unknown fabric '", options.fabric, "'; this build has: ", ServerFabricNames()));
}

}  // namespace pando::memory
