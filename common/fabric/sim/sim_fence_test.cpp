// A living client that a server cuts off: what of its WRITEs still happens, and what it is told.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "common/fabric/sim/sim_test_util.h"
#include "common/fabric/sim/sim_world.h"

namespace pando::sim {
namespace {

// Two WRITEs are posted; the sender is cut off after `steps` events. How many of the two are there
// when the server is told that nothing is in flight any more.
std::pair<uint64_t, uint64_t> CutDuringTwoWrites(uint64_t seed, int steps) {
  TestWorld sim({.seed = seed});
  GoneHandler handler;
  sim.world.SetHandler(kServer, &handler);
  TestClient client(sim.world.NewFabric());
  client.PostTwoWrites();
  for (int i = 0; i < steps; ++i) sim.world.Step();
  const bool was_done = client.chain.done();
  sim.world.Fence(kServer)->CutOff(1);
  sim.world.Fence(kServer)->CutOff(1);  // again changes nothing
  while (handler.gone.empty()) EXPECT_TRUE(sim.world.Step());
  const std::pair<uint64_t, uint64_t> found = {sim.Word(4096), sim.Word(8192)};
  for (uint64_t at = 0; at < 1024; at += 8) {
    EXPECT_EQ(sim.Word(4096 + at), found.first);
    EXPECT_EQ(sim.Word(8192 + at), found.second);
  }
  client.Finish();
  if (!was_done) {
    EXPECT_TRUE(absl::IsUnavailable(client.chain.status())) << client.chain.status();
  }
  sim.world.RunUntil(sim.world.clock().NowNs() + kSecondNs);
  EXPECT_EQ(std::make_pair(sim.Word(4096), sim.Word(8192)), found) << "something moved afterwards";
  EXPECT_EQ(handler.gone, std::vector<PeerId>{1});
  return found;
}

TEST(SimFence, WhatHasStartedIsWholeWhatHasNotIsNeverExecuted) {
  std::set<std::pair<uint64_t, uint64_t>> outcomes;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (int steps = 0; steps < 12; ++steps) outcomes.insert(CutDuringTwoWrites(seed, steps));
  }
  EXPECT_EQ(outcomes, (std::set<std::pair<uint64_t, uint64_t>>{{0, 0}, {1, 0}, {1, 2}}));
}

TEST(SimFence, TheCutOffReachesNothingThereAnyMoreButOtherServers) {
  constexpr ServerId kOther = 2;
  TestWorld sim({.seed = 1});
  GoneHandler handler;
  sim.world.SetHandler(kServer, &handler);
  const ServerMemory other = sim.world.AddServer(kOther, 1 << 20, 4096);
  TestClient client(sim.world.NewFabric());
  sim.world.Fence(kServer)->CutOff(1);
  client.Store(0, 7);
  client.chain.Write(MemorySpace::kMain, 4096, client.buffer.Slice(0, 8));
  client.Run();
  EXPECT_TRUE(absl::IsUnavailable(client.chain.status())) << client.chain.status();
  EXPECT_EQ(sim.Word(4096), 0u);
  client.ExpectReaches(kOther, other);
  // A session that it opens later finds nothing either.
  TestClient later(client.fabric);
  later.chain.Write(MemorySpace::kMain, 4096, later.buffer.Slice(0, 8));
  later.Run();
  EXPECT_TRUE(absl::IsUnavailable(later.chain.status()));
}

}  // namespace
}  // namespace pando::sim
