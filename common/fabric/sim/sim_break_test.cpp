// Queue pairs that break between living ends: what of their verbs still happens, and until when
// (network.h, B1 to B6).
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "common/fabric/recoverable.h"
#include "common/fabric/sim/sim_test_util.h"
#include "common/fabric/sim/sim_world.h"
#include "gtest/gtest.h"

namespace pando::sim {
namespace {

using Found = std::pair<uint64_t, uint64_t>;

constexpr int64_t kLongAfterNs = 10 * kMillisecondNs;

Found TwoWrites(const TestWorld& sim) {
  const Found found = {sim.Word(4096), sim.Word(8192)};
  for (uint64_t at = 0; at < 1024; at += 8) {
    EXPECT_EQ(sim.Word(4096 + at), found.first);
    EXPECT_EQ(sim.Word(8192 + at), found.second);
  }
  return found;
}

// READs a word until the queue pair is there again; how often it was not.
int AwaitReopened(TestWorld& sim, TestClient& client) {
  for (int failures = 0;; ++failures) {
    client.chain.Reset(kServer);
    client.chain.Read(MemorySpace::kMain, 0, client.buffer.Slice(0, 8));
    client.Run();
    if (client.chain.ok()) return failures;
    EXPECT_TRUE(IsRecoverable(client.chain.status())) << client.chain.status();
    sim.world.RunUntil(sim.world.clock().NowNs() + 10 * kMicrosecondNs);
  }
}

struct Broken {
  bool failed = false;
  uint64_t late = 0;  // verbs executed after the failure was seen
  int refused = 0;    // chains posted before the queue pair was opened again
  Found found;
};

// Two WRITEs are posted; their queue pair breaks after `steps` events.
Broken BreakDuringTwoWrites(uint64_t seed, int steps) {
  TestWorld sim({.seed = seed});
  TestClient client(sim.world.NewFabric());
  client.PostTwoWrites();
  for (int i = 0; i < steps; ++i) sim.world.Step();
  const bool was_done = client.chain.done();
  sim.world.BreakQueuePairs(*client.fabric, kServer);
  sim.world.BreakQueuePairs(*client.fabric, kServer);  // again changes nothing
  client.Finish();
  Broken result;
  result.failed = !client.chain.ok();
  EXPECT_EQ(result.failed, !was_done);
  if (result.failed) {
    EXPECT_TRUE(absl::IsUnavailable(client.chain.status())) << client.chain.status();
    EXPECT_TRUE(IsRecoverable(client.chain.status())) << client.chain.status();
  }
  // B2: the buffers are the sender's again.
  std::memset(client.buffer.data, 0xee, client.buffer.bytes);
  result.refused = AwaitReopened(sim, client);
  result.found = TwoWrites(sim);
  result.late = sim.world.stats().verbs_after_break;
  sim.world.RunUntil(sim.world.clock().NowNs() + kLongAfterNs);
  EXPECT_EQ(TwoWrites(sim), result.found)
      << "something moved after the queue pair was opened again";
  EXPECT_EQ(sim.world.stats().queue_pairs_broken, 1u);
  EXPECT_EQ(sim.world.stats().queue_pairs_reopened, 1u);
  return result;
}

TEST(SimBreak, AWholePrefixIsExecutedMaybeLateButNotAfterTheReopening) {
  std::set<Found> outcomes;
  uint64_t late = 0, refused = 0, failed = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (int steps = 0; steps < 14; ++steps) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " steps " << steps);
      const Broken result = BreakDuringTwoWrites(seed, steps);
      if (result.failed) outcomes.insert(result.found);
      failed += result.failed ? 1 : 0;
      late += result.late;
      refused += static_cast<uint64_t>(result.refused);
    }
  }
  EXPECT_EQ(outcomes, (std::set<Found>{{0, 0}, {1, 0}, {1, 2}}));
  EXPECT_GT(late, 0u) << "nothing was executed after its chain had failed";
  EXPECT_GT(refused, 0u);
  EXPECT_GT(failed, 0u);
}

// Chains of two WRITEs each, that several coroutines post in one turn.
constexpr uint64_t kListChains = 4, kListVerbs = 2 * kListChains;

uint64_t Executed(const TestWorld& sim) {
  uint64_t executed = 0;
  while (executed < kListVerbs && sim.Word(4096 + 64 * executed) == executed + 1) ++executed;
  for (uint64_t verb = executed; verb < kListVerbs; ++verb) {
    EXPECT_EQ(sim.Word(4096 + 64 * verb), 0u) << "not a prefix";
  }
  return executed;
}

// The queue pair breaks after so many packets of the list: exactly there, or what was held back may
// leave it late; and before anything was heard of the chains in front, or afterwards. How many
// packets arrived.
uint64_t BreakAList(uint64_t seed, DeliveryMode mode, uint64_t packets, bool late, bool heard) {
  TestWorld sim({.seed = seed, .mode = mode, .long_delay_probability = 0});
  TestClient client(sim.world.NewFabric());
  sim.world.LimitPackets(*client.fabric, packets);
  std::vector<std::unique_ptr<Chain>> chains;
  std::vector<Chain*> ended;
  for (uint64_t i = 0; i < kListVerbs; ++i) {
    if (i % 2 == 0) chains.push_back(std::make_unique<Chain>(kServer));
    client.Store(8 * static_cast<uint32_t>(i), i + 1);
    chains.back()->Write(MemorySpace::kMain, 4096 + 64 * i,
                         client.buffer.Slice(8 * static_cast<uint32_t>(i), 8));
    if (i % 2 == 0) continue;
    chains.back()->set_on_done(
        [](Chain* chain, void* list) { static_cast<std::vector<Chain*>*>(list)->push_back(chain); },
        &ended);
    client.endpoint->Post(chains.back().get());
  }
  while (!sim.world.PacketsSpent(*client.fabric)) EXPECT_TRUE(sim.world.Step());
  if (heard) sim.world.RunUntil(sim.world.clock().NowNs() + 50 * kMicrosecondNs);
  if (late) sim.world.LimitPackets(*client.fabric, UINT64_MAX);
  sim.world.BreakQueuePairs(*client.fabric, kServer);
  sim.world.LimitPackets(*client.fabric, UINT64_MAX);
  while (ended.size() < chains.size()) EXPECT_TRUE(sim.world.Step());
  for (uint64_t i = 0; i < kListChains; ++i) {
    const absl::Status& status = chains[i]->status();
    const bool before = 2 * (i + 1) <= packets;
    EXPECT_TRUE(status.ok() ? before : IsRecoverable(status)) << i << ": " << status;
    EXPECT_TRUE(status.ok() || !heard || !before) << i << ": " << status;
    EXPECT_EQ(absl::IsUnavailable(status), !status.ok()) << i << ": " << status;
  }
  std::memset(client.buffer.data, 0xee, client.buffer.bytes);
  AwaitReopened(sim, client);
  const uint64_t executed = Executed(sim);
  sim.world.RunUntil(sim.world.clock().NowNs() + kLongAfterNs);
  EXPECT_EQ(Executed(sim), executed) << "something moved after the queue pair was opened again";
  EXPECT_EQ(ended.size(), chains.size()) << "told twice";
  return executed;
}

TEST(SimBreak, AListBreaksBetweenAnyTwoPackets) {
  for (const DeliveryMode mode : {DeliveryMode::kLines, DeliveryMode::kWords,
                                  DeliveryMode::kShmOrder, DeliveryMode::kWhole}) {
    for (uint64_t packets = 0; packets < kListVerbs; ++packets) {
      std::set<uint64_t> arrived;
      for (uint64_t seed = 0; seed < 80; ++seed) {
        for (const bool heard : {false, true}) {
          SCOPED_TRACE(testing::Message() << packets << " packets, seed " << seed);
          EXPECT_EQ(BreakAList(seed, mode, packets, /*late=*/false, heard), packets);
          arrived.insert(BreakAList(seed, mode, packets, /*late=*/true, heard));
        }
      }
      EXPECT_EQ(arrived.size(), kListVerbs - packets + 1) << "late: none, up to all of the others";
      EXPECT_EQ(*arrived.begin(), packets);
      EXPECT_EQ(*arrived.rbegin(), kListVerbs);
    }
  }
}

TEST(SimBreak, OnlyTheBrokenQueuePairsFail) {
  constexpr ServerId kOther = 2;
  TestWorld sim({.seed = 3});
  const ServerMemory other_memory = sim.world.AddServer(kOther, 1 << 20, 4096);
  TestClient client(sim.world.NewFabric()), stranger(sim.world.NewFabric());
  sim.world.BreakQueuePairs(*client.fabric, kServer);
  for (TestClient* who : {&client, &stranger}) {
    who->Store(0, 7);
    who->chain.Write(MemorySpace::kMain, who == &client ? 4096 : 8192, who->buffer.Slice(0, 8));
    who->Run();
  }
  EXPECT_TRUE(IsRecoverable(client.chain.status())) << client.chain.status();
  EXPECT_TRUE(stranger.chain.ok()) << stranger.chain.status();
  EXPECT_EQ(sim.Word(8192), 7u);
  client.ExpectReaches(kOther, other_memory);
  AwaitReopened(sim, client);
  EXPECT_EQ(sim.Word(4096), 0u) << "what was posted on a broken queue pair was executed";
}

TEST(SimBreak, AStoppedProcessHearsOfItLater) {
  TestWorld sim({.seed = 4});
  TestClient client(sim.world.NewFabric());
  client.PostTwoWrites();
  sim.world.PauseFabric(*client.fabric);
  sim.world.BreakQueuePairs(*client.fabric, kServer);
  sim.world.RunUntil(kSecondNs);
  EXPECT_FALSE(client.chain.done());
  EXPECT_EQ(sim.world.stats().queue_pairs_reopened, 0u);
  sim.world.ResumeFabric(*client.fabric);
  client.Finish();
  EXPECT_TRUE(IsRecoverable(client.chain.status())) << client.chain.status();
  AwaitReopened(sim, client);
}

// B5: the end is told once, after the last packet, however the client comes to it.
TEST(SimBreak, WhoEndsWithABrokenQueuePairIsGoneOnce) {
  enum class End { kClose, kKill, kFence };
  for (const End end : {End::kClose, End::kKill, End::kFence}) {
    for (uint64_t seed = 0; seed < 80; ++seed) {
      TestWorld sim({.seed = seed, .reopen_ns = 20 * kMicrosecondNs});
      GoneHandler handler;
      sim.world.SetHandler(kServer, &handler);
      auto client = std::make_unique<TestClient>(sim.world.NewFabric());
      client->PostTwoWrites();
      for (uint64_t i = 0; i < seed % 6; ++i) sim.world.Step();
      sim.world.BreakQueuePairs(*client->fabric, kServer);
      for (uint64_t i = 0; i < seed % 7; ++i) sim.world.Step();
      if (end == End::kKill) sim.world.KillFabric(*client->fabric);
      if (end == End::kFence) sim.world.Fence(kServer)->CutOff(1);
      client->Finish();
      EXPECT_TRUE(absl::IsUnavailable(client->chain.status())) << client->chain.status();
      if (end == End::kClose) client.reset();
      while (handler.gone.empty()) ASSERT_TRUE(sim.world.Step());
      const Found found = TwoWrites(sim);
      sim.world.RunUntil(sim.world.clock().NowNs() + kLongAfterNs);
      EXPECT_EQ(TwoWrites(sim), found) << "something moved after the end was told";
      EXPECT_EQ(handler.gone, std::vector<PeerId>{1});
      if (end == End::kFence) {  // and there is none again
        client->chain.Reset(kServer);
        client->Run();
        EXPECT_TRUE(absl::IsUnavailable(client->chain.status()));
        EXPECT_FALSE(IsRecoverable(client->chain.status())) << client->chain.status();
      }
    }
  }
}

TEST(SimBreak, OfADeadServerNothingIsRecoverable) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    TestWorld sim({.seed = seed});
    TestClient client(sim.world.NewFabric());
    client.PostTwoWrites();
    for (uint64_t i = 0; i < seed % 6; ++i) sim.world.Step();
    sim.world.BreakQueuePairs(*client.fabric, kServer);
    sim.world.KillServer(kServer);
    client.Finish();
    const int64_t killed_ns = sim.world.clock().NowNs();
    do {
      client.chain.Reset(kServer);
      client.chain.Read(MemorySpace::kMain, 0, client.buffer.Slice(0, 8));
      client.Run();
      ASSERT_TRUE(absl::IsUnavailable(client.chain.status())) << client.chain.status();
      sim.world.RunUntil(sim.world.clock().NowNs() + kMillisecondNs);
    } while (IsRecoverable(client.chain.status()));
    EXPECT_LE(sim.world.clock().NowNs() - killed_ns, 2 * kSecondNs);
  }
}

// Chains one after the other, whatever becomes of them; the trace, and where each had ended.
std::pair<uint64_t, std::vector<int64_t>> RunChains(double probability, SimStats* stats) {
  TestWorld sim({.seed = 11});
  TestClient client(sim.world.NewFabric());
  sim.world.SetBreakProbability(*client.fabric, probability);
  std::vector<int64_t> ends_ns;
  for (int i = 0; i < 3000; ++i) {
    client.chain.Reset(kServer);
    client.chain.FetchAdd(MemorySpace::kLocks, 0, 1);
    client.Run();
    ends_ns.push_back(sim.world.clock().NowNs());
    if (!client.chain.ok()) sim.world.RunUntil(ends_ns.back() + kMillisecondNs);
  }
  *stats = sim.world.stats();
  return {sim.world.trace_hash(), ends_ns};
}

TEST(SimBreak, BySeedAndNotAtAllWithoutAProbability) {
  SimStats none, some, again;
  const auto without = RunChains(0, &none);
  const auto with = RunChains(0.01, &some);
  EXPECT_EQ(none.queue_pairs_broken, 0u);
  EXPECT_GT(some.queue_pairs_broken, 10u);
  EXPECT_EQ(some.queue_pairs_broken, some.queue_pairs_reopened);
  EXPECT_EQ(with, RunChains(0.01, &again));
  EXPECT_EQ(with.second.front(), without.second.front()) << "the same until something breaks";
}

}  // namespace
}  // namespace pando::sim
