// A cluster of in-process shm servers for tests: each serves on a thread of its own; clients
// connect through real sockets and map the memory a second time.
#pragma once

#include <stdlib.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/fabric/conformance.h"
#include "common/fabric/shm/shm_fabric.h"
#include "common/fabric/shm/shm_server.h"

namespace pando {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/pando-shm-XXXXXX";
    PANDO_CHECK(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Holds calls back while paused.
class PausableHandler : public ControlHandler {
 public:
  explicit PausableHandler(ControlHandler* handler) : handler_(handler) {}

  std::string Handle(PeerId peer, std::string_view request) override {
    {
      std::unique_lock lock(mutex_);
      resumed_.wait(lock, [this] { return !paused_; });
    }
    return handler_->Handle(peer, request);
  }
  void OnPeerGone(PeerId peer) override { handler_->OnPeerGone(peer); }
  int64_t OnTimer(int64_t now_ns) override { return handler_->OnTimer(now_ns); }
  void SetPaused(bool paused) {
    std::lock_guard lock(mutex_);
    paused_ = paused;
    resumed_.notify_all();
  }

 private:
  ControlHandler* const handler_;
  std::mutex mutex_;
  std::condition_variable resumed_;
  bool paused_ = false;
};

// A server and the thread that serves.
class ShmServerThread {
 public:
  ShmServerThread(const ShmServerOptions& options, ControlHandler* handler) : handler_(handler) {
    auto server = ShmServer::Create(options);
    PANDO_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { PANDO_CHECK_OK(server_->Serve(&handler_)); });
  }
  ~ShmServerThread() { Stop(); }

  ShmServer& server() { return *server_; }
  PausableHandler& handler() { return handler_; }
  ServerLocation location() const {
    return {server_->options().server_id, server_->options().socket_path};
  }
  void Stop() {
    if (!thread_.joinable()) return;
    server_->Stop();
    handler_.SetPaused(false);
    thread_.join();
  }

 private:
  PausableHandler handler_;
  std::unique_ptr<ShmServer> server_;
  std::thread thread_;
};

class ShmTestCluster final : public ConformanceCluster {
 public:
  ShmTestCluster(const ConformanceOptions& options, const std::vector<ControlHandler*>& handlers) {
    std::vector<ServerLocation> locations;
    for (int i = 1; i <= options.servers; ++i) {
      ShmServerOptions server;
      server.socket_path = directory_.path() + "/" + std::to_string(i);
      server.server_id = static_cast<ServerId>(i);
      server.main_bytes = options.main_bytes;
      server.lock_bytes = options.lock_bytes;
      server.packet_bytes = options.packet_bytes;
      auto thread = std::make_unique<ShmServerThread>(server, handlers[i - 1]);
      locations.push_back(thread->location());
      servers_.emplace(server.server_id, std::move(thread));
    }
    for (int i = 0; i < options.fabrics; ++i) {
      auto fabric = ConnectShm(locations);
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

  ShmServerThread& server(ServerId id) { return *servers_[id]; }

 private:
  TemporaryDirectory directory_;
  std::map<ServerId, std::unique_ptr<ShmServerThread>> servers_;
  std::vector<std::shared_ptr<Fabric>> fabrics_;
};

}  // namespace pando
