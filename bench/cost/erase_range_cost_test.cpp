// What it costs to erase a range of keys: chains, counted on the simulated fabric; and that it is
// complete, gives memory back, and is in nobody's way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "bench/cost/loaded_tree.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"

namespace pando {
namespace {

constexpr uint64_t kRecords = 1'000'000;

SimCluster::Options Quiet(uint64_t seed, int64_t lease_ns = 0) {
  return {.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole}, .lease_ns = lease_ns};
}
// Whatever half a million keys take.
EraseRangeOptions Patient() { return {.operation = {.timeout_ms = 600'000}}; }

class EraseRangeCost : public testing::Test {
 protected:
  CheckReport Check() {
    const auto report = session().Check(tree(), {.quiet_tree = true});
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->ok()) << report->problems.front();
    return report.ok() ? *report : CheckReport();
  }
  // Chains of the erase of half of the tree's keys, which are `leaves` leaves.
  void ExpectThreeChainsALeaf(uint64_t from, uint64_t to, uint64_t keys) {
    const CheckReport before = Check();
    const double leaves = static_cast<double>(before.nodes_per_level[0]) *
                          static_cast<double>(keys) / static_cast<double>(before.keys);
    const uint64_t chains_before = loaded_.client->Stats().fabric.chains;
    RangeErased erased;
    const absl::Status status =
        session().EraseRange(tree(), KeyOf(from), KeyOf(to), &erased, Patient());
    ASSERT_TRUE(status.ok()) << status;
    const auto chains = static_cast<double>(loaded_.client->Stats().fabric.chains - chains_before);
    EXPECT_EQ(erased.erased, keys);
    EXPECT_TRUE(erased.done);
    std::printf("%.0f chains for %.0f leaves: %.3f a leaf, %.4f a key\n", chains, leaves,
                chains / leaves, chains / static_cast<double>(keys));
    EXPECT_LE(chains, 3 * leaves);

    const CheckReport after = Check();
    EXPECT_EQ(after.keys, before.keys - keys);
    std::printf("leaves: %lu before, %lu after\n", before.nodes_per_level[0],
                after.nodes_per_level[0]);
    const double left = static_cast<double>(before.nodes_per_level[0]) - leaves;
    EXPECT_LE(static_cast<double>(after.nodes_per_level[0]), left + 0.02 * leaves);
  }

  Session& session() { return *loaded_.session; }
  const Tree& tree() { return *loaded_.tree; }
  LoadedTree loaded_{Quiet(1), {}, kRecords};
};

TEST_F(EraseRangeCost, HalfOfATreeTakesThreeChainsALeaf) {
  ExpectThreeChainsALeaf(kRecords / 2 + 1, kRecords * 3 / 2 + 1, kRecords / 2);
  // What was freed is of use again.
  const uint64_t reused_before = loaded_.client->Stats().tree.nodes_reused;
  loaded_.cluster.world().RunUntil(loaded_.cluster.world().clock().NowNs() + 3 * kSecondNs);
  for (uint64_t n = 0; n < 20'000; ++n) {
    ASSERT_TRUE(session().Put(tree(), KeyOf(kRecords + 2 * n), "again").ok());
  }
  EXPECT_GT(loaded_.client->Stats().tree.nodes_reused, reused_before);
  Check();
}

// Leaves that have grown by inserts here and there lie on all servers, in any order.
TEST_F(EraseRangeCost, HalfOfATreeThatHasGrownTakesThreeChainsALeaf) {
  std::vector<KeyValue> more;
  for (uint64_t n = 0; n < kRecords; n += 2) more.push_back({KeyOf(2 * n + 1), "more"});
  for (const absl::Status& put : session().MultiPut(tree(), more, {.timeout_ms = 600'000})) {
    ASSERT_TRUE(put.ok()) << put;
  }
  ExpectThreeChainsALeaf(kRecords / 2 + 1, kRecords * 3 / 2 + 1, kRecords * 3 / 4);
}

// A leaf and its parent below each node of the level above that.
TEST_F(EraseRangeCost, AllOfATreeLeavesHardlyAnything) {
  RangeErased erased;
  const absl::Status status = session().EraseRange(tree(), "", std::nullopt, &erased, Patient());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(erased.erased, kRecords);
  const CheckReport after = Check();
  EXPECT_EQ(after.keys, 0u);
  EXPECT_LE(after.nodes_bytes, 100u * tree().node_bytes());
}

// Others read and write all the while, in the range and beside it, and wait for nobody for long.
TEST_F(EraseRangeCost, OthersGoOnMeanwhile) {
  constexpr int64_t kLongNs = 500 * kMicrosecondNs;
  const auto other = loaded_.cluster.NewClient();
  const auto others_tree = *other->OpenTree("t");
  const auto others_session = *other->NewSession();
  sim::SimWorld& world = loaded_.cluster.world();
  bool is_over = false;
  uint64_t operations = 0;
  int64_t longest_ns = 0;
  for (int task = 0; task < 4; ++task) {
    others_session->Spawn([&, task] {
      Random random(static_cast<uint64_t>(task));
      while (!is_over) {
        const std::string key = KeyOf(random.Uniform(2 * kRecords));
        const int64_t begin_ns = world.clock().NowNs();
        const absl::Status status = random.Chance(0.5)
                                        ? others_session->Put(*others_tree, key, "new")
                                        : others_session->Get(*others_tree, key).status();
        ASSERT_TRUE(status.ok() || absl::IsNotFound(status)) << status;
        longest_ns = std::max(longest_ns, world.clock().NowNs() - begin_ns);
        ++operations;
      }
    });
  }
  ImplOf(*others_session).scheduler().endpoint().Wake();
  RangeErased erased;
  const absl::Status status =
      session().EraseRange(tree(), KeyOf(kRecords / 2), KeyOf(kRecords), &erased, Patient());
  is_over = true;
  others_session->Run();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GE(erased.erased, kRecords / 4);
  EXPECT_GT(operations, 10'000u);
  std::printf("%lu operations of others, the longest %ld us\n", operations, longest_ns / 1000);
  EXPECT_LT(longest_ns, kLongNs);
  Check();
}

TEST_F(EraseRangeCost, GoesOnWhereItWasStopped) {
  EraseRangeOptions options = Patient();
  int calls = 0;
  options.progress = [&calls](const RangeErased&) { return ++calls < 300; };
  RangeErased first, second;
  const absl::Status stopped =
      session().EraseRange(tree(), KeyOf(kRecords / 2), KeyOf(kRecords), &first, options);
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  EXPECT_FALSE(first.done);
  EXPECT_GT(first.erased, 0u);
  EXPECT_LT(first.erased, kRecords / 4);
  const absl::Status rest =
      session().EraseRange(tree(), first.next, KeyOf(kRecords), &second, Patient());
  ASSERT_TRUE(rest.ok()) << rest;
  EXPECT_TRUE(second.done);
  EXPECT_EQ(first.erased + second.erased, kRecords / 4);
  EXPECT_EQ(Check().keys, kRecords - kRecords / 4);
}

// Its client is killed on the way, again and again at another moment; who comes next does the rest.
TEST(EraseRangeDeath, KilledHalfWayAndRepeatedItIsComplete) {
  constexpr uint64_t kKeys = 20'000;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    LoadedTree loaded(Quiet(seed), {}, kKeys);
    sim::SimWorld& world = loaded.cluster.world();
    const std::shared_ptr<Fabric> fabric = world.NewFabric();
    auto victim = *ConnectOverFabric({.seed = seed}, fabric);
    auto tree = *victim->OpenTree("t");
    auto session = *victim->NewSession();
    bool ended = false;
    session->Spawn([&] {
      (void)session->EraseRange(*tree, KeyOf(kKeys / 2), KeyOf(kKeys * 3 / 2));
      ended = true;
    });
    ImplOf(*session).scheduler().endpoint().Wake();
    // Some 800 us in all.
    world.RunUntil(world.clock().NowNs() + static_cast<int64_t>(seed) * 150 * kMicrosecondNs);
    EXPECT_FALSE(ended) << "it was killed too late";
    world.KillFabric(*fabric);
    session.reset();
    tree.reset();
    victim.reset();
    RangeErased erased;
    const absl::Status repeated = loaded.session->EraseRange(
        *loaded.tree, KeyOf(kKeys / 2), KeyOf(kKeys * 3 / 2), &erased, Patient());
    ASSERT_TRUE(repeated.ok()) << repeated;
    EXPECT_LT(erased.erased, kKeys / 2);
    world.RunUntil(world.clock().NowNs() + 3 * kSecondNs);
    SweepResult swept;
    ASSERT_TRUE(loaded.session->Sweep(*loaded.tree, &swept).ok());
    const auto report = loaded.session->Check(*loaded.tree, {.quiet_tree = true});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->ok()) << report->problems.front();
    EXPECT_EQ(report->keys, kKeys / 2);
    EXPECT_EQ(report->nodes.orphans, 0u);
  }
}

}  // namespace
}  // namespace pando
