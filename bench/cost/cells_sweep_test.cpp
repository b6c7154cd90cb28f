// What sweeps find of cells that the dead took out of the tree (rule K4), on the simulated fabric.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "bench/cost/large_tree.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"

namespace pando {
namespace {

// Another client takes the last `taken` of the records out, and dies before it has said so.
void DieErasing(LargeTree* large, uint64_t records, uint64_t taken) {
  sim::SimWorld& world = large->cluster.world();
  const std::shared_ptr<Fabric> fabric = world.NewFabric();
  const auto dead = *ConnectOverFabric({.seed = 7}, fabric);
  const auto tree = *dead->OpenTree("t");
  const auto session = *dead->NewSession();
  for (uint64_t n = 0; n < taken; ++n) {
    ASSERT_TRUE(session->Erase(*tree, KeyOf(records - 1 - n)).ok());
  }
  world.KillFabric(*fabric);
  world.RunUntil(world.clock().NowNs() + kSecondNs);
}

// Rule K4: more cells than one go looks at, so that a client has to go on where it was.
TEST(CellsSweep, WhatTheDeadTookOutIsFoundSomeCellsAtATime) {
  constexpr uint64_t kRecords = 3'000, kTaken = 40;
  LargeTree large(0, {.value_bytes_max = 1000},
                  {.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole},
                   .main_bytes = kMainBytes,
                   .chunk_bytes = 64 << 10});
  uint64_t puts = 0;
  const auto put = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i, ++puts) {
      ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(puts % kRecords), LargeValue(puts)).ok());
    }
  };
  ASSERT_NO_FATAL_FAILURE(put(kRecords));
  sim::SimWorld& world = large.cluster.world();
  ASSERT_NO_FATAL_FAILURE(DieErasing(&large, kRecords, kTaken));
  const auto unused = [&] { return large.session->Check(*large.tree)->cells_unused; };
  ASSERT_GE(unused(), kTaken);
  uint64_t rounds = 0;
  for (; unused() > 0 && rounds < 100; ++rounds) {
    // Each asks for memory, and hears that there is something to look at.
    ASSERT_NO_FATAL_FAILURE(put(150));
    large.session->SleepUntil(world.clock().NowNs() + 1'100 * kMillisecondNs);
  }
  EXPECT_EQ(unused(), 0u);
  EXPECT_GT(rounds, kRecords / 2 / 512) << "one go was enough";
  EXPECT_TRUE(large.session->Check(*large.tree)->ok());
}

// The same while ever more becomes due: cells that were out when a client died, and are put in now.
TEST(CellsSweep, WhatTheDeadTookOutIsFoundWhileMoreBecomesDue) {
  constexpr uint64_t kRecords = 3'000, kTaken = 40, kPuts = 70;
  LargeTree large(0, {.value_bytes_max = 1000},
                  {.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole},
                   .main_bytes = 64 << 20,
                   .chunk_bytes = 8 << 20});
  for (uint64_t n = 0; n < kRecords; ++n) {
    ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(n), LargeValue(n)).ok());
  }
  sim::SimWorld& world = large.cluster.world();
  ASSERT_NO_FATAL_FAILURE(DieErasing(&large, kRecords, kTaken));
  const auto unused = [&] { return large.session->Check(*large.tree)->cells_unused; };
  ASSERT_GE(unused(), kTaken);
  uint64_t rounds = 0, puts = 0;
  // On each of two servers is half of the cells, and no round has to begin again.
  constexpr uint64_t kRoundsMax = kRecords / 512 + 1;
  for (; unused() > 0 && rounds < kRoundsMax; ++rounds) {
    for (uint64_t i = 0; i < kPuts; ++i, ++puts) {
      ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(puts), LargeValue(puts)).ok());
    }
    large.session->SleepUntil(world.clock().NowNs() + 1'100 * kMillisecondNs);
    // As a session does by itself, when a memory server has asked for that.
    SweepResult swept;
    const absl::Status status = ImplOf(*large.session).Perform(*large.tree, {}, [&](auto& context) {
      return ImplOf(*large.tree).routed().Sweep(context, /*thorough=*/false, &swept);
    });
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(unused(), 0u);
  EXPECT_GT(rounds, kRecords / 2 / 512) << "one go was enough";
}

}  // namespace
}  // namespace pando
