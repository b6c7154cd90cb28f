// A cluster of in-process shm servers for tests: each serves on a thread of its own; clients
// connect through real sockets and map the memory a second time.
#pragma once

#include <string>
#include <vector>

#include "common/base/temporary_directory.h"
#include "common/fabric/shm/shm_fabric.h"
#include "common/fabric/shm/shm_server.h"
#include "common/fabric/threaded_cluster.h"

namespace pando {

inline ServerLocation LocationOf(const ShmServer& server) {
  return {server.options().server_id, server.options().socket_path};
}

using ShmServerThread = ServerThread<ShmServer, ShmServerOptions>;

// The directory is a base, so that it goes last.
class ShmTestCluster final : private TemporaryDirectory,
                             public ThreadedCluster<ShmServer, ShmServerOptions> {
 public:
  ShmTestCluster(const ConformanceOptions& options, const std::vector<ControlHandler*>& handlers) {
    StartServers(options, handlers, ShmServerOptions(), [this](ShmServerOptions* server) {
      server->socket_path = path() + "/" + std::to_string(server->server_id);
    });
    ConnectFabrics(options.fabrics, [](const auto& servers) { return ConnectShm(servers); });
  }
};

}  // namespace pando
