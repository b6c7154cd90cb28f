// READs that take so long that they cannot be trusted (rule F2), every time: an overloaded NIC, or
// a machine with too few processors. Operations still get somewhere, under the nodes' locks.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/cost/sim_cluster.h"

namespace pando {
namespace {

constexpr int kKeys = 3000;

// READs of nodes whose slots are several lines are too slow on it, whatever they take.
class SlowFabric final : public Fabric {
 public:
  explicit SlowFabric(std::shared_ptr<Fabric> fabric)
      : fabric_(std::move(fabric)), capabilities_(fabric_->capabilities()) {
    capabilities_.min_write_interval_ns = 1;
  }
  const Capabilities& capabilities() const override { return capabilities_; }
  std::vector<ServerId> servers() const override { return fabric_->servers(); }
  uint64_t SpaceBytes(ServerId server, MemorySpace space) const override {
    return fabric_->SpaceBytes(server, space);
  }
  absl::StatusOr<std::unique_ptr<Endpoint>> Connect(uint16_t compute_server,
                                                    uint32_t incarnation) override {
    return fabric_->Connect(compute_server, incarnation);
  }

 private:
  const std::shared_ptr<Fabric> fabric_;
  Capabilities capabilities_;
};

std::string Key(int i) { return std::to_string(1'000'000 + i); }

TEST(SlowRead, OperationsGoOnUnderLocks) {
  SimCluster cluster({.sim = {.seed = 4, .mode = sim::DeliveryMode::kWhole}});
  const TreeOptions shape = {.key_bytes_max = 64, .value_bytes_max = 8};  // slots of two lines
  auto quick = cluster.NewClient();
  auto tree = quick->CreateTree("t", shape);
  ASSERT_TRUE(tree.ok()) << tree.status();
  auto session = quick->NewSession();
  ASSERT_TRUE(session.ok());
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE((*session)->Put(**tree, Key(i), "old").ok());

  auto connected =
      ConnectOverFabric({.seed = 9}, std::make_shared<SlowFabric>(cluster.world().NewFabric()));
  ASSERT_TRUE(connected.ok()) << connected.status();
  auto slow = *std::move(connected);
  auto slow_tree = slow->OpenTree("t");
  ASSERT_TRUE(slow_tree.ok()) << slow_tree.status();
  auto slow_session = slow->NewSession();
  ASSERT_TRUE(slow_session.ok());
  OperationCost cost;
  for (int i = 0; i < kKeys; i += 100) {
    const auto value = (*slow_session)->Get(**slow_tree, Key(i), {.cost = &cost});
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(*value, "old");
    const absl::Status put = (*slow_session)->Put(**slow_tree, Key(i), "new", {.cost = &cost});
    ASSERT_TRUE(put.ok()) << put;
  }
  EXPECT_GT(slow->Stats().tree.torn_retries, 0u) << "no READ was too slow";
  for (int i = 0; i < kKeys; ++i) {
    const auto value = (*session)->Get(**tree, Key(i));
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(*value, i % 100 == 0 ? "new" : "old");
  }
  std::vector<KeyValue> rows;
  const absl::Status scanned = (*slow_session)->Scan(**slow_tree, Key(0), kKeys, &rows);
  ASSERT_TRUE(scanned.ok()) << scanned;
  EXPECT_EQ(rows.size(), size_t{kKeys});
}

}  // namespace
}  // namespace pando
