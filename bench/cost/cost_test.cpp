// What operations cost in round trips, verbs and bytes: counted on the simulated fabric, so the
// same on every machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "bench/cost/loaded_tree.h"
#include "bench/workload/distribution.h"
#include "common/base/random.h"
#include "common/base/status.h"

namespace pando {
namespace {

SimCluster::Options Quiet(uint64_t seed) {
  return {.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole}};
}

TEST(Cost, OperationsWork) {
  SimCluster cluster(Quiet(1));
  auto client = cluster.NewClient();
  auto tree = client->CreateTree("t", {});
  ASSERT_TRUE(tree.ok()) << tree.status();
  auto session = client->NewSession();
  ASSERT_TRUE(session.ok()) << session.status();
  for (uint64_t i = 0; i < 5000; ++i) {
    const absl::Status put = (*session)->Put(**tree, KeyOf(i * 7919 % 5000), KeyOf(i));
    ASSERT_TRUE(put.ok()) << put << " at " << i;
  }
  for (uint64_t i = 0; i < 5000; ++i) {
    auto value = (*session)->Get(**tree, KeyOf(i * 7919 % 5000));
    ASSERT_TRUE(value.ok()) << value.status() << " at " << i;
    ASSERT_EQ(*value, KeyOf(i));
  }
  EXPECT_TRUE(absl::IsNotFound((*session)->Get(**tree, KeyOf(5001)).status()));
  EXPECT_TRUE(absl::IsAlreadyExists((*session)->Insert(**tree, KeyOf(5), "x")));
  EXPECT_TRUE(absl::IsNotFound((*session)->Update(**tree, KeyOf(5005), "x")));
  EXPECT_TRUE((*session)->Erase(**tree, KeyOf(5)).ok());
  EXPECT_TRUE(absl::IsNotFound((*session)->Erase(**tree, KeyOf(5))));
  std::vector<KeyValue> rows;
  ASSERT_TRUE((*session)->Scan(**tree, KeyOf(3), 1000, &rows).ok());
  ASSERT_EQ(rows.size(), 1000u);
  EXPECT_EQ(rows[1].key, KeyOf(4));
  EXPECT_EQ(rows[2].key, KeyOf(6));
  EXPECT_EQ(rows[999].key, KeyOf(1003));
}

TEST(Cost, GetWithCachedParentIsOneRoundTrip) {
  constexpr uint64_t kRecords = 1'000'000, kGets = 20'000;
  const LoadedTree loaded(Quiet(2), {}, kRecords);
  Random random(1);
  OperationCost cost;
  for (uint64_t i = 0; i < kGets; ++i) {
    auto value =
        loaded.session->Get(*loaded.tree, KeyOf(random.Uniform(kRecords) * 2), {.cost = &cost});
    ASSERT_TRUE(value.ok()) << value.status();
  }
  EXPECT_LE(cost.round_trips, kGets * 1.02);
  EXPECT_LE(cost.bytes_read, kGets * 1024 * 1.02);
}

TEST(Cost, UncontendedUpdateIsTwoRoundTrips) {
  constexpr uint64_t kRecords = 200'000, kUpdates = 20'000;
  const LoadedTree loaded(Quiet(3), {}, kRecords);
  Random random(1);
  OperationCost cost;
  for (uint64_t i = 0; i < kUpdates; ++i) {
    const absl::Status updated = loaded.session->Update(
        *loaded.tree, KeyOf(random.Uniform(kRecords) * 2), KeyOf(i), {.cost = &cost});
    ASSERT_TRUE(updated.ok()) << updated;
  }
  EXPECT_LE(cost.round_trips, kUpdates * 2.05);
  // One CAS, one line, one lock word.
  EXPECT_LE(cost.bytes_written, kUpdates * (8 + 64 + 8) * 1.02);
}

// Updates by 4 compute servers x 16 coroutines; keys by `next_key`.
struct ContendedResult {
  double round_trips = 0;  // per update
  TreeStats tree;
};

ContendedResult Contend(const Techniques& techniques, uint64_t records, uint64_t updates_each,
                        const std::function<uint64_t(Random*)>& next_key) {
  constexpr int kComputeServers = 4, kCoroutines = 16;
  SimCluster cluster(Quiet(4));
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::unique_ptr<Tree>> trees;
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < kComputeServers; ++i) {
    clients.push_back(
        cluster.NewClient({.techniques = techniques, .operation_timeout_ms = 60'000}));
    trees.push_back(*clients.back()->CreateTree("t", {}));
    sessions.push_back(*clients.back()->NewSession());
  }
  BulkLoad(*sessions[0], *trees[0], records);
  for (int c = 0; c < kComputeServers; ++c) Warm(*sessions[c], *trees[c], records);
  uint64_t failures = 0;
  OperationCost cost;
  for (int c = 0; c < kComputeServers; ++c) {
    for (int k = 0; k < kCoroutines; ++k) {
      sessions[c]->Spawn([&, c, k] {
        Random random(static_cast<uint64_t>(c * 100 + k));
        for (uint64_t i = 0; i < updates_each; ++i) {
          const std::string key = KeyOf(next_key(&random) * 2);
          failures += !sessions[c]->Update(*trees[c], key, KeyOf(i), {.cost = &cost}).ok();
        }
      });
    }
  }
  for (auto& session : sessions) session->Run();
  EXPECT_EQ(failures, 0u);
  ContendedResult result;
  result.round_trips = static_cast<double>(cost.round_trips) /
                       static_cast<double>(updates_each * kComputeServers * kCoroutines);
  for (auto& client : clients) {
    const TreeStats stats = client->Stats().tree;
    result.tree.lock_failures += stats.lock_failures;
    result.tree.handovers += stats.handovers;
    result.tree.combined += stats.combined;
  }
  return result;
}

ContendedResult OneLeaf(const Techniques& techniques) {
  return Contend(techniques, 16, 500, [](Random* random) { return random->Uniform(16); });
}

TEST(Cost, UpdatesOfOneLeafAreCombined) {
  const ContendedResult everything = OneLeaf(Techniques::Everything());
  RecordProperty("round_trips", std::to_string(everything.round_trips));
  EXPECT_LE(everything.round_trips, 0.3);
  EXPECT_GT(everything.tree.combined, 0u);
}

// Rule L6: it leaves the word alone for others, and there are none.
TEST(Cost, AComputeServerByItselfDoesNotStayAway) {
  constexpr int kCoroutines = 16, kUpdatesEach = 200;
  const sim::SimOptions options = Quiet(6).sim;
  SimCluster cluster(Quiet(6));
  auto client = cluster.NewClient();
  auto tree = *client->CreateTree("t", {});
  auto session = *client->NewSession();
  BulkLoad(*session, *tree, 16);
  Warm(*session, *tree, 16);
  const uint64_t turns_before = client->Stats().tree.lock_attempts;
  const int64_t start_ns = cluster.world().clock().NowNs();
  for (int k = 0; k < kCoroutines; ++k) {
    session->Spawn([&] {
      for (uint64_t i = 0; i < kUpdatesEach; ++i) {
        EXPECT_TRUE(session->Update(*tree, KeyOf(i % 16 * 2), KeyOf(i)).ok());
      }
    });
  }
  session->Run();
  const TreeStats stats = client->Stats().tree;
  EXPECT_GT(stats.combined, 0u);
  const auto turns = static_cast<int64_t>(stats.lock_attempts - turns_before);
  // Two chains a turn, and what comes between them.
  const int64_t chain_ns = 2 * (options.delay_ns + options.jitter_ns);
  EXPECT_LE(cluster.world().clock().NowNs() - start_ns, turns * 4 * chain_ns);
}

TEST(Cost, UpdatesOfOneLeafAreHandedOver) {
  Techniques techniques;
  techniques.operation_combining = false;
  const ContendedResult handover = OneLeaf(techniques);
  RecordProperty("round_trips", std::to_string(handover.round_trips));
  EXPECT_LE(handover.round_trips, 1.15);
  EXPECT_EQ(handover.tree.combined, 0u);
  EXPECT_GT(handover.tree.handovers, 0u);
}

TEST(Cost, EachLockTechniqueSavesRoundTripsAndFailedCasUnderSkew) {
  constexpr uint64_t kRecords = 1'000'000;
  const bench::ZipfianRank rank(kRecords, 0.99);
  const bench::Scramble scramble(kRecords);
  const auto zipfian = [&](Random* random) { return scramble(rank.Next(random)); };
  const auto run = [&](const Techniques& techniques) {
    return Contend(techniques, kRecords, 400, zipfian);
  };
  Techniques techniques;
  const ContendedResult everything = run(techniques);
  techniques.operation_combining = false;
  const ContendedResult without_combining = run(techniques);
  techniques.handover = techniques.handover_image = false;
  const ContendedResult without_handover = run(techniques);
  techniques.local_locks = techniques.wait_queue = false;
  const ContendedResult without_local_locks = run(techniques);
  std::printf("round trips %.3f %.3f %.3f %.3f, failed CAS %lu %lu %lu %lu\n",
              everything.round_trips, without_combining.round_trips, without_handover.round_trips,
              without_local_locks.round_trips, everything.tree.lock_failures,
              without_combining.tree.lock_failures, without_handover.tree.lock_failures,
              without_local_locks.tree.lock_failures);
  EXPECT_LT(everything.round_trips, without_combining.round_trips);
  EXPECT_LT(without_combining.round_trips, without_handover.round_trips);
  EXPECT_LT(without_handover.round_trips, without_local_locks.round_trips);
  EXPECT_LT(everything.tree.lock_failures, without_combining.tree.lock_failures);
  EXPECT_LT(without_combining.tree.lock_failures, without_handover.tree.lock_failures);
  EXPECT_LT(without_handover.tree.lock_failures, without_local_locks.tree.lock_failures);
}

OperationCost ThousandUpdates(const LoadedTree& loaded) {
  OperationCost cost;
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_TRUE(loaded.session->Update(*loaded.tree, KeyOf(i * 2), KeyOf(i), {.cost = &cost}).ok());
  }
  return cost;
}

TEST(Cost, FgPlusTakesFourRoundTripsAndWritesTheNode) {
  const LoadedTree loaded(Quiet(5), {.techniques = Techniques::FgPlus()}, 10'000);
  const OperationCost cost = ThousandUpdates(loaded);
  EXPECT_EQ(cost.round_trips, 4000u);
  EXPECT_EQ(cost.bytes_written, 1000u * (1024 + 16));
}

TEST(Cost, ShermanAsPublishedTakesThreeRoundTripsAndTwoAfterAHandover) {
  const LoadedTree loaded(Quiet(6), {.techniques = Techniques::Sherman()}, 10'000);
  EXPECT_EQ(ThousandUpdates(loaded).round_trips, 3000u);
  // Two coroutines on one leaf: the second waits, is handed the lock, and reads the node itself.
  std::vector<OperationCost> costs(2);
  for (size_t i = 0; i < costs.size(); ++i) {
    loaded.session->Spawn([&, i] {
      EXPECT_TRUE(
          loaded.session->Update(*loaded.tree, KeyOf(0), KeyOf(i), {.cost = &costs[i]}).ok());
    });
  }
  loaded.session->Run();
  EXPECT_EQ(costs[0].round_trips, 3u);  // CAS, READ, WRITE without release
  EXPECT_EQ(costs[1].round_trips, 2u);  // READ, [WRITE, release]
}

}  // namespace
}  // namespace pando
