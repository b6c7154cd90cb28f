// A bulk load that dies between any two packets: the tree is empty or loaded, and the next client
// may load it if it is empty (rules R4, C4).
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "compute/client/connect.h"

namespace pando {
namespace {

constexpr uint64_t kRecords = 200;  // a root and some leaves

absl::Status LoadRecords(Session& session, const Tree& tree) {
  uint64_t next = 0;
  return session.BulkLoad(tree, [&](KeyValue* entry) {
    if (next == kRecords) return false;
    entry->key = entry->value = KeyOf(next++);
    return true;
  });
}

// Runs a load that dies after so many packets. False: it was done by then.
bool DieLoading(SimCluster& cluster, uint64_t packets) {
  const std::shared_ptr<Fabric> fabric = cluster.world().NewFabric();
  auto client = *ConnectOverFabric({.seed = 1}, fabric);
  auto tree = *client->OpenTree("t");
  auto session = *client->NewSession();
  cluster.world().LimitPackets(*fabric, packets);
  bool done = false;
  session->Spawn([&] {
    (void)LoadRecords(*session, *tree);
    done = true;
  });
  while (!done && !cluster.world().PacketsSpent(*fabric)) EXPECT_TRUE(cluster.world().Step());
  const bool died = !done;
  cluster.world().KillFabric(*fabric);
  session->Run();
  return died;
}

TEST(BulkLoadCrash, TheNextOneLoadsAnEmptyTree) {
  bool died = true;
  uint64_t found_empty = 0, found_loaded = 0;
  for (uint64_t packets = 0; died; ++packets) {
    SCOPED_TRACE(packets);
    SimCluster cluster(
        {.sim = {.seed = packets + 1, .mode = sim::DeliveryMode::kWhole}, .main_bytes = 8 << 20});
    auto client = cluster.NewClient();
    auto tree = *client->CreateTree("t", {});
    auto session = *client->NewSession();
    died = DieLoading(cluster, packets);
    cluster.world().RunUntil(cluster.world().clock().NowNs() + kSecondNs);  // the servers notice

    const absl::Status loaded = LoadRecords(*session, *tree);
    if (loaded.ok()) {
      ++found_empty;
    } else {
      ++found_loaded;
      ASSERT_TRUE(absl::IsFailedPrecondition(loaded)) << loaded;
    }
    std::vector<KeyValue> rows;
    ASSERT_TRUE(session->Scan(*tree, "", SIZE_MAX, &rows).ok());
    ASSERT_EQ(rows.size(), kRecords) << loaded;
    for (uint64_t n = 0; n < kRecords; ++n) ASSERT_EQ(rows[n].key, KeyOf(n));
  }
  EXPECT_GT(found_empty, 3u) << "also between the mark of the old root and the new root record";
  EXPECT_GE(found_loaded, 1u);
}

}  // namespace
}  // namespace pando
