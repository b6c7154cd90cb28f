// What operations cost is the same on every fabric that releases locks in the same way: round
// trips, verbs and bytes on verbs equal those on shm, and what was counted equals what the
// completion queue saw. Needs an RDMA device.
#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/random.h"
#include "common/fabric/verbs/verbs_fabric.h"
#include "compute/client/connect.h"
#include "compute/client/open_fabric.h"

namespace pando {
namespace {

// A fabric whose endpoints can be looked at, and that releases locks by CAS (rule L4).
class WatchedFabric final : public Fabric {
 public:
  explicit WatchedFabric(std::shared_ptr<Fabric> fabric)
      : fabric_(std::move(fabric)), capabilities_(fabric_->capabilities()) {
    capabilities_.write_unlock = false;
  }
  const Capabilities& capabilities() const override { return capabilities_; }
  std::vector<ServerId> servers() const override { return fabric_->servers(); }
  uint64_t SpaceBytes(ServerId server, MemorySpace space) const override {
    return fabric_->SpaceBytes(server, space);
  }
  absl::StatusOr<std::unique_ptr<Endpoint>> Connect(uint16_t compute_server,
                                                    uint32_t incarnation) override {
    auto endpoint = fabric_->Connect(compute_server, incarnation);
    if (endpoint.ok()) last_ = endpoint->get();
    return endpoint;
  }
  // The one connected last; the caller knows that it lives.
  const Endpoint& last() const { return *last_; }

 private:
  const std::shared_ptr<Fabric> fabric_;
  Capabilities capabilities_;
  const Endpoint* last_ = nullptr;
};

using Cost = std::tuple<uint32_t, uint32_t, uint64_t, uint64_t>;

// Round trips, verbs, bytes read and written of each operation of a fixed series.
class Series {
 public:
  static constexpr int kOperations = 6000;

  explicit Series(const std::string& fabric) : cluster_(Options(fabric)) {
    auto registry = OpenRegistry(cluster_.registry());
    PANDO_CHECK_OK(registry.status());
    auto servers = (*registry)->WaitFor(2, 10'000);
    PANDO_CHECK_OK(servers.status());
    ClientOptions options = cluster_.ClientDefaults();
    options.seed = 7;
    auto connected = OpenFabric(*servers, options);
    PANDO_CHECK_OK(connected.status());
    fabric_ = std::make_shared<WatchedFabric>(*std::move(connected));
    auto client = ConnectOverFabric(options, fabric_);
    PANDO_CHECK_OK(client.status());
    client_ = *std::move(client);
    auto tree = client_->CreateTree("t", {});
    PANDO_CHECK_OK(tree.status());
    tree_ = *std::move(tree);
    auto session = client_->NewSession();
    PANDO_CHECK_OK(session.status());
    session_ = *std::move(session);
  }

  std::vector<Cost> Run() {
    Random random(3);
    std::vector<Cost> costs;
    for (int i = 0; i < kOperations; ++i) {
      OperationCost cost;
      const absl::Status status = Operate(&random, {.cost = &cost});
      EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
      costs.emplace_back(cost.round_trips, cost.verbs, cost.bytes_read, cost.bytes_written);
    }
    return costs;
  }
  // One get each in `in_flight` coroutines, `rounds` times.
  void GetSideBySide(int in_flight, int rounds) {
    for (int i = 0; i < in_flight; ++i) {
      session_->Spawn([this, i, rounds] {
        for (int round = 0; round < rounds; ++round) {
          const std::string key = std::to_string(10'000'000 + (i * rounds + round) % 2000);
          const absl::Status status = session_->Get(*tree_, key).status();
          EXPECT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
        }
      });
    }
    session_->Run();
  }
  const Endpoint& endpoint() const { return fabric_->last(); }

 private:
  static IntegrationCluster::Options Options(const std::string& fabric) {
    IntegrationCluster::Options options;
    options.fabric = fabric;
    options.needs_crc = true;
    options.packet_bytes = 1024;
    return options;
  }
  absl::Status Operate(Random* random, const OperationOptions& options) {
    const std::string key = std::to_string(10'000'000 + random->Uniform(2000));
    switch (random->Uniform(5)) {
      case 0:
        return session_->Get(*tree_, key, options).status();
      case 1:
        return session_->Erase(*tree_, key, options);
      case 2: {
        std::vector<KeyValue> rows;
        return session_->Scan(*tree_, key, 20, &rows, options);
      }
      default:
        return session_->Put(*tree_, key, std::to_string(random->Uniform(1'000'000)), options);
    }
  }

  IntegrationCluster cluster_;
  std::shared_ptr<WatchedFabric> fabric_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
};

TEST(VerbsCostTest, OperationsCostWhatTheyCostOnShm) {
  if (IntegrationCluster::default_fabric() != "verbs") {
    GTEST_SKIP() << "PANDO_TEST_FABRIC is not verbs";
  }
  Series shm("shm"), verbs("verbs");
  const std::vector<Cost> expected = shm.Run();
  const std::vector<Cost> found = verbs.Run();
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(found[i], expected[i]) << "operation " << i;

  const Meter& meter = verbs.endpoint().meter();
  const Meter& shm_meter = shm.endpoint().meter();
  EXPECT_EQ(meter.reads, shm_meter.reads);
  EXPECT_EQ(meter.writes, shm_meter.writes);
  EXPECT_EQ(meter.bytes_read, shm_meter.bytes_read);
  EXPECT_EQ(meter.bytes_written, shm_meter.bytes_written);

  const VerbsCounters& counters = VerbsCountersOf(verbs.endpoint());
  EXPECT_LE(counters.doorbells, meter.verbs()) << "one a list, or a verb that is alone on a NIC";
  EXPECT_EQ(counters.completions, meter.chains) << "one completion a chain";
  EXPECT_EQ(counters.work_requests, meter.verbs());
  EXPECT_EQ(counters.failures + counters.broken, 0u);
}

TEST(VerbsCostTest, OperationsSideBySideShareDoorbells) {
  if (IntegrationCluster::default_fabric() != "verbs") {
    GTEST_SKIP() << "PANDO_TEST_FABRIC is not verbs";
  }
  constexpr int kInFlight = 16, kRounds = 500;
  Series verbs("verbs");
  verbs.Run();
  const VerbsCounters& counters = VerbsCountersOf(verbs.endpoint());
  const uint64_t doorbells = counters.doorbells, completions = counters.completions;
  verbs.GetSideBySide(kInFlight, kRounds);
  const auto rung = static_cast<double>(counters.doorbells - doorbells) / (kInFlight * kRounds);
  RecordProperty("doorbells_a_get", std::to_string(rung));
  EXPECT_GE(counters.completions - completions, uint64_t{kInFlight * kRounds});
  // All sixteen to two servers in turns of their own would be 0.125; a processor that answers while
  // they are posted makes it more.
  EXPECT_LE(rung, 0.5);
}

}  // namespace
}  // namespace pando
