// The timing model by arithmetic: a profile of round numbers, and the times that follow from it.
#include "common/fabric/sim/timed_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/fabric/chain_list.h"
#include "common/fabric/sim/timed_test_util.h"

namespace pando::sim {
namespace {

TEST(TimedNetworkTest, EachVerbTakesItsWay) {
  TestWorld world(Timed());
  TimedClient client(&world);
  client.chain.Write(MemorySpace::kMain, 64, client.buffer.Slice(0, 80));
  EXPECT_EQ(client.RunFor(), kThere + 8 + kBack);
  client.chain.Reset(kServer);
  client.chain.Read(MemorySpace::kMain, 64, client.buffer.Slice(0, 1000));
  EXPECT_EQ(client.RunFor(), kThere + 100 + kPcieRead + 100 + kHeader + kBack);
  client.chain.Reset(kServer);
  client.chain.CompareSwap(MemorySpace::kMain, 64, 0, 1);
  EXPECT_NEAR(client.RunFor(), kThere + 1 + kHostLatency + kHeader + kBack, 2);
  client.chain.Reset(kServer);
  client.chain.CompareSwap(MemorySpace::kLocks, 64, 0, 1);
  EXPECT_NEAR(client.RunFor(), kThere + 1 + kOnChipLatency + kHeader + kBack, 2);
  client.chain.Reset(kServer);
  client.chain.Read(MemorySpace::kLocks, 64, client.buffer.Slice(0, 80));
  EXPECT_EQ(client.RunFor(), kThere + 30 + kHeader + 8 + kBack);
}

TEST(TimedNetworkTest, WhatIsBusyIsCounted) {
  TestWorld world(Timed());
  TimedClient client(&world);
  client.chain.Read(MemorySpace::kMain, 0, client.buffer.Slice(0, 1000));
  client.chain.CompareSwap(MemorySpace::kMain, 2048, 0, 0);
  client.RunFor();
  const std::vector<NicUse> all = world.world.nic_use();
  ASSERT_EQ(all.size(), 1u);
  const NicUse& use = all.front();
  EXPECT_EQ(use.link_out_ns, 1000 / kBytesANs + kHeader);
  EXPECT_GE(use.link_in_ns, 2 * kHeader);
  EXPECT_EQ(use.receive_ns, 2 * kReceive);
  EXPECT_EQ(use.send_ns, 0);
  EXPECT_EQ(use.pcie_ns, 1000 / kBytesANs);
  EXPECT_EQ(use.lock_ns, kHold);
  TestWorld untimed(SimOptions{});
  EXPECT_TRUE(untimed.world.nic_use().empty());
}

TEST(TimedNetworkTest, LongPayloadsAndChainsAreFetched) {
  TestWorld world(Timed());
  TimedClient client(&world);
  client.chain.Write(MemorySpace::kMain, 64, client.buffer.Slice(0, 1000));
  EXPECT_EQ(client.RunFor(), kThere + 100 + kFetchPayload + 100 + kBack);
  client.chain.Reset(kServer);
  for (uint32_t i = 0; i <= kAloneVerbsMax; ++i) {
    client.chain.Write(MemorySpace::kMain, 512 * i, client.buffer.Slice(0, 80));
  }
  EXPECT_EQ(client.RunFor(), kThere + 8 + kFetchChain + kAloneVerbsMax * kQueuePair + kBack);
}

TEST(TimedNetworkTest, OneHostHasNoWire) {
  TestWorld world(Timed());
  TimedClient client(&world, /*on_server_host=*/true);
  client.chain.Write(MemorySpace::kMain, 64, client.buffer.Slice(0, 80));
  EXPECT_EQ(client.RunFor(), kThere + 8 + kBack - 2 * kWire);
}

TEST(TimedNetworkTest, VerbsOfAQueuePairHappenInOrder) {
  TestWorld world(Timed());
  TimedClient client(&world);
  for (uint64_t i = 1; i <= 3; ++i) {
    client.chain.Reset(kServer);
    client.Store(0, 7 * i);
    client.chain.Write(MemorySpace::kMain, 64, client.buffer.Slice(0, 8));
    client.chain.CompareSwap(MemorySpace::kMain, 64, 7 * i, 7 * i + 1);
    client.chain.Read(MemorySpace::kMain, 64, client.buffer.Slice(8, 8));
    client.RunFor();
    EXPECT_TRUE(client.chain.verb(1).swapped());
    EXPECT_EQ(client.Load(8), 7 * i + 1);
  }
}

TEST(TimedNetworkTest, NothingOvertakesAPayloadThatIsFetched) {
  TestWorld world(Timed());
  TimedClient client(&world);
  for (uint32_t at = 0; at < 1024; at += 8) client.Store(at, 1);
  client.Store(1024, 2);
  client.chain.Write(MemorySpace::kMain, 0, client.buffer.Slice(0, 1024));
  Chain behind(kServer), last(kServer);
  behind.Write(MemorySpace::kMain, 0, client.buffer.Slice(1024, 8));
  last.Write(MemorySpace::kMain, 2048, client.buffer.Slice(0, 1024));
  for (Chain* chain : {&client.chain, &behind, &last}) client.endpoint->Post(chain);
  while (!last.done()) client.endpoint->Wait(kNeverNs);
  EXPECT_EQ(world.Word(0), 2u);
  EXPECT_GE(behind.completed_ns(), client.chain.completed_ns());
  // Payloads are fetched side by side.
  EXPECT_LT(last.completed_ns() - client.chain.completed_ns(), kFetchPayload);
}

TEST(TimedNetworkTest, AFenceWaitsForARoundTrip) {
  TestWorld world(Timed());
  TimedClient client(&world);
  world.SetWord(64, 5);
  client.Store(8, 6);
  client.chain.Read(MemorySpace::kMain, 64, client.buffer.Slice(0, 8));
  client.chain.Write(MemorySpace::kMain, 64, client.buffer.Slice(8, 8)).fence = true;
  client.endpoint->Post(&client.chain);
  // Posted behind the fence, it waits as well.
  Chain behind(kServer);
  behind.Read(MemorySpace::kMain, 64, client.buffer.Slice(16, 8));
  client.endpoint->Post(&behind);
  client.Finish();
  while (!behind.done()) client.endpoint->Wait(kNeverNs);
  EXPECT_EQ(client.Load(0), 5u);
  EXPECT_EQ(client.Load(16), 6u);
  EXPECT_GT(client.chain.completed_ns() - client.chain.posted_ns(), 4 * kWire);
  EXPECT_GE(behind.completed_ns(), client.chain.completed_ns());
}

// Completion times of `clients` who do an atomic at the same time, each on its own word: the i-th
// at 8 * i * stride.
std::vector<int64_t> AtomicsAtOnce(MemorySpace space, uint64_t stride, bool locks_on_chip) {
  TestWorld world(Timed());
  world.world.SetLocksOnChip(locks_on_chip);
  std::vector<std::unique_ptr<TimedClient>> clients;
  std::vector<int64_t> times;
  for (uint64_t i = 0; i < 4; ++i) clients.push_back(std::make_unique<TimedClient>(&world));
  for (uint64_t i = 0; i < 4; ++i) {
    clients[i]->chain.FetchAdd(space, 8 * i * stride, 1);
    clients[i]->endpoint->Post(&clients[i]->chain);
  }
  for (auto& client : clients) client->Finish();
  for (auto& client : clients) {
    times.push_back(client->chain.completed_ns() - clients[0]->chain.completed_ns());
  }
  return times;
}

TEST(TimedNetworkTest, AtomicsOfABucketWaitForEachOther) {
  using ::testing::ElementsAre;
  // The same word; words that share a bucket; words that do not: those wait for the receive engine
  // only.
  EXPECT_THAT(AtomicsAtOnce(MemorySpace::kMain, 0, true),
              ElementsAre(0, kHold, 2 * kHold, 3 * kHold));
  EXPECT_THAT(AtomicsAtOnce(MemorySpace::kMain, 16, true),
              ElementsAre(0, kHold, 2 * kHold, 3 * kHold));
  EXPECT_LT(AtomicsAtOnce(MemorySpace::kMain, 1, true).back(), kHold);
  EXPECT_THAT(AtomicsAtOnce(MemorySpace::kLocks, 0, true),
              ElementsAre(0, kOnChipHold, 2 * kOnChipHold, 3 * kOnChipHold));
  EXPECT_THAT(AtomicsAtOnce(MemorySpace::kLocks, 0, false),
              ElementsAre(0, kHold, 2 * kHold, 3 * kHold));
}

TEST(TimedNetworkTest, AnAtomicHasItsEffectWhenItsTurnComes) {
  TestWorld world(Timed());
  world.SetWord(64, 1);
  // Four who fail keep the bucket busy; a WRITE, which needs none, comes before the last of them.
  std::vector<std::unique_ptr<TimedClient>> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(std::make_unique<TimedClient>(&world));
  for (int i = 0; i < 5; ++i) clients[i]->chain.CompareSwap(MemorySpace::kMain, 64, 0, 2);
  clients[5]->Store(0, 0);
  // A little longer than the atomics: it arrives after them.
  clients[5]->chain.Write(MemorySpace::kMain, 64, clients[5]->buffer.Slice(0, 32));
  for (auto& client : clients) client->endpoint->Post(&client->chain);
  for (auto& client : clients) client->Finish();
  EXPECT_FALSE(clients[0]->chain.verb(0).swapped());
  EXPECT_TRUE(clients[1]->chain.verb(0).swapped());
  EXPECT_FALSE(clients[4]->chain.verb(0).swapped());
  EXPECT_EQ(world.Word(64), 2u);
}

// `atomics` on one word, at the same time, of queue pairs of their own; a WRITE comes right behind
// them. When it completes, after it was posted.
int64_t WriteBehindAtomics(int atomics, double waiting_max) {
  NicProfile profile = RoundNumbers();
  profile.atomics.waiting_max = waiting_max;
  TestWorld world(Timed(profile));
  std::vector<std::unique_ptr<TimedClient>> clients;
  for (int i = 0; i <= atomics; ++i) clients.push_back(std::make_unique<TimedClient>(&world));
  for (int i = 0; i < atomics; ++i) clients[i]->chain.FetchAdd(MemorySpace::kMain, 64, 1);
  TimedClient& writer = *clients.back();
  // Longer than an atomic's request, so that it arrives behind them.
  writer.chain.Write(MemorySpace::kMain, 512, writer.buffer.Slice(0, 80));
  for (auto& client : clients) client->endpoint->Post(&client->chain);
  for (auto& client : clients) client->Finish();
  EXPECT_EQ(world.Word(64), static_cast<uint64_t>(atomics));
  return writer.chain.completed_ns() - writer.chain.posted_ns();
}

TEST(TimedNetworkTest, WhatComesBehindAnAtomicWithoutAPlaceWaits) {
  const int64_t free = WriteBehindAtomics(4, 64);
  // One is executed, three have places.
  EXPECT_EQ(WriteBehindAtomics(4, 3), free);
  EXPECT_NEAR(WriteBehindAtomics(6, 3), WriteBehindAtomics(6, 64) + 2 * kHold, 2 * kHold / 3);
  EXPECT_NEAR(WriteBehindAtomics(12, 3) - WriteBehindAtomics(8, 3), 4 * kHold, kHold / 2);
}

TEST(TimedNetworkTest, AtomicsOfOneQueuePairTakeOnePlace) {
  NicProfile profile = RoundNumbers();
  profile.atomics.waiting_max = 1;
  TestWorld world(Timed(profile));
  TimedClient client(&world), other(&world);
  constexpr int kChains = 8;
  std::vector<std::unique_ptr<Chain>> chains;
  for (int i = 0; i < kChains; ++i) {
    chains.push_back(std::make_unique<Chain>(kServer));
    chains.back()->FetchAdd(MemorySpace::kMain, 64, 1);
    client.endpoint->Post(chains.back().get());
  }
  other.chain.Write(MemorySpace::kMain, 512, other.buffer.Slice(0, 80));
  other.endpoint->Post(&other.chain);
  other.Finish();
  EXPECT_FALSE(chains.back()->done());
  while (!chains.back()->done()) client.endpoint->Wait(kNeverNs);
  EXPECT_EQ(world.Word(64), uint64_t{kChains});
}

TEST(TimedNetworkTest, LinksAreShared) {
  TestWorld world(Timed());
  constexpr int kClients = 8;
  std::vector<std::unique_ptr<TimedClient>> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(std::make_unique<TimedClient>(&world));
  for (auto& client : clients) {
    client->chain.Read(MemorySpace::kMain, 0, client->buffer.Slice(0, 4000));
    client->endpoint->Post(&client->chain);
  }
  int64_t last = 0;
  for (auto& client : clients) {
    client->Finish();
    last = std::max(last, client->chain.completed_ns());
  }
  // 410 ns of the server's link each.
  EXPECT_EQ(last - clients[0]->chain.completed_ns(), (kClients - 1) * (400 + kHeader));
}

TEST(TimedNetworkTest, AThreadIsBusyWhileItWorks) {
  NicProfile profile = RoundNumbers();
  profile.cpu.post_chain_ns = 1000;
  profile.cpu.post_verb_ns = 100;
  profile.cpu.completion_ns = 5000;
  TestWorld world(Timed(profile));
  TimedClient client(&world);
  Chain chains[2];
  std::vector<int64_t> posted, done;
  client.endpoint->set_runner([&] {
    if (posted.empty()) {
      for (Chain& chain : chains) {
        chain.Reset(kServer);
        chain.Write(MemorySpace::kMain, 64, client.buffer.Slice(0, 8));
        client.endpoint->Post(&chain);
        posted.push_back(chain.posted_ns());
      }
    }
  });
  client.endpoint->WakeAt(world.world.clock().NowNs());
  while (!chains[1].done()) client.endpoint->Wait(kNeverNs);
  EXPECT_EQ(posted[1] - posted[0], 1100);
  EXPECT_EQ(world.world.stats().doorbells, 2u);
  EXPECT_EQ(chains[1].completed_ns() - chains[0].completed_ns(), 5000);
}

TEST(TimedNetworkTest, ACallThatFallsIntoBusyTimeDoesNotReplaceALaterOne) {
  TestWorld world(Timed());
  TimedClient client(&world);
  const int64_t start_ns = world.world.clock().NowNs();
  const int64_t later_ns = start_ns + 50'000;
  std::vector<int64_t> calls_ns;
  client.endpoint->set_runner([&] {
    calls_ns.push_back(world.world.clock().NowNs());
    if (calls_ns.size() > 1) return;
    world.world.SpendCpu(5'000);
    client.endpoint->WakeAt(later_ns);
  });
  client.endpoint->WakeAt(start_ns + 1'000);  // the thread is busy then
  client.endpoint->Wake();
  world.world.RunUntil(start_ns + 100'000);
  ASSERT_GE(calls_ns.size(), 2u);
  EXPECT_EQ(calls_ns.back(), later_ns);
}

TEST(TimedNetworkTest, ARefusedVerbStopsItsChain) {
  TestWorld world(Timed());
  TimedClient client(&world);
  client.Store(0, 9);
  client.chain.Write(MemorySpace::kMain, 64, client.buffer.Slice(0, 8));
  client.chain.Write(MemorySpace::kMain, uint64_t{1} << 40, client.buffer.Slice(0, 8));
  client.chain.Write(MemorySpace::kMain, 128, client.buffer.Slice(0, 8));
  client.Run();
  EXPECT_TRUE(absl::IsInvalidArgument(client.chain.status())) << client.chain.status();
  EXPECT_EQ(world.Word(64), 9u);
  EXPECT_EQ(world.Word(128), 0u);
  client.chain.Reset(kServer);
  client.chain.FetchAdd(MemorySpace::kMain, 4, 1);
  client.Run();
  EXPECT_TRUE(absl::IsInvalidArgument(client.chain.status())) << client.chain.status();
}

TEST(TimedNetworkTest, CallsWaitForTheServersThread) {
  TestWorld world(Timed());
  GoneHandler handler;
  world.world.SetHandler(kServer, &handler);
  TimedClient client(&world);
  PendingCall calls[2];
  const int64_t start_ns = world.world.clock().NowNs();
  for (PendingCall& call : calls) {
    call.server = kServer;
    call.request = "x";
    client.endpoint->Call(&call);
  }
  while (!calls[1].done) client.endpoint->Wait(kNeverNs);
  EXPECT_EQ(calls[1].reply, "ok");
  EXPECT_EQ(world.world.clock().NowNs() - start_ns, 2 * 1000 + 2 * 300);
  world.world.SetHandler(kServer, nullptr);
}

TEST(TimedNetworkTest, TheSameRunTwice) {
  const auto run = [] {
    TestWorld world(Timed());
    std::vector<std::unique_ptr<TimedClient>> clients;
    for (int i = 0; i < 5; ++i) clients.push_back(std::make_unique<TimedClient>(&world));
    for (int round = 0; round < 20; ++round) {
      for (auto& client : clients) {
        client->chain.Reset(kServer);
        client->chain.FetchAdd(MemorySpace::kLocks, 64, 1);
        client->chain.Read(MemorySpace::kMain, 0, client->buffer.Slice(0, 1024));
        client->endpoint->Post(&client->chain);
      }
      for (auto& client : clients) client->Finish();
    }
    return world.world.trace_hash();
  };
  EXPECT_EQ(run(), run());
}

TEST(TimedNetworkDeathTest, KnowsNoDeaths) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  TestWorld world(Timed());
  auto fabric = world.world.NewFabric();
  EXPECT_DEATH(world.world.KillFabric(*fabric), "no deaths");
  EXPECT_DEATH(world.world.KillServer(kServer), "no deaths");
  SimOptions lines = Timed();
  lines.mode = DeliveryMode::kLines;
  EXPECT_DEATH(SimWorld{lines}, "whole");
}

}  // namespace
}  // namespace pando::sim
