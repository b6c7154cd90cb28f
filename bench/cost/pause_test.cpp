// A compute server that is stopped anywhere (SIGSTOP, a guest that is moved, a busy hypervisor) and
// goes on: what its chains took meanwhile says nothing of the fabric. Operations called afterwards
// take what they took before (rules L3, L6).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/cost/loaded_tree.h"
#include "common/base/random.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"

namespace pando {
namespace {

constexpr uint64_t kRecords = 2'000;
constexpr int kServers = 3, kSessions = 2, kCoroutines = 6;
// One coroutine after the other of a compute server may have to wait for a turn at one leaf.
constexpr int64_t kLongestChains = 100;

// Compute servers at work on a few hot leaves and many cold ones.
class PausedCluster {
 public:
  explicit PausedCluster(uint64_t seed) : cluster_({.sim = {.seed = seed}}) {
    for (int i = 0; i < kServers; ++i) {
      Server& server = servers_[i];
      server.fabric = cluster_.world().NewFabric();
      server.client =
          *ConnectOverFabric({.seed = seed * 10 + static_cast<uint64_t>(i) + 1}, server.fabric);
      server.tree = *server.client->CreateTree("t", {});
      for (int s = 0; s < kSessions; ++s) {
        server.sessions.push_back(*server.client->NewSession());
      }
      if (i == 0) BulkLoad(*server.sessions[0], *server.tree, kRecords);
      for (auto& session : server.sessions) Warm(*session, *server.tree, kRecords);
    }
    // What one chain takes where nobody is in the way.
    Session& quiet = *servers_[0].sessions[0];
    const int64_t start_ns = now_ns();
    for (uint64_t i = 0; i < 1'000; ++i) EXPECT_TRUE(quiet.Get(*servers_[0].tree, KeyOf(0)).ok());
    chain_ns_ = (now_ns() - start_ns) / 1'000;
  }

  // Everybody works; `paused` is stopped `offset_ns` after they have begun, for `length_ns`.
  // Returns the longest operation that it called after it had gone on, ns.
  int64_t LongestAfterPause(int paused, int64_t offset_ns, int64_t length_ns) {
    constexpr int64_t kBeforeNs = 100 * kMicrosecondNs, kAfterNs = 4 * kMillisecondNs;
    sim::SimWorld& world = cluster_.world();
    const int64_t stop_ns = now_ns() + kBeforeNs + offset_ns;
    going_on_ns_ = stop_ns + length_ns;
    end_ns_ = going_on_ns_ + kAfterNs;
    watched_ = paused;
    longest_ns_ = 0;
    // The others look in now and then: at full speed they would poll its locks all the time.
    others_nap_ns_ = length_ns / 20;
    const Fabric& fabric = *servers_[paused].fabric;
    world.At(stop_ns, [&] { world.PauseFabric(fabric); });
    world.At(going_on_ns_, [&] { world.ResumeFabric(fabric); });
    for (int i = 0; i < kServers; ++i) {
      for (auto& session : servers_[i].sessions) {
        for (int c = 0; c < kCoroutines; ++c) {
          session->Spawn([this, i, s = session.get(), seed = next_seed_++] { Work(i, s, seed); });
        }
      }
    }
    world.RunUntil(end_ns_);
    for (Server& server : servers_) {
      for (auto& session : server.sessions) session->Run();
    }
    EXPECT_GT(counted_, 0u);
    return longest_ns_;
  }

  int64_t chain_ns() const { return chain_ns_; }
  const std::string& longest() const { return longest_; }

 private:
  struct Server {
    std::shared_ptr<Fabric> fabric;
    std::unique_ptr<Client> client;
    std::unique_ptr<Tree> tree;
    std::vector<std::unique_ptr<Session>> sessions;
  };

  int64_t now_ns() { return cluster_.world().clock().NowNs(); }

  void Work(int server, Session* session, uint64_t seed) {
    Random random(seed);
    const Tree& tree = *servers_[server].tree;
    while (now_ns() < end_ns_) {
      const int64_t call_ns = now_ns();
      const bool elsewhere = server != watched_ && call_ns + others_nap_ns_ < going_on_ns_;
      // What meets a lock of the stopped one ends at its deadline.
      const OperationOptions options = {.timeout_ms = elsewhere ? 1 : 20'000};
      const uint64_t key = random.Uniform(random.Chance(0.5) ? 100 : 2 * kRecords);
      const char* what = "";
      switch (random.Uniform(5)) {
        case 0:
          what = "get";
          (void)session->Get(tree, KeyOf(key), options);
          break;
        case 1:
          what = "erase";
          (void)session->Erase(tree, KeyOf(key), options);
          break;
        default:
          what = "put";
          (void)session->Put(tree, KeyOf(key), KeyOf(key), options);
      }
      if (server == watched_ && call_ns >= going_on_ns_) {
        ++counted_;
        if (now_ns() - call_ns > longest_ns_) {
          longest_ns_ = now_ns() - call_ns;
          longest_ = what;
        }
      }
      if (elsewhere) session->SleepUntil(std::min(now_ns() + others_nap_ns_, going_on_ns_));
    }
  }

  SimCluster cluster_;
  Server servers_[kServers];
  int64_t chain_ns_ = 0;
  int watched_ = 0;
  int64_t going_on_ns_ = 0, end_ns_ = 0, others_nap_ns_ = 0;
  int64_t longest_ns_ = 0;
  std::string longest_;
  uint64_t counted_ = 0;
  uint64_t next_seed_ = 1;
};

class PauseTest : public testing::TestWithParam<int64_t> {};

TEST_P(PauseTest, OperationsCalledAfterItTakeNoLonger) {
  constexpr int kOffsets = 17;  // with three lengths: 51 stops, of each compute server in turn
  int64_t worst = 0;
  for (int i = 0; i < kOffsets; ++i) {
    PausedCluster cluster(static_cast<uint64_t>(i) + 1);
    const int64_t took_ns =
        cluster.LongestAfterPause(i % kServers, i * 613, GetParam() * kMillisecondNs);
    EXPECT_LE(took_ns, kLongestChains * cluster.chain_ns())
        << "a " << cluster.longest() << ", stopped at offset " << i;
    worst = std::max(worst, took_ns / cluster.chain_ns());
  }
  std::printf("longest operation: %ld chain times\n", static_cast<long>(worst));
}

// Length of the stop, milliseconds; nearly none shows what the load itself does.
INSTANTIATE_TEST_SUITE_P(Milliseconds, PauseTest, testing::Values(0, 100, 1'000, 10'000),
                         [](const auto& info) { return std::to_string(info.param); });

// The estimate by itself.
class ChainTimeTest : public testing::Test {
 protected:
  static constexpr int64_t kChain = 5 * kMicrosecondNs;
  ChainTimeTest() { Observe(100, kChain); }
  // Chains that are posted one after the other.
  void Observe(int count, int64_t duration_ns) {
    for (int i = 0; i < count; ++i) {
      context().ObserveChain(duration_ns, now_ns_, now_ns_ + duration_ns);
      now_ns_ += duration_ns;
    }
  }
  SessionContext& context() { return ImplOf(*session_).context(); }

  SimCluster cluster_{{.sim = {.mode = sim::DeliveryMode::kWhole}}};
  std::unique_ptr<Client> client_ = cluster_.NewClient();
  std::unique_ptr<Session> session_ = *client_->NewSession();
  int64_t now_ns_ = 0;
};

TEST_F(ChainTimeTest, AStopCountsOnceHoweverManyChainsWereInFlight) {
  const int64_t before_ns = context().chain_ns();
  for (int i = 0; i < 64; ++i) context().ObserveChain(kSecondNs, now_ns_ + i, now_ns_ + kSecondNs);
  now_ns_ += kSecondNs;
  EXPECT_LE(context().chain_ns(), 3 * before_ns);
  Observe(16, kChain);
  EXPECT_LE(context().chain_ns(), before_ns * 5 / 4);
}

TEST_F(ChainTimeTest, AFabricThatBecomesSlowerIsFollowed) {
  Observe(12, 1'000 * kChain);
  EXPECT_GE(context().chain_ns(), 500 * kChain);
  Observe(100, 1'000 * kChain);
  EXPECT_GE(context().chain_ns(), 990 * kChain);
  Observe(100, kChain);  // and back
  EXPECT_LE(context().chain_ns(), 2 * kChain);
}

TEST_F(ChainTimeTest, AWaitIsBounded) {
  EXPECT_EQ(context().WaitNs(64), 64 * context().chain_ns());
  Observe(100, kMillisecondNs);
  EXPECT_EQ(context().WaitNs(64), 10 * kMillisecondNs);
  Observe(100, 10 * kMillisecondNs);  // a very slow fabric: rule V4 wants four chain times
  EXPECT_EQ(context().WaitNs(64), 4 * context().chain_ns());
}

}  // namespace
}  // namespace pando
