// What is known at the end of a run, and is looked at.
#include "bench/sim/sim_run.h"

#include "bench/history/history_io.h"
#include "common/base/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::IsEmpty;

// Once everybody knows that its client is dead an operation has happened, or never will.
TEST(Aftermath, WhatTheDeadHadUnderWayHasALatestTime) {
  const TemporaryDirectory directory;
  size_t of_unknown = 0, known = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SimRunOptions options;
    options.sim.seed = seed;
    options.sim.death_seen_ns = 100 * kMicrosecondNs;
    options.compute_servers = 4;
    options.crashes = 3;
    options.erases = 0.01;
    options.history_path = directory.path() + "/history";
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    const auto history = history::ReadHistory(options.history_path);
    ASSERT_TRUE(history.ok()) << history.status();
    for (const history::Operation& o : *history) {
      const bool has_latest = o.unknown() && o.latest_ns != history::kAtAnyTime;
      of_unknown += o.unknown() ? 1 : 0;
      known += has_latest ? 1 : 0;
      if (has_latest) {
        EXPECT_LT(o.latest_ns, result.virtual_ns);
      }
    }
  }
  EXPECT_GT(known, of_unknown / 4);
  EXPECT_LT(known, of_unknown) << "of erased ranges it is not said";
}

// What a deadline cuts off had no effect, or says that nobody knows.
TEST(Aftermath, OperationsWithShortDeadlines) {
  SimRunResult all;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SimRunOptions options;
    options.sim.seed = seed;
    options.conditional = 0.3;
    options.short_deadlines = 0.05;
    options.break_probability = seed % 2 == 0 ? 0.001 : 0;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    all.too_late += result.too_late;
    all.perhaps_too_late += result.perhaps_too_late;
  }
  EXPECT_GT(all.too_late, 200u);
  EXPECT_GT(all.perhaps_too_late, 20u);
}

// Heartbeat and service go on where one thread is stopped: nobody is cut off.
TEST(Aftermath, ThreadsThatAreStoppedForLongerThanALease) {
  uint64_t stopped = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SimRunOptions options;
    options.sim.seed = seed;
    options.tree.mode = seed % 2 == 0 ? TreeOptions::Mode::kOwned : TreeOptions::Mode::kShared;
    options.lease_ns = 10 * kMillisecondNs;
    options.thread_pauses = 6;
    options.thread_pause_max_ns = 50 * kMillisecondNs;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    EXPECT_EQ(result.reconnects, 0u) << "seed " << seed;
    stopped += result.thread_pauses;
  }
  EXPECT_GT(stopped, 20u);
}

// Memory servers that start again, empty: trees that had nothing there go on, and are whole in the
// end; the others are made again.
TEST(Aftermath, MemoryServersThatComeBack) {
  SimRunResult all;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SimRunOptions options;
    options.sim.seed = seed;
    options.sim.death_seen_ns = 200 * kMicrosecondNs;
    options.memory_servers = 3;
    options.compute_servers = 3;
    options.trees = 3;
    options.tree.mode = seed % 2 == 0 ? TreeOptions::Mode::kOwned : TreeOptions::Mode::kShared;
    options.bulk_loads = true;
    options.client.log_bytes = 128 << 10;
    options.server_deaths = 2;
    options.server_restarts = 1;
    options.server_restart_max_ns = seed % 3 == 0 ? 400 * kMicrosecondNs : 20 * kMicrosecondNs;
    options.take_up_max_ns = 100 * kMicrosecondNs;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    if (seed <= 4) {
      EXPECT_EQ(RunSim(options).trace_hash, result.trace_hash) << "seed " << seed;
    }
    all.servers_restarted += result.servers_restarted;
    all.servers_taken_up += result.servers_taken_up;
    all.died_while_taken_up += result.died_while_taken_up;
    all.lost_trees_dropped += result.lost_trees_dropped;
  }
  EXPECT_GT(all.servers_restarted, 30u);
  EXPECT_GT(all.servers_taken_up, 40u);
  EXPECT_GT(all.died_while_taken_up, 0u);
  EXPECT_GT(all.lost_trees_dropped, 5u);
}

}  // namespace
}  // namespace pando
