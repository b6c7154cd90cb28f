// Members of a map in a shared tree on the simulated fabric: queue pairs that break, members that
// are stopped, and killed between any two packets.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "bench/owned/map_stage.h"

namespace pando {

struct SimStageOptions {
  uint64_t seed = 1;
  sim::DeliveryMode mode = sim::DeliveryMode::kWhole;
  size_t members = 3;
  int steps = 50;
  uint64_t patience_ns_max = 2'000'000;
  double break_probability = 0;
  int pauses = 0;
  // Entries of other trees, which the map has before.
  int entries_before = 0;
  // Another session of each member writes to the same leaves meanwhile: changes wait for its
  // locks, or are left to it (rule U2).
  bool neighbours = false;
};

class SimStage : public MapStage {
 public:
  explicit SimStage(const SimStageOptions& options);
  ~SimStage() override;

 protected:
  struct ComputeServer {
    std::shared_ptr<Fabric> fabric;
    std::unique_ptr<Client> client;
    std::unique_ptr<Tree> tree;
    std::unique_ptr<Session> session;
    std::unique_ptr<SharedMapStore> store;
    std::unique_ptr<Session> neighbour;
  };

  sim::SimWorld& world() override { return cluster_.world(); }
  void BeUnkind() override;
  void BeKind() override;
  bool End(size_t which) override;
  void AwaitFence(size_t which) override;

  void Kill(size_t which);
  ComputeServer& server(size_t i) { return servers_[i]; }
  int memory_servers() const { return cluster_.memory_servers(); }

 private:
  void LoadOthers();
  void StartNeighbour(size_t which);
  void Pause(size_t which, int64_t at_ns, int64_t for_ns);
  void Leave(ComputeServer* server);

  const SimStageOptions options_;
  SimCluster cluster_;
  std::vector<ComputeServer> servers_;
  bool kind_ = true;
};

}  // namespace pando
