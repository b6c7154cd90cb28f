// Upserts whose deadlines come at any moment: in a queue, while another session executes them, with
// their chain in flight, and while queue pairs break. Each counts once, or never, or it says that
// nobody knows; and refusals saw what was there.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"

namespace pando {
namespace {

// Each addition to a counter is a bit of its own.
struct Counter {
  int bits = 0;  // asked for
  uint64_t done = 0, never = 0, perhaps = 0, seen = 0;
};

uint64_t BitsIn(const std::string& value) {
  return static_cast<uint64_t>(ParseInt64Value(value).value_or(0));
}

ClientOptions RandomOptions(Random* random) {
  ClientOptions options;
  options.handover_max = 1 + static_cast<int>(random->Uniform(8));
  Techniques& techniques = options.techniques;
  techniques.operation_combining = random->Chance(0.7);
  techniques.handover_image = random->Chance(0.8);
  techniques.command_combining = random->Chance(0.8);
  techniques.two_level_versions = random->Chance(0.9);
  techniques.lock_and_read = random->Chance(0.9);
  return options;
}

class LateUpsert : public testing::Test {
 protected:
  static constexpr size_t kClients = 2, kSessionsEach = 2;
  static constexpr int kCoroutines = 8, kOperationsEach = 60, kBits = 60;

  struct ComputeServer {
    std::shared_ptr<Fabric> fabric;
    std::unique_ptr<Client> client;
    std::unique_ptr<Tree> tree;
    std::vector<std::unique_ptr<Session>> sessions;
  };

  void RunSeed(uint64_t seed) {
    SCOPED_TRACE(seed);
    random_ = Random(seed);
    SimCluster cluster({.sim = {.seed = seed}});
    ClientOptions options = RandomOptions(&random_);
    patience_ns_ = 1 + random_.Uniform(80'000);
    counters_.assign(1 + random_.Uniform(12), {});
    fills_ = random_.Chance(0.7);
    const double breaks = random_.Chance(0.5) ? 0.02 * random_.NextDouble() : 0;
    ComputeServer servers[kClients];
    for (ComputeServer& server : servers) {
      server.fabric = cluster.world().NewFabric();
      ++options.seed;
      server.client = *ConnectOverFabric(options, server.fabric);
      server.tree = *server.client->CreateTree("t", {.key_bytes_max = 16});
      for (size_t s = 0; s < kSessionsEach; ++s) {
        server.sessions.push_back(*server.client->NewSession());
      }
    }
    for (ComputeServer& server : servers) {
      cluster.world().SetBreakProbability(*server.fabric, breaks);
      for (auto& session : server.sessions) {
        for (int k = 0; k < kCoroutines; ++k) {
          session->Spawn([this, &server, &session] {
            for (int i = 0; i < kOperationsEach; ++i) DoSomething(ImplOf(*session), *server.tree);
          });
        }
      }
    }
    for (ComputeServer& server : servers) {
      for (auto& session : server.sessions) session->Run();
    }
    for (ComputeServer& server : servers) {
      cluster.world().SetBreakProbability(*server.fabric, 0);
    }
    Session& session = *servers[0].sessions[0];
    for (size_t i = 0; i < counters_.size(); ++i) {
      auto value = session.Get(*servers[0].tree, KeyOfCounter(i));
      for (int tries = 0; IsRecoverable(value.status()) && tries < 100; ++tries) {
        session.SleepUntil(cluster.world().clock().NowNs() + kMillisecondNs);
        value = session.Get(*servers[0].tree, KeyOfCounter(i));
      }
      ASSERT_TRUE(value.ok() || absl::IsNotFound(value.status())) << value.status();
      CheckLast(counters_[i], BitsIn(value.value_or("")));
    }
  }

  static std::string KeyOfCounter(size_t i) { return "c" + std::to_string(100 + i); }

  void DoSomething(SessionImpl& session, const Tree& tree) {
    const int64_t deadline_ns =
        session.context().NowNs() + static_cast<int64_t>(random_.Uniform(patience_ns_));
    const size_t which = random_.Uniform(counters_.size());
    if (fills_ && random_.Chance(0.3)) {  // leaves split and merge
      const std::string key = KeyOfCounter(which) + "-" + std::to_string(random_.Uniform(60));
      const WriteKind kind = random_.Chance(0.5) ? WriteKind::kPut : WriteKind::kErase;
      (void)session.Write(tree, {kind, key, ""}, {}, deadline_ns);
    } else if (random_.Chance(0.15)) {
      Refused(session, tree, which, deadline_ns);
    } else if (counters_[which].bits < kBits) {
      Add(session, tree, which, deadline_ns);
    }
  }

  void Refused(SessionImpl& session, const Tree& tree, size_t which, int64_t deadline_ns) {
    Counter& counter = counters_[which];
    const uint64_t before = counter.done;
    std::string actual;
    const absl::Status status =
        session.Write(tree, {WriteKind::kReplace, KeyOfCounter(which), "never", "another"}, {},
                      deadline_ns, &actual);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(before == 0 || !absl::IsNotFound(status));
    if (IsConditionFailed(status)) LookAt(&counter, before, BitsIn(actual));
  }

  void Add(SessionImpl& session, const Tree& tree, size_t which, int64_t deadline_ns) {
    Counter& counter = counters_[which];
    const uint64_t bit = uint64_t{1} << counter.bits++;
    const uint64_t before = counter.done;
    std::string sum;
    const absl::Status status =
        session.Upsert(tree, KeyOfCounter(which), UpsertFunction::kAdd,
                       Int64Value(static_cast<int64_t>(bit)), {}, deadline_ns, &sum);
    if (status.ok()) {
      counter.done |= bit;
      LookAt(&counter, before | bit, BitsIn(sum));
    } else if (IsOutcomeUnknown(status)) {
      counter.perhaps |= bit;
      ++unknown_;
    } else {
      EXPECT_TRUE(absl::IsDeadlineExceeded(status) || IsRecoverable(status)) << status;
      counter.never |= bit;
      ++late_;
    }
  }

  // What somebody was told, of whom `before` had been done.
  static void LookAt(Counter* counter, uint64_t before, uint64_t value) {
    EXPECT_EQ(value & before, before) << "it is older";
    counter->seen |= value;
  }

  static void CheckLast(const Counter& counter, uint64_t value) {
    EXPECT_EQ(value & counter.done, counter.done) << "lost";
    EXPECT_EQ(value & counter.never, 0u) << "what was said to have had no effect";
    EXPECT_EQ(value & ~(counter.done | counter.perhaps), 0u) << "twice";
    EXPECT_EQ(counter.seen & ~value, 0u) << "seen, and gone since";
  }

  Random random_{0};
  std::vector<Counter> counters_;
  uint64_t patience_ns_ = 1;
  bool fills_ = false;
  uint64_t late_ = 0, unknown_ = 0;
};

TEST_F(LateUpsert, CountsOnceOrNeverOrNobodyKnows) {
  for (uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) RunSeed(seed);
  EXPECT_GT(late_, 1'000u);
  EXPECT_GT(unknown_, 100u);
}

}  // namespace
}  // namespace pando
