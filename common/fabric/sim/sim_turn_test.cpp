// Time that passes inside a turn of a session, and clocks that differ.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/fabric/sim/sim_test_util.h"
#include "common/fabric/sim/sim_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::sim {
namespace {

// What a runner sees that looks at the clock ten times in one turn and posts a WRITE in between;
// last, when the turn is over.
struct LookedTenTimes {
  std::vector<int64_t> looks;
  int64_t over_ns = 0;
  uint64_t trace_hash = 0;
  SimStats stats;
};

LookedTenTimes LookTenTimes(const SimOptions& options) {
  TestWorld sim(options);
  TestClient client(sim.world.NewFabric());
  LookedTenTimes turn;
  client.endpoint->set_runner([&] {
    if (!turn.looks.empty()) return;
    for (int i = 0; i < 10; ++i) turn.looks.push_back(client.endpoint->clock().NowNs());
    client.chain.Write(MemorySpace::kMain, 4096, client.buffer.Slice(0, 8));
    client.endpoint->Post(&client.chain);
  });
  client.endpoint->Wake();
  while (turn.looks.empty()) sim.world.Step();
  turn.over_ns = sim.world.clock().NowNs();
  EXPECT_EQ(sim.world.clock().NowNs(), turn.over_ns) << "outside of turns it stands still";
  client.Finish();
  EXPECT_TRUE(client.chain.ok());
  EXPECT_GE(sim.world.clock().NowNs(), turn.over_ns + 2 * options.delay_ns);
  turn.trace_hash = sim.world.trace_hash();
  turn.stats = sim.world.stats();
  return turn;
}

TEST(SimTurn, TakesNoTimeUnlessAsked) {
  const LookedTenTimes turn = LookTenTimes({.seed = 1});
  EXPECT_THAT(turn.looks, testing::Each(turn.looks.front()));
  EXPECT_EQ(turn.over_ns, turn.looks.front());
  EXPECT_EQ(turn.stats.turn_ns, 0u);
}

TEST(SimTurn, TimePassesAtEachLook) {
  const SimOptions options = {.seed = 1, .turn_look_ns = 200};
  const LookedTenTimes turn = LookTenTimes(options);
  EXPECT_TRUE(std::is_sorted(turn.looks.begin(), turn.looks.end()));
  EXPECT_GT(turn.looks.back(), turn.looks.front() + 9 * 100);
  EXPECT_GT(turn.over_ns, turn.looks.back()) << "it is later than who looked last thinks";
  EXPECT_GT(turn.stats.turn_ns, 10u * 100);
  EXPECT_EQ(turn.stats.turn_stalls, 0u);
  EXPECT_EQ(LookTenTimes(options).trace_hash, turn.trace_hash) << "the same run";
}

TEST(SimTurn, AThreadIsStoppedBetweenALookAndWhatItDoesNext) {
  uint64_t after_last_look = 0, stalls = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const LookedTenTimes turn = LookTenTimes({.seed = seed,
                                              .turn_look_ns = 1,
                                              .turn_stall_probability = 0.05,
                                              .turn_stall_ns = kMillisecondNs});
    stalls += turn.stats.turn_stalls;
    if (turn.over_ns - turn.looks.back() > 10 * kMicrosecondNs) ++after_last_look;
  }
  EXPECT_GT(stalls, 10u);
  EXPECT_GT(after_last_look, 0u);
}

// Remembers by its own clock when its timer ran.
class TimerHandler : public GoneHandler {
 public:
  int64_t OnTimer(int64_t now_ns) override {
    if (now_ns >= next_ns) ran_ns.push_back(std::exchange(next_ns, now_ns + kMillisecondNs));
    last_ns = now_ns;
    return next_ns;
  }
  int64_t next_ns = 0, last_ns = 0;
  std::vector<int64_t> ran_ns;
};

TEST(SimClocks, DifferAndEachWaitsByItsOwn) {
  int64_t fastest_ns = 0, slowest_ns = kNeverNs;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    TestWorld sim({.seed = seed, .clock_drift_permille = 43});
    TimerHandler handler;
    sim.world.SetHandler(kServer, &handler);
    TestClient client(sim.world.NewFabric());
    const Clock& clock = client.endpoint->clock();
    PendingCall call;
    call.server = kServer;
    call.deadline_ns = clock.NowNs() + 10 * kMillisecondNs;
    client.endpoint->Call(&call);
    while (!call.done) client.endpoint->Wait(kNeverNs);
    EXPECT_TRUE(call.status.ok());
    // A call that ends by its deadline does so when its caller's clock shows that.
    sim.world.PauseServer(kServer);
    call.deadline_ns = clock.NowNs() + kSecondNs;
    client.endpoint->Call(&call);
    while (!call.done) client.endpoint->Wait(kNeverNs);
    EXPECT_GE(clock.NowNs(), call.deadline_ns);
    EXPECT_LE(clock.NowNs(), call.deadline_ns + 2);
    sim.world.ResumeServer(kServer);
    // So does whoever wants to be woken, or waits.
    const int64_t wake_ns = clock.NowNs() + kSecondNs;
    int64_t woken_ns = 0;
    client.endpoint->set_runner([&] { woken_ns = woken_ns == 0 ? clock.NowNs() : woken_ns; });
    client.endpoint->WakeAt(wake_ns);
    while (woken_ns == 0) sim.world.Step();
    EXPECT_GE(woken_ns, wake_ns);
    EXPECT_LE(woken_ns, wake_ns + 2);
    // And a server's timers by the server's.
    EXPECT_EQ(sim.world.ServerClock(kServer).NowNs() / kSecondNs, handler.last_ns / kSecondNs);
    EXPECT_GT(handler.ran_ns.size(), 900u);
    fastest_ns = std::max(fastest_ns, clock.NowNs() * 1000 / sim.world.clock().NowNs());
    slowest_ns = std::min(slowest_ns, clock.NowNs() * 1000 / sim.world.clock().NowNs());
  }
  EXPECT_GT(fastest_ns, 1030);
  EXPECT_LT(slowest_ns, 970);
}

}  // namespace
}  // namespace pando::sim
