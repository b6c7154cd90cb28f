// A cluster on the simulated fabric: memory servers, clients and sessions in one thread, from one
// seed. For tests and counts; pando-sim has its own, with faults.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/client/connect.h"
#include "compute/lock/hocl.h"
#include "memory/memory_server.h"
#include "memory/sim_identity.h"
#include "pando/client.h"

namespace pando {

class SimCluster {
 public:
  struct Options {
    sim::SimOptions sim;
    int memory_servers = 2;
    uint64_t main_bytes = uint64_t{256} << 20;
    uint64_t first_main_bytes = 0;  // of the catalog's server; 0: as the others
    uint64_t lock_words = 32768;
    uint32_t chunk_bytes = 1 << 20;
    // 0: only the end of a process is a death, as on shm.
    int64_t lease_ns = 0;
    int64_t serving_lease_ns = kSecondNs;  // of owners, where there are leases
  };

  explicit SimCluster(const Options& options) : options_(options), world_(options.sim) {
    for (int i = 1; i <= options.memory_servers; ++i) {
      servers_.push_back(Start(static_cast<ServerId>(i), /*life=*/1));
    }
  }
  // One more memory server, which clients that were there before do not know yet.
  ServerId StartOneMore() {
    const auto id = static_cast<ServerId>(servers_.size() + 1);
    servers_.push_back(Start(id, /*life=*/1));
    return id;
  }
  // A memory server dies, and starts again with empty memory.
  void StartAgain(ServerId id) {
    world_.KillServer(id);
    world_.SetHandler(id, nullptr);
    servers_[id - size_t{1}] = Start(id, ++lives_);
  }

  // A compute server. Clients must be gone before the cluster.
  std::unique_ptr<Client> NewClient(const ClientOptions& options = {}) {
    return Connect(options, world_.NewFabric());
  }
  // On the host of a memory server, whose NIC it shares (SimOptions::nic).
  std::unique_ptr<Client> NewClientOnHostOf(ServerId server, const ClientOptions& options) {
    return Connect(options, world_.NewFabricOnHostOf(server));
  }

  sim::SimWorld& world() { return world_; }
  int memory_servers() const { return static_cast<int>(servers_.size()); }
  memory::MemoryServer& server(int index) { return *servers_[static_cast<size_t>(index)]; }
  // The sum over the memory servers; 0: nobody has such a counter.
  uint64_t Counter(const std::string& name) const {
    uint64_t sum = 0;
    for (const auto& server : servers_) {
      for (const auto& [counter, value] : server->Counters()) sum += counter == name ? value : 0;
    }
    return sum;
  }

  // Remote memory, as the servers see it.
  std::byte* At(RemoteAddress address) {
    return world_.Memory(address.server()).main.data() + address.offset();
  }
  uint64_t LockWordAt(const LockTarget& target) {
    uint64_t word;
    std::memcpy(&word, LockAt(target), sizeof(word));
    return word;
  }
  void SetLockWord(const LockTarget& target, uint64_t word) {
    std::memcpy(LockAt(target), &word, sizeof(word));
  }

 private:
  std::unique_ptr<Client> Connect(ClientOptions options, std::shared_ptr<Fabric> fabric) {
    if (options.seed == 0) options.seed = options_.sim.seed * 1000 + ++clients_;
    auto client = ConnectOverFabric(options, std::move(fabric));
    PANDO_CHECK_OK(client.status());
    return *std::move(client);
  }

  std::unique_ptr<memory::MemoryServer> Start(ServerId id, uint64_t life) {
    const bool is_first = id == 1 && options_.first_main_bytes > 0;
    const uint64_t main_bytes = is_first ? options_.first_main_bytes : options_.main_bytes;
    const ServerMemory memory = world_.AddServer(id, main_bytes, options_.lock_words * 8);
    auto server = memory::MemoryServer::Create(
        memory, {.server_id = id,
                 .is_catalog = id == 1,
                 .chunk_bytes = options_.chunk_bytes,
                 .needs_crc = options_.sim.mode == sim::DeliveryMode::kWords,
                 .life = life,
                 .lease_ns = options_.lease_ns,
                 .fence = options_.lease_ns > 0 ? world_.Fence(id) : nullptr,
                 .serving_lease_ns = options_.serving_lease_ns,
                 .identity_key = memory::SimIdentityKey(),
                 .clock = &world_.clock()});
    PANDO_CHECK_OK(server.status());
    world_.SetHandler(id, server->get());
    return *std::move(server);
  }

  std::byte* LockAt(const LockTarget& target) {
    return world_.Memory(target.server).locks.data() + uint64_t{target.word} * sizeof(uint64_t);
  }

  const Options options_;
  sim::SimWorld world_;
  std::vector<std::unique_ptr<memory::MemoryServer>> servers_;
  uint64_t clients_ = 0, lives_ = 1;
};

// Eight bytes, big-endian: keys that sort like the numbers.
inline std::string KeyOf(uint64_t n) {
  std::string key(8, '\0');
  for (int i = 7; i >= 0; --i, n >>= 8) key[static_cast<size_t>(i)] = static_cast<char>(n & 0xff);
  return key;
}

}  // namespace pando
