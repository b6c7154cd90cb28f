// Deaths and pauses: what a killed client leaves behind, and how its code is run to its end.
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "common/fabric/sim/sim_test_util.h"
#include "common/fabric/sim/sim_world.h"
#include "gtest/gtest.h"

namespace pando::sim {
namespace {

void Drain(TestClient& client) {
  while (client.endpoint->in_flight() > 0) client.endpoint->Wait(kNeverNs);
}

// Two WRITEs of a node's size are posted; the sender dies after `steps` events. What is there when
// the servers are told: how many of the two, each whole.
struct KillResult {
  int first = 0, second = 0;
  bool torn = false;
  uint64_t after_kill = 0;
  int64_t told_after_ns = 0;
};

KillResult KillDuringTwoWrites(uint64_t seed, int steps, int64_t late_ns = 0) {
  TestWorld sim({.seed = seed, .kill_late_ns = late_ns});
  GoneHandler handler;
  sim.world.SetHandler(kServer, &handler);
  auto fabric = sim.world.NewFabric();
  TestClient client(fabric);
  client.PostTwoWrites();
  for (int i = 0; i < steps; ++i) sim.world.Step();
  sim.world.KillFabric(*fabric);
  const int64_t killed_ns = sim.world.clock().NowNs();
  // The dead process's memory is anything from here on.
  std::memset(client.buffer.data, 0xee, client.buffer.bytes);
  while (handler.gone.empty()) EXPECT_TRUE(sim.world.Step());
  KillResult result;
  result.told_after_ns = sim.world.clock().NowNs() - killed_ns;
  for (uint64_t at = 0; at < 1024; at += 8) {
    result.torn |= sim.Word(4096 + at) != sim.Word(4096) || sim.Word(8192 + at) != sim.Word(8192);
  }
  result.first = static_cast<int>(sim.Word(4096));
  result.second = static_cast<int>(sim.Word(8192));
  result.after_kill = sim.world.stats().verbs_after_kill;
  const uint64_t hash_of_memory = sim.Word(4096) + sim.Word(8192);
  Drain(client);
  EXPECT_TRUE(absl::IsUnavailable(client.chain.status())) << client.chain.status();
  EXPECT_EQ(sim.Word(4096) + sim.Word(8192), hash_of_memory)
      << "something moved after the death was told";
  return result;
}

TEST(SimKill, BetweenAnyTwoPacketsEachWhole) {
  std::set<std::pair<int, int>> outcomes;
  uint64_t after_kill = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (int steps = 0; steps < 12; ++steps) {
      const KillResult result = KillDuringTwoWrites(seed, steps);
      ASSERT_FALSE(result.torn) << "seed " << seed << " steps " << steps;
      outcomes.insert({result.first, result.second});
      after_kill += result.after_kill;
    }
  }
  EXPECT_EQ(outcomes, (std::set<std::pair<int, int>>{{0, 0}, {1, 0}, {1, 2}}));
  EXPECT_GT(after_kill, 0u);
}

// The packets of the dead may be late; the servers are told when the last one has come.
TEST(SimKill, ADeathIsToldAfterItsLastPacketHoweverLate) {
  constexpr int64_t kLateNs = 5 * kMillisecondNs;
  int late = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const KillResult result = KillDuringTwoWrites(seed, 2, kLateNs);
    ASSERT_FALSE(result.torn) << "seed " << seed;
    EXPECT_LT(result.told_after_ns, kLateNs + kMillisecondNs);
    if (result.told_after_ns > kMillisecondNs && result.after_kill > 0) ++late;
  }
  EXPECT_GT(late, 5);
}

TEST(SimKill, PostsAndCallsFailAtOnceAndEventsStop) {
  TestWorld sim({.seed = 5});
  GoneHandler handler;
  sim.world.SetHandler(kServer, &handler);
  auto fabric = sim.world.NewFabric();
  TestClient client(fabric), other(fabric);
  int runs = 0;
  client.endpoint->set_runner([&] { ++runs; });
  client.endpoint->Wake();
  PendingCall call;
  call.server = kServer;
  call.request = "hello";
  other.endpoint->Call(&call);
  sim.world.KillFabric(*fabric);
  EXPECT_TRUE(sim.world.IsKilled(*fabric));
  sim.world.RunUntil(kSecondNs);
  EXPECT_EQ(runs, 0) << "a dead process runs";
  EXPECT_FALSE(call.done);

  client.chain.Read(MemorySpace::kMain, 0, client.buffer.Slice(0, 8));
  client.endpoint->Post(&client.chain);
  EXPECT_TRUE(client.chain.done());
  EXPECT_TRUE(absl::IsUnavailable(client.chain.status()));
  PendingCall late;
  late.server = kServer;
  client.endpoint->Call(&late);
  EXPECT_TRUE(late.done);
  EXPECT_TRUE(absl::IsUnavailable(late.status));
  EXPECT_FALSE(fabric->Connect(1, 1).ok());

  // Running it to its end: one Wait() on any of its endpoints lets all of them go on.
  client.endpoint->Wait(sim.world.clock().NowNs() + 1000);
  EXPECT_TRUE(call.done);
  EXPECT_TRUE(absl::IsUnavailable(call.status));
  sim.world.RunUntil(2 * kSecondNs);
  EXPECT_GT(runs, 0);
  const int before = runs;
  client.endpoint->WakeAt(3 * kSecondNs);
  sim.world.RunUntil(4 * kSecondNs);
  EXPECT_EQ(runs, before + 1) << "timers of a draining process go";
  client.endpoint->set_runner(nullptr);
}

TEST(SimKill, OnlyTheKilledProcessStops) {
  TestWorld sim({.seed = 6});
  auto dead = sim.world.NewFabric(), alive = sim.world.NewFabric();
  TestClient a(dead), b(alive);
  a.chain.FetchAdd(MemorySpace::kLocks, 0, 1);
  a.endpoint->Post(&a.chain);
  sim.world.KillFabric(*dead);
  b.chain.FetchAdd(MemorySpace::kLocks, 0, 1);
  b.Run();
  EXPECT_TRUE(b.chain.ok());
  Drain(a);
}

TEST(SimKill, OrderlyCloseIsToldToo) {
  TestWorld sim({.seed = 7});
  GoneHandler handler;
  sim.world.SetHandler(kServer, &handler);
  {
    TestClient client(sim.world.NewFabric());
    client.chain.FetchAdd(MemorySpace::kLocks, 0, 1);
    client.Run();
    EXPECT_TRUE(handler.gone.empty());
  }
  sim.world.RunUntil(kSecondNs);
  EXPECT_EQ(handler.gone.size(), 1u);
}

TEST(SimKill, PausedProcessesGoOnWhereTheyWere) {
  TestWorld sim({.seed = 8});
  auto fabric = sim.world.NewFabric();
  TestClient client(fabric);
  int runs = 0;
  client.endpoint->set_runner([&] { ++runs; });
  client.Store(0, 42);
  client.chain.Write(MemorySpace::kMain, 4096, client.buffer.Slice(0, 8));
  client.endpoint->Post(&client.chain);
  client.endpoint->Wake();
  sim.world.PauseFabric(*fabric);
  sim.world.RunUntil(kSecondNs);
  EXPECT_EQ(sim.Word(4096), 42u) << "what it had posted goes on";
  EXPECT_FALSE(client.chain.done());
  EXPECT_EQ(runs, 0);
  sim.world.ResumeFabric(*fabric);
  sim.world.RunUntil(2 * kSecondNs);
  EXPECT_TRUE(client.chain.done());
  EXPECT_GE(runs, 1);
  EXPECT_GE(client.chain.completed_ns(), kSecondNs);
  client.endpoint->set_runner(nullptr);
}

TEST(SimKill, DeadServerIsUnavailableWithinTwoSeconds) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    TestWorld sim({.seed = seed});
    TestClient client(sim.world.NewFabric()), late(client.fabric);
    client.chain.Write(MemorySpace::kMain, 4096, client.buffer.Slice(0, 1024));
    client.chain.Read(MemorySpace::kMain, 0, client.buffer.Slice(1024, 1024));
    client.endpoint->Post(&client.chain);
    for (uint64_t i = 0; i < seed % 10; ++i) sim.world.Step();
    const bool was_done = client.chain.done();
    sim.world.KillServer(kServer);
    late.chain.Read(MemorySpace::kMain, 0, late.buffer.Slice(0, 8));
    late.endpoint->Post(&late.chain);
    const int64_t killed_ns = sim.world.clock().NowNs();
    late.Finish();
    client.Finish();
    EXPECT_TRUE(absl::IsUnavailable(late.chain.status()));
    if (!was_done && !client.chain.ok()) {
      EXPECT_TRUE(absl::IsUnavailable(client.chain.status()));
      EXPECT_NE(client.chain.status().message().find("server 1"), std::string::npos);
    }
    EXPECT_LE(sim.world.clock().NowNs() - killed_ns, 2 * kSecondNs);
    while (sim.world.Step()) {
    }
  }
}

}  // namespace
}  // namespace pando::sim
