// Small pieces for the simulator's own tests.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/fabric/sim/sim_world.h"
#include "gtest/gtest.h"

namespace pando::sim {

inline constexpr ServerId kServer = 1;

// One client of a test: an endpoint, a buffer, a chain.
struct TestClient {
  explicit TestClient(std::shared_ptr<Fabric> on) : fabric(std::move(on)) {
    endpoint = fabric->Connect(1, 1).value();
    buffer = endpoint->AllocateBuffer(4096).value();
    chain.Reset(kServer);
  }

  void Run() {
    endpoint->Post(&chain);
    Finish();
  }
  void Finish() {
    while (!chain.done()) endpoint->Wait(kNeverNs);
  }
  void Store(uint32_t offset, uint64_t value) { std::memcpy(buffer.data + offset, &value, 8); }
  uint64_t Load(uint32_t offset) const {
    uint64_t value;
    std::memcpy(&value, buffer.data + offset, 8);
    return value;
  }

  // Posts WRITEs of 1 KiB of 1 to 4096, and of 2 to 8192.
  void PostTwoWrites() {
    for (uint32_t at = 0; at < 2048; at += 8) Store(at, 1 + at / 1024);
    chain.Write(MemorySpace::kMain, 4096, buffer.Slice(0, 1024));
    chain.Write(MemorySpace::kMain, 8192, buffer.Slice(1024, 1024));
    endpoint->Post(&chain);
  }

  // A WRITE of the buffer's first word arrives there.
  void ExpectReaches(ServerId server, const ServerMemory& memory) {
    chain.Reset(server);
    chain.Write(MemorySpace::kMain, 4096, buffer.Slice(0, 8));
    Run();
    EXPECT_TRUE(chain.ok()) << chain.status();
    EXPECT_EQ(std::memcmp(memory.main.data() + 4096, buffer.data, 8), 0);
  }

  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Endpoint> endpoint;
  LocalBuffer buffer;
  Chain chain;
};

// Remembers which peers have gone.
class GoneHandler : public ControlHandler {
 public:
  std::string Handle(PeerId, std::string_view) override { return "ok"; }
  void OnPeerGone(PeerId peer) override { gone.push_back(peer); }
  std::vector<PeerId> gone;
};

// A world with one server.
struct TestWorld {
  explicit TestWorld(const SimOptions& options) : world(options) {
    memory = world.AddServer(kServer, 1 << 20, 64 << 10);
  }
  uint64_t Word(uint64_t offset) const {
    uint64_t value;
    std::memcpy(&value, memory.main.data() + offset, 8);
    return value;
  }
  void SetWord(uint64_t offset, uint64_t value) {
    std::memcpy(memory.main.data() + offset, &value, 8);
  }

  SimWorld world;
  ServerMemory memory;
};

}  // namespace pando::sim
