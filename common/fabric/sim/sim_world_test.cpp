// What the fabric contract leaves open must really happen; what it promises must hold; same seed,
// same run.
#include "common/fabric/sim/sim_world.h"

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "common/fabric/sim/sim_test_util.h"
#include "gtest/gtest.h"

namespace pando::sim {
namespace {

constexpr uint32_t kNode = 1024;

// Endless writers and readers of one node. Write number i fills all words with i.
struct NodeTraffic {
  NodeTraffic(const SimOptions& options, int writers, int readers) : sim(options) {
    for (int i = 0; i < writers + readers; ++i) {
      clients.push_back(std::make_unique<TestClient>(sim.world.NewFabric()));
      TestClient& client = *clients.back();
      client.chain.set_on_done(i < writers ? &OnWritten : &OnRead, this);
      i < writers ? PostWrite(client) : PostRead(client);
    }
  }
  ~NodeTraffic() {
    stopping = true;
    for (auto& client : clients) client->Finish();
  }

  TestClient& ClientOf(Chain* chain) {
    for (auto& client : clients) {
      if (&client->chain == chain) return *client;
    }
    abort();
  }
  void PostWrite(TestClient& client) {
    ++write_number;
    for (uint32_t at = 0; at < kNode; at += 8) client.Store(at, write_number);
    Chain::OnDone on_done = &OnWritten;
    client.chain.Reset(kServer);
    client.chain.set_on_done(on_done, this);
    client.chain.Write(MemorySpace::kMain, 4096, client.buffer.Slice(0, kNode));
    client.endpoint->Post(&client.chain);
  }
  void PostRead(TestClient& client) {
    client.chain.Reset(kServer);
    client.chain.set_on_done(&OnRead, this);
    client.chain.Read(MemorySpace::kMain, 4096, client.buffer.Slice(0, kNode));
    client.endpoint->Post(&client.chain);
  }
  static void OnWritten(Chain* chain, void* context) {
    auto* self = static_cast<NodeTraffic*>(context);
    if (!self->stopping) self->PostWrite(self->ClientOf(chain));
  }
  static void OnRead(Chain* chain, void* context) {
    auto* self = static_cast<NodeTraffic*>(context);
    TestClient& client = self->ClientOf(chain);
    self->Judge(client);
    if (!self->stopping) self->PostRead(client);
  }
  void Judge(const TestClient& client) {
    ++reads;
    bool lines_differ = false;
    for (uint32_t line = 0; line < kNode; line += 64) {
      bool words_differ = false;
      for (uint32_t at = 8; at < 64; at += 8)
        words_differ |= client.Load(line + at) != client.Load(line);
      torn_lines += words_differ ? 1 : 0;
      // What front and rear versions would let through.
      const bool ends_agree = client.Load(line) == client.Load(line + 56);
      torn_lines_with_equal_ends += words_differ && ends_agree ? 1 : 0;
      lines_differ |= client.Load(line) != client.Load(0);
    }
    torn_nodes += lines_differ ? 1 : 0;
  }

  TestWorld sim;
  std::vector<std::unique_ptr<TestClient>> clients;
  bool stopping = false;
  uint64_t write_number = 0;
  uint64_t reads = 0, torn_nodes = 0, torn_lines = 0, torn_lines_with_equal_ends = 0;
};

SimOptions Options(DeliveryMode mode, uint64_t seed = 1) {
  SimOptions options;
  options.seed = seed;
  options.mode = mode;
  return options;
}

TEST(SimWorld, LinesAreWholeAndNodesAreTorn) {
  NodeTraffic traffic(Options(DeliveryMode::kLines), 2, 2);
  traffic.sim.world.RunUntil(20 * kMillisecondNs);
  EXPECT_GT(traffic.reads, 1000u);
  EXPECT_GT(traffic.torn_nodes, traffic.reads / 10);
  EXPECT_LT(traffic.torn_nodes, traffic.reads) << "some must be whole, or nobody gets anywhere";
  EXPECT_EQ(traffic.torn_lines, 0u);
  EXPECT_GT(traffic.sim.world.stats().stalled_verbs, 0u);
  EXPECT_GT(traffic.sim.world.stats().long_delays, 0u);
}

void ExpectTornLines(NodeTraffic* traffic, int64_t until_ns, uint64_t reads_min) {
  traffic->sim.world.RunUntil(until_ns);
  EXPECT_GT(traffic->reads, reads_min);
  EXPECT_GT(traffic->torn_lines, 100u);
}

TEST(SimWorld, WordsAreTornBehindEqualEnds) {
  NodeTraffic traffic(Options(DeliveryMode::kWords), 2, 2);
  ExpectTornLines(&traffic, 20 * kMillisecondNs, 300);
  EXPECT_GT(traffic.torn_lines_with_equal_ends, 10u);
}

TEST(SimWorld, ShmOrderTearsLinesButFrontAndRearTell) {
  NodeTraffic traffic(Options(DeliveryMode::kShmOrder), 1, 3);
  ExpectTornLines(&traffic, 40 * kMillisecondNs, 500);
  EXPECT_EQ(traffic.torn_lines_with_equal_ends, 0u);
}

TEST(SimWorld, WholeModeTearsNothing) {
  NodeTraffic traffic(Options(DeliveryMode::kWhole), 2, 2);
  traffic.sim.world.RunUntil(20 * kMillisecondNs);
  EXPECT_GT(traffic.reads, 1000u);
  EXPECT_EQ(traffic.torn_nodes, 0u);
}

TEST(SimWorld, SameSeedSameRun) {
  for (DeliveryMode mode : {DeliveryMode::kLines, DeliveryMode::kWords, DeliveryMode::kShmOrder,
                            DeliveryMode::kWhole}) {
    std::set<uint64_t> hashes;
    for (int i = 0; i < 10; ++i) {
      NodeTraffic traffic(Options(mode, 7 + i / 2), 2, 2);
      traffic.sim.world.RunUntil(2 * kMillisecondNs);
      hashes.insert(traffic.sim.world.trace_hash());
    }
    EXPECT_EQ(hashes.size(), 5u) << DeliveryModeName(mode);
  }
}

// Runs `chains` of two clients over many seeds and collects what the word at 4096 holds in the end.
template <typename Build>
std::set<uint64_t> FinalWords(Build build) {
  std::set<uint64_t> found;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    TestWorld sim(Options(DeliveryMode::kLines, seed));
    TestClient a(sim.world.NewFabric()), b(sim.world.NewFabric());
    build(a, b);
    a.endpoint->Post(&a.chain);
    b.endpoint->Post(&b.chain);
    a.Finish();
    b.Finish();
    found.insert(sim.Word(4096));
  }
  return found;
}

TEST(SimWorld, EndpointsAreReordered) {
  const auto build = [](TestClient& a, TestClient& b) {
    a.Store(0, 1);
    b.Store(0, 2);
    a.chain.Write(MemorySpace::kMain, 4096, a.buffer.Slice(0, 8));
    b.chain.Write(MemorySpace::kMain, 4096, b.buffer.Slice(0, 8));
  };
  EXPECT_EQ(FinalWords(build), (std::set<uint64_t>{1, 2}));
}

TEST(SimWorld, WritesOfOneChainAreNotReordered) {
  const auto build = [](TestClient& a, TestClient&) {
    a.Store(0, 1);
    a.Store(8, 2);
    a.chain.Write(MemorySpace::kMain, 4096, a.buffer.Slice(0, 8));
    a.chain.Write(MemorySpace::kMain, 4096, a.buffer.Slice(8, 8));
  };
  EXPECT_EQ(FinalWords(build), std::set<uint64_t>{2});
}

// What a client sees of a chain that it builds and runs, with 200 seeds.
template <typename Build, typename Look>
std::set<uint64_t> SeenOfChain(const Build& build, const Look& look) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    TestWorld sim(Options(DeliveryMode::kLines, seed));
    TestClient client(sim.world.NewFabric());
    build(client);
    client.Run();
    seen.insert(look(sim, client));
  }
  return seen;
}

// What the READ of [READ, WRITE] saw of the WRITE behind it.
std::set<uint64_t> ReadBeforeWrite(bool fence) {
  return SeenOfChain(
      [fence](TestClient& client) {
        client.Store(64, 1);
        client.chain.Read(MemorySpace::kMain, 4096, client.buffer.Slice(0, 8));
        client.chain.Write(MemorySpace::kMain, 4096, client.buffer.Slice(64, 8)).fence = fence;
      },
      [](const TestWorld&, TestClient& client) { return client.Load(0); });
}

TEST(SimWorld, UnfencedWriteOvertakesRead) {
  EXPECT_EQ(ReadBeforeWrite(false), (std::set<uint64_t>{0, 1}));
}

TEST(SimWorld, FencedWriteDoesNot) { EXPECT_EQ(ReadBeforeWrite(true), std::set<uint64_t>{0}); }

// What the CAS(0 -> 7) of [CAS, WRITE 5] found.
std::set<uint64_t> SwapBeforeWrite(bool fence) {
  return SeenOfChain(
      [fence](TestClient& client) {
        client.Store(0, 5);
        client.chain.CompareSwap(MemorySpace::kMain, 4096, 0, 7);
        client.chain.Write(MemorySpace::kMain, 4096, client.buffer.Slice(0, 8)).fence = fence;
      },
      [](const TestWorld& sim, TestClient& client) {
        const uint64_t found = client.chain.verb(0).old_value;
        EXPECT_EQ(sim.world.stats().overtakes, found == 5 ? 1u : 0u);
        return found;
      });
}

TEST(SimWorld, UnfencedWriteOvertakesAtomic) {
  EXPECT_EQ(SwapBeforeWrite(false), (std::set<uint64_t>{0, 5}));
}

TEST(SimWorld, FencedWriteWaitsForAtomic) {
  EXPECT_EQ(SwapBeforeWrite(true), std::set<uint64_t>{0});
}

TEST(SimWorld, ReadSeesTheWritesAndAtomicsBeforeIt) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    TestWorld sim(Options(DeliveryMode::kWords, seed));
    TestClient client(sim.world.NewFabric());
    for (uint32_t at = 0; at < 512; at += 8) client.Store(at, 9);
    client.chain.Write(MemorySpace::kMain, 4096, client.buffer.Slice(0, 512));
    client.chain.CompareSwap(MemorySpace::kMain, 4096, 9, 10);
    client.chain.FetchAdd(MemorySpace::kMain, 4096 + 504, 1).fence = true;
    client.chain.Read(MemorySpace::kMain, 4096, client.buffer.Slice(1024, 512));
    client.Run();
    ASSERT_EQ(client.Load(1024), 10u);
    ASSERT_EQ(client.Load(1024 + 504), 10u);
    for (uint32_t at = 8; at < 504; at += 8) ASSERT_EQ(client.Load(1024 + at), 9u);
  }
}

TEST(SimWorld, AReadStopsHalfWayWhereAsked) {
  SimOptions options = Options(DeliveryMode::kLines);
  options.stall_probability = 0;
  TestWorld sim(options);
  TestClient reader(sim.world.NewFabric()), writer(sim.world.NewFabric());
  sim.world.StallReads(*reader.fabric, kMillisecondNs);
  reader.chain.Read(MemorySpace::kMain, 4096, reader.buffer.Slice(0, kNode));
  reader.endpoint->Post(&reader.chain);
  sim.world.RunUntil(sim.world.clock().NowNs() + kMillisecondNs / 2);
  for (uint32_t at = 0; at < kNode; at += 8) writer.Store(at, 7);
  writer.chain.Write(MemorySpace::kMain, 4096, writer.buffer.Slice(0, kNode));
  writer.Run();
  reader.Finish();
  EXPECT_GT(reader.chain.completed_ns() - reader.chain.posted_ns(), kMillisecondNs);
  uint32_t new_lines = 0;
  for (uint32_t at = 0; at < kNode; at += 64) new_lines += reader.Load(at) == 7 ? 1 : 0;
  EXPECT_EQ(new_lines, kNode / 64 / 2);
}

TEST(SimWorld, ChainsOfOneQueuePairKeepTheirOrder) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    TestWorld sim(Options(DeliveryMode::kLines, seed));
    TestClient client(sim.world.NewFabric());
    Chain second(kServer);
    client.Store(0, 1);
    client.chain.Write(MemorySpace::kMain, 4096, client.buffer.Slice(0, 8));
    second.Read(MemorySpace::kMain, 4096, client.buffer.Slice(64, 8));
    client.endpoint->Post(&client.chain);
    client.endpoint->Post(&second);
    client.Finish();
    while (!second.done()) client.endpoint->Wait(kNeverNs);
    ASSERT_EQ(client.Load(64), 1u);
  }
}

TEST(SimWorld, FenceCostsARoundTrip) {
  SimOptions options = Options(DeliveryMode::kWhole);
  options.jitter_ns = 0;
  options.long_delay_probability = 0;
  TestWorld sim(options);
  TestClient client(sim.world.NewFabric());
  client.chain.Read(MemorySpace::kMain, 4096, client.buffer.Slice(0, 8));
  client.chain.Write(MemorySpace::kMain, 8192, client.buffer.Slice(0, 8)).fence = true;
  client.Run();
  EXPECT_EQ(client.chain.completed_ns() - client.chain.posted_ns(), 4 * options.delay_ns);
}

// A fabric whose atomics are not atomic with WRITEs loses a release by WRITE (rule L4), a release
// by CAS never.
TEST(SimWorld, WithoutWriteUnlockAReleaseByWriteIsLost) {
  uint64_t lost = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SimOptions options = Options(DeliveryMode::kLines, seed);
    options.write_unlock = false;
    TestWorld sim(options);
    TestClient holder(sim.world.NewFabric()), other(sim.world.NewFabric());
    EXPECT_FALSE(holder.fabric->capabilities().write_unlock);
    sim.SetWord(4096, 5);
    holder.Store(0, 0);
    holder.chain.Write(MemorySpace::kMain, 4096, holder.buffer.Slice(0, 8));
    other.chain.CompareSwap(MemorySpace::kMain, 4096, 5, 6);  // "the owner is dead, take it over"
    holder.endpoint->Post(&holder.chain);
    other.endpoint->Post(&other.chain);
    holder.Finish();
    other.Finish();
    lost += sim.world.stats().lost_unlocks;
  }
  EXPECT_GT(lost, 0u);
}

TEST(SimWorld, AtomicsOfManyEndpointsAddUp) {
  for (bool write_unlock : {true, false}) {
    SimOptions options = Options(DeliveryMode::kLines, 3);
    options.write_unlock = write_unlock;
    TestWorld sim(options);
    std::vector<std::unique_ptr<TestClient>> clients;
    for (int i = 0; i < 20; ++i) {
      clients.push_back(std::make_unique<TestClient>(sim.world.NewFabric()));
      for (int verb = 0; verb < 10; ++verb) clients[i]->chain.FetchAdd(MemorySpace::kMain, 4096, 1);
      clients[i]->endpoint->Post(&clients[i]->chain);
    }
    std::set<uint64_t> old_values;
    for (auto& client : clients) {
      client->Finish();
      for (Verb& verb : client->chain.verbs()) old_values.insert(verb.old_value);
    }
    EXPECT_EQ(sim.Word(4096), 200u);
    EXPECT_EQ(old_values.size(), 200u);
  }
}

TEST(SimWorld, BadVerbsTouchNothingAndStopTheirChain) {
  TestWorld sim(Options(DeliveryMode::kLines));
  TestClient client(sim.world.NewFabric());
  const auto status = [&](auto add) {
    client.chain.Reset(kServer);
    client.Store(0, 3);
    client.chain.Write(MemorySpace::kMain, 4096, client.buffer.Slice(0, 8));
    add(client.chain);
    client.Store(8, 4);
    client.chain.Write(MemorySpace::kMain, 4104, client.buffer.Slice(8, 8));
    client.Run();
    EXPECT_EQ(sim.Word(4096), 3u);
    EXPECT_EQ(sim.Word(4104), 0u);
    sim.SetWord(4096, 0);
    return client.chain.status().code();
  };
  const auto kBad = absl::StatusCode::kInvalidArgument;
  const uint64_t main_bytes = sim.memory.main.size();
  EXPECT_EQ(status([&](Chain& c) {
              c.Read(MemorySpace::kMain, main_bytes - 7, client.buffer.Slice(0, 8));
            }),
            kBad);
  EXPECT_EQ(status([&](Chain& c) {
              c.Read(MemorySpace::kMain, UINT64_MAX - 3, client.buffer.Slice(0, 8));
            }),
            kBad);
  EXPECT_EQ(
      status([&](Chain& c) { c.Write(MemorySpace::kLocks, 64 << 10, client.buffer.Slice(0, 8)); }),
      kBad);
  EXPECT_EQ(status([&](Chain& c) { c.CompareSwap(MemorySpace::kMain, 4100, 0, 1); }), kBad);
  EXPECT_EQ(status([&](Chain& c) { c.FetchAdd(MemorySpace::kLocks, 64 << 10, 1); }), kBad);
  LocalBuffer large = client.endpoint->AllocateBuffer(8192).value();
  EXPECT_EQ(status([&](Chain& c) { c.Write(MemorySpace::kMain, 8192, large.Slice(0, 4104)); }),
            kBad);
  client.chain.Reset(9);
  client.chain.Read(MemorySpace::kMain, 0, client.buffer.Slice(0, 8));
  client.Run();
  EXPECT_EQ(client.chain.status().code(), absl::StatusCode::kUnavailable);
}

TEST(SimWorld, RunnerIsCalledAtTheTimesAskedFor) {
  TestWorld sim(Options(DeliveryMode::kLines));
  TestClient client(sim.world.NewFabric());
  std::vector<int64_t> calls;
  client.endpoint->set_runner([&] { calls.push_back(sim.world.clock().NowNs()); });
  const int64_t start_ns = sim.world.clock().NowNs();
  client.endpoint->WakeAt(start_ns + 5000);
  client.endpoint->WakeAt(start_ns + 3000);
  client.endpoint->Wake();
  client.endpoint->Wake();
  sim.world.RunUntil(start_ns + 1000);
  EXPECT_EQ(calls.size(), 1u);
  sim.world.RunUntil(start_ns + 10'000);
  ASSERT_GE(calls.size(), 2u);
  EXPECT_EQ(calls[1], start_ns + 3000);
}

// A completion at the very time of a timer calls the runner first; what that asks for must not be
// lost.
TEST(SimWorld, RunnerAsksAgainBeforeItsTimerHasFired) {
  TestWorld sim(Options(DeliveryMode::kLines));
  TestClient client(sim.world.NewFabric());
  std::vector<int64_t> calls;
  const int64_t due_ns = sim.world.clock().NowNs() + 5000;
  client.endpoint->set_runner([&] { calls.push_back(sim.world.clock().NowNs()); });
  sim.world.At(due_ns, [&] { client.endpoint->WakeAt(due_ns + 3000); });
  client.endpoint->WakeAt(due_ns);
  sim.world.RunUntil(due_ns + 10'000);
  EXPECT_EQ(calls, (std::vector<int64_t>{due_ns, due_ns + 3000}));
}

TEST(SimWorld, WaitHasABoundAndMovesTheClock) {
  TestWorld sim(Options(DeliveryMode::kLines));
  TestClient client(sim.world.NewFabric());
  const int64_t until_ns = sim.world.clock().NowNs() + 12'345;
  client.endpoint->Wait(until_ns);
  EXPECT_EQ(sim.world.clock().NowNs(), until_ns);
  EXPECT_DEATH(client.endpoint->Wait(kNeverNs), "deadlock.*seed 1");
}

TEST(SimWorld, DrivingItFromInsideAnEventIsABug) {
  TestWorld sim(Options(DeliveryMode::kLines));
  TestClient client(sim.world.NewFabric());
  client.endpoint->set_runner([&] { client.endpoint->Wait(kNeverNs); });
  client.endpoint->Wake();
  EXPECT_DEATH(sim.world.Step(), "inside an event");
  client.endpoint->set_runner(nullptr);
}

}  // namespace
}  // namespace pando::sim
