// A cluster of in-process verbs servers for tests: each serves on a thread of its own; clients
// connect through real sockets, and verbs go through the device.
#pragma once

#include <string>
#include <vector>

#include "common/fabric/threaded_cluster.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_fabric.h"
#include "common/fabric/verbs/verbs_server.h"

namespace pando {

// Why tests that need an RDMA device cannot run here; "": they can.
inline std::string WhyNoVerbs() {
  const absl::StatusOr<DeviceChoice> choice = ChooseDevice(ListVerbsDevices(), {});
  return choice.ok() ? "" : std::string(choice.status().message());
}

// Skips its tests where there is none.
class VerbsDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why_not = WhyNoVerbs();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }
};

inline ServerLocation LocationOf(const VerbsServer& server) {
  return {server.options().server_id, server.address()};
}

using VerbsServerThread = ServerThread<VerbsServer, VerbsServerOptions>;

class VerbsTestCluster final : public ThreadedCluster<VerbsServer, VerbsServerOptions> {
 public:
  VerbsTestCluster(const ConformanceOptions& options, const std::vector<ControlHandler*>& handlers,
                   const VerbsServerOptions& server_defaults = {},
                   const VerbsFabricOptions& fabric_options = {}) {
    StartServers(options, handlers, server_defaults, [](VerbsServerOptions*) {});
    ConnectFabrics(options.fabrics, [&fabric_options](const auto& servers) {
      return ConnectVerbs(servers, fabric_options);
    });
  }
};

}  // namespace pando
