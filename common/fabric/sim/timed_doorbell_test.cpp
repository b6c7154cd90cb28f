// The timing model: chains that are posted in one turn, their lists and doorbells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/fabric/chain_list.h"
#include "common/fabric/sim/timed_network.h"
#include "common/fabric/sim/timed_test_util.h"

namespace pando::sim {
namespace {

// A session whose turn is given by the test, and what comes of it.
struct Turn {
  static constexpr ServerId kOther = 2;
  struct TwoServers : TestWorld {
    explicit TwoServers(const NicProfile& profile) : TestWorld(Timed(profile)) {
      world.AddServer(kOther, 1 << 20, 64 << 10);
    }
  };

  explicit Turn(const NicProfile& profile) : world(profile), client(&world) {}
  // Posts a chain of so many WRITEs of a word; more coroutines are ready, or this was the last.
  Chain& Post(int verbs, bool others_are_ready, ServerId server = kServer) {
    Chain& chain = *chains.emplace_back(std::make_unique<Chain>(server));
    for (int i = 0; i < verbs; ++i) {
      chain.Write(MemorySpace::kMain, 8 * chains.size(), client.buffer.Slice(0, 8));
    }
    client.endpoint->set_overlap(others_are_ready);
    client.endpoint->Post(&chain);
    return chain;
  }
  // Runs the turn, and what was posted in it. Returns when it began.
  int64_t Run(const std::function<void()>& body) {
    bool ran = false;
    int64_t began_ns = 0;
    client.endpoint->set_runner([&] {
      if (std::exchange(ran, true)) return;
      began_ns = world.world.clock().NowNs();
      body();
      doorbells_in_turn = world.world.stats().doorbells;
    });
    client.endpoint->Wake();
    while (!ran || client.endpoint->in_flight() > 0) client.endpoint->Wait(kNeverNs);
    return began_ns;
  }
  uint64_t doorbells() const { return world.world.stats().doorbells; }

  TwoServers world;
  TimedClient client;
  std::vector<std::unique_ptr<Chain>> chains;
  uint64_t doorbells_in_turn = 0;
};

constexpr int64_t kPostChain = 1000, kPostVerb = 100;

NicProfile WithCpu() {
  NicProfile profile = RoundNumbers();
  profile.cpu.post_chain_ns = kPostChain;
  profile.cpu.post_verb_ns = kPostVerb;
  return profile;
}

TEST(TimedNetworkTest, ChainsOfATurnShareADoorbell) {
  Turn turn(WithCpu());
  const int64_t began_ns = turn.Run([&] {
    for (const bool others_are_ready : {true, true, true, true, false}) {
      turn.Post(1, others_are_ready);
    }
    EXPECT_EQ(turn.world.world.clock().NowNs(), turn.chains[0]->posted_ns() + kPostChain + 500);
  });
  EXPECT_EQ(turn.doorbells(), 1u);
  EXPECT_EQ(turn.doorbells_in_turn, 1u);
  for (const auto& chain : turn.chains) EXPECT_EQ(chain->started_ns(), began_ns);
  // It is as one chain of five verbs, up to the completion of its last.
  Turn whole(WithCpu());
  const int64_t whole_began_ns = whole.Run([&] { whole.Post(5, false); });
  EXPECT_EQ(whole.doorbells(), 1u);
  EXPECT_EQ(turn.chains[4]->completed_ns() - began_ns,
            whole.chains[0]->completed_ns() - whole_began_ns);
  EXPECT_LT(turn.chains[0]->completed_ns(), turn.chains[4]->completed_ns());
}

TEST(TimedNetworkTest, AShortChainThatIsAloneHasADoorbellForEachVerb) {
  for (const bool others_are_ready : {false, true}) {
    Turn turn(WithCpu());
    const int64_t began_ns = turn.Run([&] { turn.Post(3, others_are_ready); });
    EXPECT_EQ(turn.doorbells(), 3u);
    // Three doorbells of the processor's time, and nothing is fetched.
    EXPECT_NEAR(turn.chains[0]->completed_ns() - began_ns,
                3 * (kPostChain + kPostVerb) + kThere + 2 * kQueuePair + 1 + kBack, 1);
  }
  Turn side_by_side(WithCpu());
  side_by_side.Run([&] {
    side_by_side.Post(2, true);
    side_by_side.Post(2, false);
  });
  EXPECT_EQ(side_by_side.doorbells(), 1u) << "two chains, one list";
  Turn one_after_the_other(WithCpu());
  one_after_the_other.Run([&] {
    one_after_the_other.Post(1, false);
    one_after_the_other.Post(2, false);
  });
  EXPECT_EQ(one_after_the_other.doorbells(), 2u) << "the first is in flight";
  NicProfile reads_nothing = WithCpu();
  reads_nothing.nic.fetch_chain_ns = 0;
  Turn in_software(reads_nothing);
  in_software.Run([&] { in_software.Post(3, false); });
  EXPECT_EQ(in_software.doorbells(), 1u) << "there is nothing to gain";
}

TEST(TimedNetworkTest, AChainAloneCostsADoorbellWheneverItIsRungFor) {
  for (const bool others_are_ready : {false, true}) {
    Turn turn(WithCpu());
    const int64_t began_ns = turn.Run([&] { turn.Post(1, others_are_ready); });
    EXPECT_EQ(turn.doorbells(), 1u);
    EXPECT_EQ(turn.doorbells_in_turn, others_are_ready ? 0u : 1u);
    // No work request is fetched.
    EXPECT_NEAR(turn.chains[0]->completed_ns() - began_ns,
                kPostChain + kPostVerb + kThere + 1 + kBack, 1);
  }
}

TEST(TimedNetworkTest, AListLeavesWhenItsTurnIsOverAndNotBefore) {
  constexpr int64_t kWork = 5000;
  Turn turn(WithCpu());
  turn.client.Store(0, 7);
  const int64_t began_ns = turn.Run([&] {
    turn.Post(1, true);
    turn.world.world.SpendCpu(kWork);
    turn.Post(1, true);
    turn.world.world.SpendCpu(kWork);
  });
  EXPECT_EQ(turn.doorbells(), 1u);
  EXPECT_EQ(turn.doorbells_in_turn, 0u);
  EXPECT_EQ(turn.chains[0]->posted_ns(), began_ns);
  EXPECT_EQ(turn.chains[1]->posted_ns(), began_ns + kWork);
  for (const auto& chain : turn.chains) EXPECT_EQ(chain->started_ns(), began_ns + 2 * kWork);
  EXPECT_NEAR(turn.chains[0]->completed_ns() - began_ns,
              2 * kWork + kPostChain + 2 * kPostVerb + kFetchChain + kThere + 1 + kBack, 1);
}

TEST(TimedNetworkTest, AListIsOfOneServer) {
  Turn turn(WithCpu());
  turn.Run([&] {
    turn.Post(1, true, Turn::kOther);
    turn.Post(1, true);
    turn.Post(1, false);  // rings for its own server
    EXPECT_EQ(turn.doorbells(), 1u);
    EXPECT_EQ(turn.chains[0]->started_ns(), turn.chains[0]->posted_ns());
  });
  EXPECT_EQ(turn.doorbells(), 2u);
  EXPECT_EQ(turn.chains[0]->started_ns(), turn.chains[1]->started_ns() + kPostChain + 200);
}

TEST(TimedNetworkTest, AListHasABoundAndDividesNoChain) {
  Turn turn(WithCpu());
  turn.Run([&] {
    for (uint32_t i = 0; i < kChainListVerbsMax + 3; ++i) turn.Post(1, true);
  });
  EXPECT_EQ(turn.doorbells_in_turn, 1u);  // it was full
  EXPECT_EQ(turn.doorbells(), 2u);
  Turn divided(WithCpu());
  divided.Run([&] {
    for (uint32_t i = 1; i < kChainListVerbsMax; ++i) divided.Post(1, true);
    divided.Post(Chain::kMaxVerbs, true);
  });
  EXPECT_EQ(divided.doorbells_in_turn, 2u);
  EXPECT_EQ(divided.doorbells(), 2u);
  EXPECT_GT(divided.chains.back()->started_ns(), divided.chains[0]->started_ns());
}

TEST(TimedNetworkTest, WhoPollsOrWaitsRingsForWhatWaits) {
  for (const bool polls : {false, true}) {
    Turn turn(WithCpu());
    turn.Post(1, true);
    turn.Post(1, true);
    EXPECT_EQ(turn.doorbells(), 0u);
    if (polls) {
      EXPECT_EQ(turn.client.endpoint->Poll(), 0u);
      EXPECT_EQ(turn.doorbells(), 1u);
    }
    while (turn.client.endpoint->in_flight() > 0) turn.client.endpoint->Wait(kNeverNs);
    EXPECT_EQ(turn.doorbells(), 1u);
  }
}

TEST(TimedNetworkTest, WithoutATimingModelNothingWaits) {
  const auto hash = [](bool others_are_ready) {
    TestWorld world(SimOptions{});
    TestClient client(world.world.NewFabric());
    client.endpoint->set_overlap(others_are_ready);
    client.chain.Write(MemorySpace::kMain, 64, client.buffer.Slice(0, 8));
    client.Run();
    EXPECT_EQ(client.chain.started_ns(), client.chain.posted_ns());
    EXPECT_EQ(world.world.stats().doorbells, 0u);
    return world.world.trace_hash();
  };
  EXPECT_EQ(hash(false), hash(true));
}

}  // namespace
}  // namespace pando::sim
