// What goes wrong with the redo log where one of its rules does not hold (common/base/rule.h); with
// all of them nothing does.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/owned/log_run.h"
#include "bench/owned/log_world.h"
#include "common/base/rule.h"
#include "gmock/gmock.h"

namespace pando {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr uint64_t kSeeds = 60;

class LogRulesTest : public testing::Test {
 protected:
  ~LogRulesTest() override { BreakRule(Rule::kNone); }

  // Some seed shows it; none does where the rule holds.
  static void ExpectShown(Rule rule, const std::function<LogRunOptions(uint64_t)>& options_of) {
    std::string shown;
    for (uint64_t seed = 1; seed <= kSeeds && shown.empty(); ++seed) {
      BreakRule(Rule::kNone);
      const LogRunResult good = RunLog(options_of(seed));
      ASSERT_TRUE(good.ok()) << "with all rules, seed " << seed << ": " << good.what();
      BreakRule(rule);
      const LogRunResult result = RunLog(options_of(seed));
      if (!result.problems.empty()) shown = result.problems.front();
    }
    EXPECT_THAT(shown, AnyOf(HasSubstr("an acknowledged put is gone"),
                             HasSubstr("what was durable is gone"), HasSubstr("was durable"),
                             HasSubstr("the log cannot be read")));
  }
};

TEST_F(LogRulesTest, W3Reuse) {
  ExpectShown(Rule::kW3Reuse, [](uint64_t seed) {
    LogRunOptions options = {.sim = {.seed = seed}, .members = 8, .sessions = 1, .puts = 200};
    options.tend = true;
    options.sim.long_delay_probability = 0.01;
    options.sim.long_delay_ns = 2 * kMillisecondNs;
    options.flush_above = 0.7;
    return options;
  });
}

// A session that has the turn is stopped, and the service writes what there is for one batch.
// Nobody else writes the rest.
absl::Status WaitAfterALostTurn() {
  LogWorld world({.seed = 9});
  std::vector<LogWorld::Member> members;
  for (int i = 0; i < 2; ++i) members.push_back(world.Join(1, 8));
  SessionContext& service = *members[0].sessions[0];
  SessionContext& stopped = *members[1].sessions[0];
  const std::unique_ptr<RedoLog> log =
      world.Create(service, LogWorld::OptionsOf(8 << 10, /*batch_bytes_max=*/1 << 10));
  absl::Status status;
  LogWorld::Spawn(stopped, kSecondNs, [&](OperationContext& context) {
    Lsn last = kNoLsn;
    for (int i = 0; i < 150; ++i) {
      last = log->TryAppend({.tree_id = 1, .key = "key", .value = "value"}).value_or(kNoLsn);
    }
    status = log->AwaitDurable(context, last);
  });
  // Runs when that one has the turn, and before it writes.
  bool took_turn = false;
  LogWorld::Spawn(stopped, kSecondNs, [&](OperationContext&) {
    took_turn = true;
    world.world().PauseFabric(*members[1].fabric);
  });
  while (!took_turn) PANDO_CHECK(world.world().Step());
  LogWorld::Run(service, [&](OperationContext& context) {
    context.session.scheduler().SleepUntil(world.NowNs() + kMillisecondNs);
    status = log->Tend(context);
  });
  world.world().ResumeFabric(*members[1].fabric);
  stopped.scheduler().Drain();
  return status;
}

TEST_F(LogRulesTest, W3Turn) {
  EXPECT_EQ(WaitAfterALostTurn(), absl::OkStatus());
  BreakRule(Rule::kW3Turn);
  EXPECT_TRUE(absl::IsDeadlineExceeded(WaitAfterALostTurn()));
}

TEST_F(LogRulesTest, W4) {
  ExpectShown(Rule::kW4, [](uint64_t seed) {
    LogRunOptions options = {.sim = {.seed = seed}, .members = 8, .sessions = 1, .puts = 200};
    options.tend = true;
    options.break_probability = 0.02;
    options.sim.break_late_ns = 2 * kMillisecondNs;
    options.sim.reopen_ns = 2 * kMillisecondNs;
    options.flush_above = 0.7;
    return options;
  });
}

TEST_F(LogRulesTest, W5Durable) {
  ExpectShown(Rule::kW5Durable, [](uint64_t seed) {
    return LogRunOptions{.sim = {.seed = seed},
                         .puts = 400,
                         .kill_at_ns = static_cast<int64_t>(seed) * 10 * kMicrosecondNs};
  });
}

TEST_F(LogRulesTest, W5Reuse) {
  ExpectShown(Rule::kW5Reuse, [](uint64_t seed) {
    LogRunOptions options = {.sim = {.seed = seed}, .sessions = 8, .puts = 200};
    options.sim.long_delay_probability = 0.01;
    options.sim.long_delay_ns = 1 * kMillisecondNs;
    return options;
  });
}

}  // namespace
}  // namespace pando
