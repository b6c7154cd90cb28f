// The redo log against deaths, breaks, late packets and sessions that stop: what was acknowledged
// is there (rules W2 to W5, D3).
#include <gtest/gtest.h>

#include <string>

#include "bench/owned/log_run.h"

namespace pando {
namespace {

class LogCrashTest : public testing::TestWithParam<sim::DeliveryMode> {
 protected:
  LogRunOptions Options(uint64_t seed) const {
    return {.sim = {.seed = seed, .mode = GetParam(), .packet_bytes = 256}};
  }
};

LogRunResult ExpectOk(const LogRunOptions& options, const std::string& what = "") {
  LogRunResult result = RunLog(options);
  EXPECT_TRUE(result.ok()) << "seed " << options.sim.seed << " " << what << ": " << result.what();
  return result;
}

// A member dies between any two packets of its batches; the ring goes round some times meanwhile.
TEST_P(LogCrashTest, WhoDiesBetweenTwoPacketsLosesNothingAcknowledged) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    LogRunOptions options = Options(seed);
    options.puts = 30;
    options.ring_bytes = 5 << 10;
    options.batch_bytes_max = 640;
    uint64_t worlds = 0, rings = 0;
    for (options.packets = 0; options.packets < 2'000; ++options.packets, ++worlds) {
      const LogRunResult result =
          ExpectOk(options, "killed after " + std::to_string(options.packets) + " packets");
      rings = result.counters.bytes / options.ring_bytes;
      if (!result.killed || testing::Test::HasFailure()) break;
    }
    EXPECT_GT(worlds, 50u);
    EXPECT_GE(rings, 2u);
  }
}

// At any moment, so that base lines die, too, and what was sent may come late.
TEST_P(LogCrashTest, WhoDiesAtAnyTimeLosesNothingAcknowledged) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    LogRunOptions options = Options(seed);
    options.sim.kill_late_ns = 50 * kMicrosecondNs;
    options.puts = 200;
    options.kill_at_ns = 1 + static_cast<int64_t>(seed * 7919 % 400) * kMicrosecondNs;
    ExpectOk(options);
  }
}

// Rule W4: what failed may land later, and does.
TEST_P(LogCrashTest, WhereQueuePairsBreakEverybodyGoesOn) {
  uint64_t failed = 0, late = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    LogRunOptions options = Options(seed);
    options.break_probability = 0.05;
    options.tend = seed % 2 == 0;
    if (seed % 4 >= 2) options.kill_at_ns = static_cast<int64_t>(seed) * 100 * kMicrosecondNs;
    const LogRunResult result = ExpectOk(options);
    failed += result.counters.chains_failed;
    late += result.verbs_late;
  }
  EXPECT_GT(failed, 40u);
  EXPECT_GT(late, 10u);
}

// Rule W3: sessions that do not poll, with batches of theirs in flight and turns that they were
// given.
TEST_P(LogCrashTest, SessionsThatStopKeepNobodyFromGoingOn) {
  uint64_t again = 0, turns = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    LogRunOptions options = Options(seed);
    options.members = 3;
    options.sessions = 1;
    options.tend = true;
    options.stop_every_ns = 3 * kMicrosecondNs;
    options.stop_ns = 300 * kMicrosecondNs;
    options.break_probability = seed % 3 == 0 ? 0.02 : 0;
    if (seed % 2 == 0) options.kill_at_ns = static_cast<int64_t>(seed) * 50 * kMicrosecondNs;
    const LogRunResult result = ExpectOk(options);
    again += result.counters.written_again;
    turns += result.counters.turns_taken;
  }
  EXPECT_GT(again, 20u);
  EXPECT_GT(turns, 0u);
}

// A batch that was written by two lands once more, long after.
TEST_P(LogCrashTest, ChainsThatAreHeldUpOverwriteNothing) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    LogRunOptions options = Options(seed);
    options.tend = true;
    options.sim.long_delay_probability = 0.1;
    options.sim.long_delay_ns = 400 * kMicrosecondNs;
    if (seed % 2 == 0) options.kill_at_ns = static_cast<int64_t>(seed) * 60 * kMicrosecondNs;
    ExpectOk(options);
  }
}

// Rule W6: everything that was dirty or not yet durable is in the new extent before anything of it
// is acknowledged.
TEST_P(LogCrashTest, WhereTheServerDiesTheLogMoves) {
  uint64_t moves = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    LogRunOptions options = Options(seed);
    options.sim.death_seen_ns = 100 * kMicrosecondNs;
    options.puts = 100;
    options.tend = true;
    options.flush_above = 0.5;
    options.lose_server_at_ns = static_cast<int64_t>(seed) * 3 * kMicrosecondNs;
    if (seed % 2 == 0) options.kill_at_ns = options.lose_server_at_ns + 300 * kMicrosecondNs;
    moves += ExpectOk(options).moves;
  }
  EXPECT_GT(moves, 30u);
}

INSTANTIATE_TEST_SUITE_P(Modes, LogCrashTest,
                         testing::Values(sim::DeliveryMode::kLines, sim::DeliveryMode::kWords,
                                         sim::DeliveryMode::kShmOrder, sim::DeliveryMode::kWhole),
                         [](const auto& info) {
                           return std::string(sim::DeliveryModeName(info.param));
                         });

}  // namespace
}  // namespace pando
