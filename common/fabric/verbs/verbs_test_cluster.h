// A cluster of in-process verbs servers for tests: each serves on a thread of its own; clients
// connect through real sockets, and verbs go through the device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/fabric/conformance.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "common/fabric/verbs/verbs_device.h"
#include "common/fabric/verbs/verbs_fabric.h"
#include "common/fabric/verbs/verbs_server.h"

namespace pando {

// Why tests that need an RDMA device cannot run here; "": they can.
inline std::string WhyNoVerbs() {
  const absl::StatusOr<DeviceChoice> choice = ChooseDevice(ListVerbsDevices(), {});
  return choice.ok() ? "" : std::string(choice.status().message());
}

// A server and the thread that serves.
class VerbsServerThread {
 public:
  VerbsServerThread(const VerbsServerOptions& options, ControlHandler* handler)
      : handler_(handler) {
    auto server = VerbsServer::Create(options);
    PANDO_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { PANDO_CHECK_OK(server_->Serve(&handler_)); });
  }
  ~VerbsServerThread() { Stop(); }

  VerbsServer& server() { return *server_; }
  PausableHandler& handler() { return handler_; }
  ServerLocation location() const { return {server_->options().server_id, server_->address()}; }
  void Stop() {
    if (!thread_.joinable()) return;
    server_->Stop();
    handler_.SetPaused(false);
    thread_.join();
  }

 private:
  PausableHandler handler_;
  std::unique_ptr<VerbsServer> server_;
  std::thread thread_;
};

class VerbsTestCluster final : public ConformanceCluster {
 public:
  VerbsTestCluster(const ConformanceOptions& options, const std::vector<ControlHandler*>& handlers,
                   const VerbsServerOptions& server_defaults = {},
                   const VerbsFabricOptions& fabric_options = {}) {
    std::vector<ServerLocation> locations;
    for (int i = 1; i <= options.servers; ++i) {
      VerbsServerOptions server = server_defaults;
      server.server_id = static_cast<ServerId>(i);
      server.main_bytes = options.main_bytes;
      server.lock_bytes = options.lock_bytes;
      server.packet_bytes = options.packet_bytes;
      auto thread = std::make_unique<VerbsServerThread>(server, handlers[i - 1]);
      locations.push_back(thread->location());
      servers_.emplace(server.server_id, std::move(thread));
    }
    for (int i = 0; i < options.fabrics; ++i) {
      auto fabric = ConnectVerbs(locations, fabric_options);
      PANDO_CHECK(fabric.ok()) << fabric.status();
      fabrics_.push_back(*std::move(fabric));
    }
  }

  Fabric& fabric(int index) override { return *fabrics_[index]; }
  ServerMemory memory(ServerId server) override { return servers_[server]->server().memory(); }
  bool threads_allowed() const override { return true; }
  void StopServer(ServerId server) override { servers_[server]->Stop(); }
  void CloseFabric(int index) override { fabrics_[index].reset(); }
  bool PauseCalls(ServerId server) override {
    servers_[server]->handler().SetPaused(true);
    return true;
  }
  void ResumeCalls(ServerId server) override { servers_[server]->handler().SetPaused(false); }

  VerbsServerThread& server(ServerId id) { return *servers_[id]; }

 private:
  std::map<ServerId, std::unique_ptr<VerbsServerThread>> servers_;
  std::vector<std::shared_ptr<Fabric>> fabrics_;
};

}  // namespace pando
