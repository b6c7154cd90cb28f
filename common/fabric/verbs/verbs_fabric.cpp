#include "common/fabric/verbs/verbs_fabric.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/verbs/verbs_client.h"
#include "common/fabric/verbs/verbs_endpoint.h"
#include "common/fabric/verbs/verbs_handshake.h"
#include "common/fabric/verbs/verbs_peers.h"

namespace pando {
namespace {

// Rule F2: between two writes of one line lies a round trip, on NICs more than a microsecond, on
// software devices several.
constexpr int64_t kMinWriteIntervalNs = kMicrosecondNs;
constexpr int64_t kMinWriteIntervalSoftwareNs = 5 * kMicrosecondNs;

class VerbsFabric final : public Fabric {
 public:
  explicit VerbsFabric(std::shared_ptr<VerbsClient> client) : client_(std::move(client)) {
    const VerbsDevice& device = client_->device();
    capabilities_.name = "verbs";
    capabilities_.lines_atomic = !device.is_software();
    capabilities_.write_unlock = true;
    capabilities_.packet_bytes = device.path().mtu_bytes;
    capabilities_.on_chip_bytes = UINT32_MAX;
    uint32_t mtu_bytes = device.path().mtu_bytes;
    for (const auto& link : client_->links()) {
      const VerbsMemory& server = link->memory;
      capabilities_.lines_atomic = capabilities_.lines_atomic && server.lines_atomic != 0;
      capabilities_.write_unlock = capabilities_.write_unlock && server.write_unlock != 0;
      capabilities_.packet_bytes =
          std::min({capabilities_.packet_bytes, server.packet_bytes, server.mtu_bytes});
      mtu_bytes = std::min(mtu_bytes, server.mtu_bytes);
      capabilities_.on_chip_bytes = std::min(capabilities_.on_chip_bytes, server.on_chip_bytes);
    }
    capabilities_.needs_crc = !capabilities_.lines_atomic;
    capabilities_.inline_bytes = client_->options().inline_bytes;
    capabilities_.min_write_interval_ns =
        capabilities_.lines_atomic ? kMinWriteIntervalNs : kMinWriteIntervalSoftwareNs;
    // A NIC fetches a packet of a READ within a microsecond or two, and what it sends again it
    // fetches again; a kernel may be held up in the middle of a line. MTUs are powers of two, so
    // that the smallest's packets end wherever a larger one's do.
    capabilities_.read_packet_bytes = capabilities_.lines_atomic ? mtu_bytes : 0;
    // Where a kernel sends packets each of them costs more than the bytes of a leaf.
    capabilities_.few_bytes_pay = capabilities_.lines_atomic;
    capabilities_.cheap_messages = capabilities_.lines_atomic;
  }

  const Capabilities& capabilities() const override { return capabilities_; }

  std::vector<ServerId> servers() const override { return client_->servers(); }

  uint64_t SpaceBytes(ServerId server, MemorySpace space) const override {
    const std::shared_ptr<VerbsLink> link = client_->LinkTo(server);
    if (link == nullptr) return 0;
    return space == MemorySpace::kMain ? link->memory.main_bytes : link->memory.lock_bytes;
  }

  absl::StatusOr<std::unique_ptr<Endpoint>> Connect(uint16_t compute_server,
                                                    uint32_t incarnation) override {
    return VerbsEndpoint::Open(client_, capabilities_.packet_bytes, compute_server, incarnation);
  }

  absl::StatusOr<uint32_t> AddServer(const ServerLocation& location,
                                     const std::function<void()>& about_to_add) override {
    return client_->AddServer(location, about_to_add, capabilities_);
  }
  bool IsConnected(ServerId server) const override { return client_->IsConnected(server); }
  void Disconnect(ServerId server) override { client_->Disconnect(server); }

  absl::StatusOr<std::string> CallOnFreshConnection(ServerId server,
                                                    std::string_view request) override {
    const std::shared_ptr<VerbsLink> link = client_->LinkTo(server);
    if (link == nullptr) {
      return absl::UnavailableError(absl::StrCat("server ", server, " is not connected"));
    }
    return CallVerbsServer(link->location, client_->options(), request);
  }

  absl::StatusOr<std::unique_ptr<PeerPort>> OpenPeers(const PeerOptions& options) override {
    return OpenVerbsPeers(client_->shared_device(),
                          {client_->options().silence_ms, client_->options().secret}, options);
  }

  void BreakConnection(ServerId server) { client_->BreakConnection(server); }

 private:
  const std::shared_ptr<VerbsClient> client_;
  Capabilities capabilities_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Fabric>> ConnectVerbs(const std::vector<ServerLocation>& servers,
                                                     const VerbsFabricOptions& options) {
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<VerbsClient> client,
                         VerbsClient::Connect(servers, options));
  return std::make_shared<VerbsFabric>(std::move(client));
}

const VerbsCounters& VerbsCountersOf(const Endpoint& endpoint) {
  const auto* const verbs = dynamic_cast<const VerbsEndpoint*>(&endpoint);
  PANDO_CHECK(verbs != nullptr) << "not an endpoint of a verbs fabric";
  return verbs->counters();
}

void BreakVerbsConnection(Fabric* fabric, ServerId server) {
  auto* const verbs = dynamic_cast<VerbsFabric*>(fabric);
  PANDO_CHECK(verbs != nullptr) << "not a verbs fabric";
  verbs->BreakConnection(server);
}

void BreakVerbsQueuePair(Endpoint* endpoint, ServerId server) {
  auto* const verbs = dynamic_cast<VerbsEndpoint*>(endpoint);
  PANDO_CHECK(verbs != nullptr) << "not an endpoint of a verbs fabric";
  verbs->BreakQueuePair(server);
}

}  // namespace pando
