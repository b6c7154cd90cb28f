#include "common/fabric/shm/shm_fabric.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/fabric/shm/shm_client.h"
#include "common/fabric/shm/shm_endpoint.h"
#include "common/fabric/shm/shm_peers.h"

namespace pando {
namespace {

class ShmFabric final : public Fabric {
 public:
  explicit ShmFabric(std::shared_ptr<ShmClient> client) : client_(std::move(client)) {
    capabilities_.name = "shm";
    capabilities_.lines_atomic = false;
    capabilities_.needs_crc = false;
    capabilities_.write_unlock = true;
    capabilities_.min_write_interval_ns = 0;  // endpoints time their READs (timed_copy.h)
    capabilities_.few_bytes_pay = false;
    capabilities_.cheap_messages = false;
    capabilities_.packet_bytes = UINT32_MAX;
    for (const auto& link : client_->links()) {
      capabilities_.packet_bytes =
          std::min(capabilities_.packet_bytes, link->region.geometry().packet_bytes);
    }
    capabilities_.inline_bytes = capabilities_.packet_bytes;
  }

  const Capabilities& capabilities() const override { return capabilities_; }

  std::vector<ServerId> servers() const override { return client_->servers(); }

  uint64_t SpaceBytes(ServerId server, MemorySpace space) const override {
    const std::shared_ptr<ShmLink> link = client_->LinkTo(server);
    return link == nullptr ? 0 : link->region.space_bytes(space);
  }

  absl::StatusOr<std::unique_ptr<Endpoint>> Connect(uint16_t compute_server,
                                                    uint32_t incarnation) override {
    return ShmEndpoint::Open(client_, compute_server, incarnation);
  }

  absl::StatusOr<uint32_t> AddServer(const ServerLocation& location,
                                     const std::function<void()>& about_to_add) override {
    return client_->AddServer(location, about_to_add, capabilities_.packet_bytes);
  }
  bool IsConnected(ServerId server) const override { return client_->IsConnected(server); }
  absl::StatusOr<std::unique_ptr<PeerPort>> OpenPeers(const PeerOptions& options) override {
    if (options.acceptor == nullptr || !options.address.empty()) return OpenShmPeers(options);
    return OpenBesideServer(options);
  }
  void Disconnect(ServerId server) override { client_->Disconnect(server); }

 private:
  // Nobody else alive on this host has a name with this process's number; where several of its
  // worlds share the directory (containers) one of the next is free.
  absl::StatusOr<std::unique_ptr<PeerPort>> OpenBesideServer(PeerOptions options) {
    constexpr int kNamesMax = 100;
    const std::string& server = client_->links().front()->location.address;
    const std::string directory = server.substr(0, server.rfind('/') + 1);
    absl::StatusOr<std::unique_ptr<PeerPort>> port;
    for (int i = 0; i < kNamesMax && !port.ok(); ++i) {
      options.address = absl::StrCat(directory, "peer-", getpid(), "-", i);
      port = OpenShmPeers(options);
      if (!port.ok() && !absl::IsAlreadyExists(port.status())) break;
    }
    return port;
  }

  const std::shared_ptr<ShmClient> client_;
  Capabilities capabilities_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Fabric>> ConnectShm(const std::vector<ServerLocation>& servers,
                                                   const ShmFabricOptions& options) {
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<ShmClient> client, ShmClient::Connect(servers, options));
  return std::make_shared<ShmFabric>(std::move(client));
}

}  // namespace pando
