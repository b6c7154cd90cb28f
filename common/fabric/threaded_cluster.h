// For tests: memory servers of a backend in this process, each serving on a thread of its own, and
// fabrics that connect to them through real sockets.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/fabric/conformance.h"
#include "common/registry/server_location.h"

namespace pando {

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
  bool IsKnown(PeerId peer) const override { return handler_->IsKnown(peer); }
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

// A ShmServer or VerbsServer and the thread that serves.
template <typename Server, typename Options>
class ServerThread {
 public:
  ServerThread(const Options& options, ControlHandler* handler) : handler_(handler) {
    auto server = Server::Create(options);
    PANDO_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { PANDO_CHECK_OK(server_->Serve(&handler_)); });
  }
  ~ServerThread() { Stop(); }

  Server& server() { return *server_; }
  PausableHandler& handler() { return handler_; }
  ServerLocation location() const { return LocationOf(*server_); }
  void Stop() {
    if (!thread_.joinable()) return;
    server_->Stop();
    handler_.SetPaused(false);
    thread_.join();
  }

 private:
  PausableHandler handler_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

// What the constructors of the backends' clusters fill.
template <typename Server, typename Options>
class ThreadedCluster : public ConformanceCluster {
 public:
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
  ServerLocation StartServer(ServerId server, ControlHandler* handler,
                             uint32_t packet_bytes) override {
    servers_[server].reset();  // it may keep the address
    servers_[server] = start_(server, handler, packet_bytes);
    return servers_[server]->location();
  }

  ServerThread<Server, Options>& server(ServerId id) { return *servers_[id]; }

 protected:
  // One server for each id from 1 on; `set_place`: what else its options need.
  template <typename SetPlace>
  void StartServers(const ConformanceOptions& wanted, const std::vector<ControlHandler*>& handlers,
                    const Options& defaults, const SetPlace& set_place) {
    start_ = [=](ServerId id, ControlHandler* handler, uint32_t packet_bytes) {
      Options options = defaults;
      options.server_id = id;
      options.main_bytes = wanted.main_bytes;
      options.lock_bytes = wanted.lock_bytes;
      options.packet_bytes = packet_bytes;
      set_place(&options);
      return std::make_unique<ServerThread<Server, Options>>(options, handler);
    };
    for (int i = 1; i <= wanted.servers; ++i) {
      const auto id = static_cast<ServerId>(i);
      servers_.emplace(id, start_(id, handlers[i - 1], wanted.packet_bytes));
    }
  }
  template <typename Connect>
  void ConnectFabrics(int count, const Connect& connect) {
    std::vector<ServerLocation> locations;
    for (const auto& [id, server] : servers_) locations.push_back(server->location());
    for (int i = 0; i < count; ++i) {
      auto fabric = connect(locations);
      PANDO_CHECK(fabric.ok()) << fabric.status();
      fabrics_.push_back(*std::move(fabric));
    }
  }

 private:
  std::function<std::unique_ptr<ServerThread<Server, Options>>(ServerId, ControlHandler*, uint32_t)>
      start_;
  std::map<ServerId, std::unique_ptr<ServerThread<Server, Options>>> servers_;
  std::vector<std::shared_ptr<Fabric>> fabrics_;
};

}  // namespace pando
