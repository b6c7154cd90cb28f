// What the redo log costs (rule W3): messages a batch, chains a put.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "bench/owned/log_world.h"

namespace pando {
namespace {

struct Load {
  int sessions = 1, coroutines = 1, puts = 1000;
};

struct Cost {
  double batch = 0;        // messages
  double chains = 0;       // a put
  double chain_times = 0;  // that a put takes
};

class LogCostTest : public testing::TestWithParam<sim::DeliveryMode> {
 protected:
  Cost Measure(const Load& load) {
    LogWorld world({.seed = 3, .mode = GetParam()});
    LogWorld::Member member = world.Join(load.sessions, load.coroutines);
    const auto log = world.Create(*member.sessions[0], LogWorld::OptionsOf(4 << 20, 16 << 10));
    const uint64_t chains_before = Chains(member);
    const int64_t start_ns = world.NowNs();
    for (const auto& session : member.sessions) {
      for (int c = 0; c < load.coroutines; ++c) {
        LogWorld::Spawn(*session, 10 * kSecondNs, [&](OperationContext& context) {
          for (int i = 0; i < load.puts; ++i) {
            auto room = log->Reserve(context, 8, 8);
            ASSERT_TRUE(room.ok());
            const Lsn lsn = log->Append(*std::move(room), {.key = "12345678", .value = "abcdefgh"});
            ASSERT_TRUE(log->AwaitDurable(context, lsn).ok());
          }
        });
      }
    }
    for (const auto& session : member.sessions) session->scheduler().Drain();
    const LogCounters counters = log->counters();
    const auto puts = static_cast<double>(counters.messages);
    EXPECT_EQ(counters.messages,
              static_cast<uint64_t>(load.sessions * load.coroutines * load.puts));
    Cost cost;
    cost.batch = puts / static_cast<double>(counters.batches);
    cost.chains = static_cast<double>(Chains(member) - chains_before) / puts;
    cost.chain_times = static_cast<double>(world.NowNs() - start_ns) / load.puts /
                       static_cast<double>(member.sessions[0]->chain_ns());
    std::printf(
        "%d x %d: %.1f messages a batch, %.3f chains a put, %.2f chain times a put, %.0f bytes a "
        "put\n",
        load.sessions, load.coroutines, cost.batch, cost.chains, cost.chain_times,
        static_cast<double>(counters.bytes) / puts);
    return cost;
  }
  static uint64_t Chains(const LogWorld::Member& member) {
    uint64_t chains = 0;
    for (const auto& session : member.sessions) chains += session->counters().chains.value();
    return chains;
  }
};

TEST_P(LogCostTest, WhoIsAlonePaysAChainAPut) { EXPECT_EQ(Measure({.puts = 1000}).chains, 1.0); }

TEST_P(LogCostTest, ThirtyTwoInFlightShareChains) {
  for (const Load& load : {Load{.sessions = 1, .coroutines = 32},
                           {.sessions = 4, .coroutines = 8},
                           {.sessions = 8, .coroutines = 4},
                           {.sessions = 32, .coroutines = 1}}) {
    const Cost cost = Measure(load);
    EXPECT_GE(cost.batch, 8.0) << load.sessions << " sessions";
    EXPECT_LE(cost.chains, 0.13) << load.sessions << " sessions";
  }
}

// What is durable is known without a chain, and without a clock.
TEST_P(LogCostTest, AHitOfWhatIsDurableCostsNothing) {
  LogWorld world({.seed = 3, .mode = GetParam()});
  LogWorld::Member member = world.Join(1, 1);
  SessionContext& session = *member.sessions[0];
  const auto log = world.Create(session, LogWorld::OptionsOf(1 << 20, 16 << 10));
  LogWorld::Run(session, [&](OperationContext& context) {
    auto room = log->Reserve(context, 1, 1);
    const Lsn lsn = log->Append(*std::move(room), {.key = "k", .value = "v"});
    ASSERT_TRUE(log->AwaitDurable(context, lsn).ok());
    EXPECT_EQ(context.cost.round_trips, 1u);
    const uint64_t chains = Chains(member);
    const int64_t now_ns = world.NowNs();
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(log->AwaitDurable(context, lsn).ok());
    EXPECT_EQ(Chains(member), chains);
    EXPECT_EQ(world.NowNs(), now_ns);
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, LogCostTest,
                         testing::Values(sim::DeliveryMode::kLines, sim::DeliveryMode::kWhole),
                         [](const auto& info) {
                           return std::string(sim::DeliveryModeName(info.param));
                         });

}  // namespace
}  // namespace pando
