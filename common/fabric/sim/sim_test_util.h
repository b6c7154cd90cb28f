// Small pieces for the simulator's own tests.
#pragma once

#include <cstring>
#include <memory>
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

  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Endpoint> endpoint;
  LocalBuffer buffer;
  Chain chain;
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
