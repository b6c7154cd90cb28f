// Links between compute servers, kindly and unkindly timed.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/fabric/peer_conformance.h"
#include "common/fabric/sim/sim_world.h"

namespace pando::sim {
namespace {

class SimPeerCluster final : public PeerCluster {
 public:
  explicit SimPeerCluster(const SimOptions& options) : world_(options) {
    for (int i = 0; i < kFabrics; ++i) fabrics_.push_back(world_.NewFabric());
  }

  Fabric& fabric(int index) override { return *fabrics_[static_cast<size_t>(index)]; }
  bool threads_allowed() const override { return false; }
  bool RunUntil(const std::function<bool()>& done) override {
    const int64_t until_ns = world_.clock().NowNs() + 20 * kSecondNs;
    while (!done()) {
      if (world_.clock().NowNs() > until_ns || !world_.Step()) return done();
    }
    return true;
  }
  void RunFor(int64_t ns) override { world_.RunUntil(world_.clock().NowNs() + ns); }
  std::string FreeAddress() override { return "nobody"; }

  std::string StartEcho() override {
    echo_fabric_ = world_.NewFabric();
    PeerOptions options;
    options.identity = {9, 9};
    options.acceptor = &echo_;
    echo_port_ = *echo_fabric_->OpenPeers(options);
    return echo_port_->address();
  }
  void KillEcho() override { world_.KillFabric(*echo_fabric_); }
  void PauseEcho(bool paused) override {
    paused ? world_.PauseFabric(*echo_fabric_) : world_.ResumeFabric(*echo_fabric_);
  }

 private:
  SimWorld world_;
  std::vector<std::shared_ptr<Fabric>> fabrics_;
  PeerEcho echo_;
  std::shared_ptr<Fabric> echo_fabric_;
  std::unique_ptr<PeerPort> echo_port_;
};

PeerBackend Seeded(uint64_t seed, double long_delays = 0.005) {
  return {absl::StrCat("seed", seed), [=] {
            SimOptions options;
            options.seed = seed;
            options.long_delay_probability = long_delays;
            return std::make_unique<SimPeerCluster>(options);
          }};
}

}  // namespace
}  // namespace pando::sim

namespace pando {

INSTANTIATE_TEST_SUITE_P(Sim, PeerConformance,
                         testing::Values(sim::Seeded(1), sim::Seeded(2), sim::Seeded(3, 0.3),
                                         sim::Seeded(4), sim::Seeded(5, 0.3)),
                         PeerBackendName);

}  // namespace pando
