// The fabric contract, in every delivery mode.
#include <memory>
#include <vector>

#include "common/fabric/conformance.h"
#include "common/fabric/sim/sim_world.h"

namespace pando::sim {
namespace {

class SimCluster final : public ConformanceCluster {
 public:
  SimCluster(const SimOptions& sim_options, const ConformanceOptions& options,
             const std::vector<ControlHandler*>& handlers)
      : world_(sim_options) {
    for (int i = 1; i <= options.servers; ++i) {
      const auto id = static_cast<ServerId>(i);
      world_.AddServer(id, options.main_bytes, options.lock_bytes);
      world_.SetHandler(id, handlers[i - 1]);
    }
    for (int i = 0; i < options.fabrics; ++i) fabrics_.push_back(world_.NewFabric());
  }
  ~SimCluster() override { fabrics_.clear(); }

  Fabric& fabric(int index) override { return *fabrics_[index]; }
  ServerMemory memory(ServerId server) override { return world_.Memory(server); }
  bool threads_allowed() const override { return false; }
  void StopServer(ServerId server) override { world_.KillServer(server); }
  void CloseFabric(int index) override { fabrics_[index].reset(); }
  bool PauseCalls(ServerId server) override {
    world_.PauseCalls(server, true);
    return true;
  }
  void ResumeCalls(ServerId server) override { world_.PauseCalls(server, false); }
  PeerFence* fence(ServerId server) override { return world_.Fence(server); }

 private:
  SimWorld world_;
  std::vector<std::shared_ptr<Fabric>> fabrics_;
};

ConformanceBackend Backend(const std::string& name, DeliveryMode mode, bool write_unlock) {
  return {name,
          [=](const ConformanceOptions& options, const std::vector<ControlHandler*>& handlers) {
            SimOptions sim_options;
            sim_options.seed = options.seed;
            sim_options.mode = mode;
            sim_options.packet_bytes = options.packet_bytes;
            sim_options.write_unlock = write_unlock;
            return std::make_unique<SimCluster>(sim_options, options, handlers);
          }};
}

}  // namespace
}  // namespace pando::sim

namespace pando {

INSTANTIATE_TEST_SUITE_P(
    Sim, FabricConformance,
    testing::Values(sim::Backend("lines", sim::DeliveryMode::kLines, true),
                    sim::Backend("lines_cas_unlock", sim::DeliveryMode::kLines, false),
                    sim::Backend("words", sim::DeliveryMode::kWords, true),
                    sim::Backend("shm_order", sim::DeliveryMode::kShmOrder, true),
                    sim::Backend("whole", sim::DeliveryMode::kWhole, true)),
    ConformanceName);

}  // namespace pando
