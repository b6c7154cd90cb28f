// Links that are cut for a while (SimWorld::CutLink): both ends live, and reach everybody else.
#include <cstring>
#include <memory>

#include "common/fabric/recoverable.h"
#include "common/fabric/sim/sim_test_util.h"
#include "common/fabric/sim/sim_world.h"
#include "gtest/gtest.h"

namespace pando::sim {
namespace {

constexpr ServerId kOther = 2;

struct TwoServers : TestWorld {
  explicit TwoServers(uint64_t seed) : TestWorld({.seed = seed}) {
    world.AddServer(kOther, 1 << 20, 64 << 10);
    world.SetHandler(kServer, &handler);
    world.SetHandler(kOther, &handler);
  }
  GoneHandler handler;
};

absl::Status ReadFrom(TestClient& client, ServerId server) {
  client.chain.Reset(server);
  client.chain.Read(MemorySpace::kMain, 0, client.buffer.Slice(0, 8));
  client.Run();
  return client.chain.status();
}

absl::Status CallTo(TwoServers& sim, TestClient& client, ServerId server) {
  PendingCall call;
  call.server = server;
  call.request = "x";
  call.deadline_ns = sim.world.clock().NowNs() + kMillisecondNs;
  client.endpoint->Call(&call);
  while (!call.done) client.endpoint->Wait(kNeverNs);
  return call.status;
}

TEST(SimLink, WhileItIsCutNothingGetsThroughAndEverybodyElseIsReached) {
  TwoServers sim(1);
  TestClient client(sim.world.NewFabric()), neighbour(sim.world.NewFabric());
  EXPECT_TRUE(ReadFrom(client, kServer).ok());
  sim.world.CutLink(*client.fabric, kServer, true);
  for (int i = 0; i < 50; ++i) {
    const absl::Status read = ReadFrom(client, kServer);
    EXPECT_TRUE(absl::IsUnavailable(read) && IsRecoverable(read)) << read;
    sim.world.RunUntil(sim.world.clock().NowNs() + kMillisecondNs);
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(CallTo(sim, client, kServer)));
  EXPECT_TRUE(ReadFrom(client, kOther).ok());
  EXPECT_TRUE(CallTo(sim, client, kOther).ok());
  EXPECT_TRUE(ReadFrom(neighbour, kServer).ok());
  EXPECT_TRUE(CallTo(sim, neighbour, kServer).ok());
  TestClient later(client.fabric);  // its queue pairs come after the cut
  EXPECT_TRUE(IsRecoverable(ReadFrom(later, kServer)));

  sim.world.CutLink(*client.fabric, kServer, false);
  sim.world.RunUntil(sim.world.clock().NowNs() + 2 * kMillisecondNs);
  EXPECT_TRUE(ReadFrom(client, kServer).ok());
  EXPECT_TRUE(ReadFrom(later, kServer).ok());
  EXPECT_TRUE(CallTo(sim, client, kServer).ok());
  EXPECT_EQ(sim.world.stats().links_cut, 1u);
  EXPECT_TRUE(sim.handler.gone.empty()) << "nobody is dead";
}

// What had left before may come late, but not once the queue pair is there again; and a reply that
// was under way is lost.
TEST(SimLink, WhatWasUnderWayComesLateOrNever) {
  uint64_t late = 0, lost = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    TwoServers sim(seed);
    TestClient client(sim.world.NewFabric());
    PendingCall call;
    call.server = kServer;
    call.request = "x";
    call.deadline_ns = sim.world.clock().NowNs() + kMillisecondNs;
    client.endpoint->Call(&call);
    client.PostTwoWrites();
    for (uint64_t step = 0; step < seed % 12; ++step) sim.world.Step();
    sim.world.CutLink(*client.fabric, kServer, true);
    client.Finish();
    std::memset(client.buffer.data, 0xee, client.buffer.bytes);
    while (!call.done) client.endpoint->Wait(kNeverNs);
    if (absl::IsDeadlineExceeded(call.status)) ++lost;
    sim.world.CutLink(*client.fabric, kServer, false);
    while (!ReadFrom(client, kServer).ok()) {
      sim.world.RunUntil(sim.world.clock().NowNs() + 10 * kMicrosecondNs);
    }
    const uint64_t first = sim.Word(4096), second = sim.Word(8192);
    EXPECT_TRUE((first == 0 || first == 1) && (second == 0 || second == 2));
    EXPECT_TRUE(second == 0 || first == 1) << "a whole prefix";
    late += sim.world.stats().verbs_after_break;
    sim.world.RunUntil(sim.world.clock().NowNs() + 10 * kMillisecondNs);
    EXPECT_EQ(sim.Word(4096), first);
    EXPECT_EQ(sim.Word(8192), second);
  }
  EXPECT_GT(late, 0u);
  EXPECT_GT(lost, 30u);
}

}  // namespace
}  // namespace pando::sim
