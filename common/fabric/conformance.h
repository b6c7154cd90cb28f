// The fabric contract (fabric.h), test by test, for every backend.
//
// A backend's test program compiles common/fabric/conformance*.cpp in and instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Shm, FabricConformance,
//                            testing::Values(ConformanceBackend{"plain", MakeShmCluster}),
//                            ConformanceName);
//
// Concurrency is written so that threads and a single-threaded simulator can both run it: an Actor
// is a small state machine that posts one chain at a time on an endpoint of its own; RunActors()
// runs each on a thread where the backend allows it, else interleaves them on the calling thread
// and lets Endpoint::Wait() drive the events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/fabric/fabric.h"
#include "common/fabric/server.h"
#include "gtest/gtest.h"

namespace pando {

struct ConformanceOptions {
  int servers = 2;  // ids 1..servers
  int fabrics = 2;  // client processes, as far as the servers can tell: each is a peer of its own
  uint64_t main_bytes = 1 << 20;
  uint64_t lock_bytes = 64 << 10;
  uint32_t packet_bytes = 1024;
  uint64_t seed = 1;
};

// Servers and clients of one test. Destroyed before the handlers, after all endpoints.
class ConformanceCluster {
 public:
  virtual ~ConformanceCluster() = default;

  // `index` in [0, fabrics).
  virtual Fabric& fabric(int index) = 0;
  // The server's own view of its memory.
  virtual ServerMemory memory(ServerId server) = 0;
  // Endpoints of one fabric, and of different ones, may be used on several threads at once.
  virtual bool threads_allowed() const = 0;
  // Ends the server in order. What happens on the clients' side is the test's business.
  virtual void StopServer(ServerId server) = 0;
  // Drops the fabric (its endpoints are gone already): an orderly leave of that process.
  // fabric(index) is invalid then.
  virtual void CloseFabric(int index) = 0;
  // From now on (until Resume) no call to this server is answered. False: this backend cannot do
  // that.
  virtual bool PauseCalls(ServerId server) = 0;
  virtual void ResumeCalls(ServerId server) = 0;
  // Starts one more server, or one that was stopped: another life, which begins empty. No fabric is
  // connected to it. For conformance_members.cpp.
  virtual ServerLocation StartServer(ServerId /*server*/, ControlHandler* /*handler*/,
                                     uint32_t /*packet_bytes*/) {
    return {};
  }
  // Cuts living clients off from the server. Null: this backend cannot do that.
  virtual PeerFence* fence(ServerId /*server*/) { return nullptr; }
};

struct ConformanceBackend {
  std::string name;
  // handlers[i] serves server i + 1.
  std::function<std::unique_ptr<ConformanceCluster>(const ConformanceOptions&,
                                                    const std::vector<ControlHandler*>& handlers)>
      make;
  // Why this machine cannot run it; "": it can.
  std::function<std::string()> why_not = {};
};

template <typename Cluster>
ConformanceBackend MakeBackend(std::string name, std::function<std::string()> why_not = {}) {
  return {std::move(name),
          [](const ConformanceOptions& options, const std::vector<ControlHandler*>& handlers) {
            return std::make_unique<Cluster>(options, handlers);
          },
          std::move(why_not)};
}

inline std::string ConformanceName(const testing::TestParamInfo<ConformanceBackend>& info) {
  return info.param.name;
}

// Answers "echo:" + request; remembers who called and who left, and when it was called by itself.
class EchoHandler : public ControlHandler {
 public:
  std::string Handle(PeerId peer, std::string_view request) override;
  void OnPeerGone(PeerId peer) override;
  int64_t OnTimer(int64_t now_ns) override;

  std::set<PeerId> callers() const;
  std::vector<PeerId> gone() const;
  // From the next OnTimer() on: wants to be called so much later, this many times in a row.
  void AskForTimers(int count, int64_t delay_ns);
  int timers_passed() const;

 private:
  mutable std::mutex mutex_;
  std::set<PeerId> callers_;
  std::vector<PeerId> gone_;
  int64_t timer_delay_ns_ = 0;
  int64_t timer_due_ns_ = kNeverNs;
  int timers_left_ = 0, timers_passed_ = 0;
};

// Posts chains one after the other. Step() is called when `chain` is done (or before its first
// use): it looks at the outcome, builds the next chain and returns true to post it, or returns
// false when finished.
class Actor {
 public:
  virtual ~Actor() = default;
  virtual bool Step() = 0;

  std::unique_ptr<Endpoint> endpoint;
  Chain chain;
};

class FabricConformance : public testing::TestWithParam<ConformanceBackend> {
 protected:
  static constexpr ServerId kServer = 1;

  void SetUp() override {
    const std::string why_not = GetParam().why_not ? GetParam().why_not() : "";
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    Start(ConformanceOptions{});
  }
  void TearDown() override;
  // Starts over with other options. No endpoint of the test may be left.
  void Start(const ConformanceOptions& options);

  std::unique_ptr<Endpoint> Connect(int fabric = 0);
  LocalBuffer Buffer(Endpoint& endpoint, size_t bytes);
  // Posts and waits for completion.
  void Run(Endpoint& endpoint, Chain& chain);
  // Posts FETCH_ADDs of 0 to the server until one fails, which is to be within 2 s and Unavailable.
  void RunUntilUnavailable(Endpoint& endpoint, ServerId server);
  // Contract 4: whatever is posted to the server fails like that from now on.
  void ExpectStaysUnavailable(Endpoint& endpoint, ServerId server);
  void Finish(Endpoint& endpoint, Chain& chain);
  void Finish(Endpoint& endpoint, PendingCall& call);
  // With a handler of its own. `packet_bytes`: 0: as the others.
  ServerLocation StartServer(ServerId server, uint32_t packet_bytes = 0);
  // Adds 1 to a word of the server's main space.
  absl::Status Add(Endpoint& endpoint, ServerId server, uint64_t offset = 0);
  absl::Status Call(Endpoint& endpoint, ServerId server);
  std::string Ask(Endpoint& endpoint, ServerId server, std::string request);
  // Runs all actors to their end; gives each an endpoint first (of fabric i % fabrics).
  void RunActors(std::span<Actor* const> actors);

  uint64_t Word(MemorySpace space, uint64_t offset, ServerId server = kServer);
  void SetWord(MemorySpace space, uint64_t offset, uint64_t value, ServerId server = kServer);

  ConformanceOptions options_;
  std::map<ServerId, std::unique_ptr<EchoHandler>> handlers_;
  std::unique_ptr<ConformanceCluster> cluster_;
};

}  // namespace pando
