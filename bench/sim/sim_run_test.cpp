// Runs themselves: repeatable, bounded, with crashes, with every preset of techniques, and able to
// fail.
#include "bench/sim/sim_run.h"

#include <set>
#include <string>

#include "bench/history/checker.h"
#include "bench/history/history_io.h"
#include "bench/sim/workload.h"
#include "common/base/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

SimRunOptions Small(uint64_t seed) {
  SimRunOptions options;
  options.sim.seed = seed;
  options.operations = 600;
  options.scan = 0.1;
  return options;
}

TEST(SimRun, SameSeedSameRun) {
  std::set<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const SimRunResult once = RunSim(MixedRun(seed)), again = RunSim(MixedRun(seed));
    EXPECT_EQ(once.trace_hash, again.trace_hash) << "mixed seed " << seed;
    EXPECT_EQ(once.virtual_ns, again.virtual_ns);
    EXPECT_THAT(once.problems, IsEmpty());
    hashes.insert(once.trace_hash);
  }
  EXPECT_EQ(hashes.size(), 6u);
}

TEST(SimRun, EveryModeAndPresetPasses) {
  for (const auto mode : {sim::DeliveryMode::kLines, sim::DeliveryMode::kWords,
                          sim::DeliveryMode::kShmOrder, sim::DeliveryMode::kWhole}) {
    for (const Techniques& techniques :
         {Techniques::Everything(), Techniques::Sherman(), Techniques::FgPlus()}) {
      SimRunOptions options = Small(3);
      options.sim.mode = mode;
      options.client.techniques = techniques;
      EXPECT_THAT(RunSim(options).problems, IsEmpty()) << DescribeRun(options);
    }
  }
}

// The only compute server is cut off, or closes a session: it comes again.
TEST(SimRun, WhereNobodyIsLeftForAWhileTheRunGoesOn) {
  SimRunOptions options;
  options.operations = 2'000;
  options.compute_servers = 1;
  options.reopens = 8;
  options.pauses = 4;
  options.lease_ns = kMillisecondNs;
  options.sim.mode = sim::DeliveryMode::kWhole;
  options.sim.call_request_loss = options.sim.call_reply_loss = 0.1;
  DivideTimes(1000, &options);
  uint64_t reconnects = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    options.sim.seed = seed;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    EXPECT_GE(result.operations, options.operations) << "seed " << seed;
    reconnects += result.reconnects;
  }
  EXPECT_GT(reconnects, 0u);
}

TEST(SimRun, WithCrashesWhatCanGoOnDoes) {
  uint64_t unknown = 0, finished = 0, after_kill = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimRunOptions options = Small(seed);
    options.compute_servers = 4;
    options.threads = 2;
    options.crashes = 2;
    options.client.operation_timeout_ms = 20;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    unknown += result.unknown;
    finished += result.operations - result.unknown;
    after_kill += result.sim.verbs_after_kill;
  }
  EXPECT_GT(unknown, 20u);
  EXPECT_GT(finished, 20u * 200);
  EXPECT_GT(after_kill, 0u);
}

TEST(SimRun, WithBrokenQueuePairsEverybodyGoesOn) {
  uint64_t recovered = 0, late = 0, refused = 0, unknown = 0, concluded = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimRunOptions options = Small(seed);
    options.break_probability = 0.01;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    recovered += result.stats.tree.lock_recoveries;
    late += result.sim.verbs_after_break;
    refused += result.refused;
    unknown += result.unknown;
    concluded += result.operations - result.refused - result.unknown;
  }
  EXPECT_GT(recovered, 20u);
  EXPECT_GT(late, 0u);
  EXPECT_GT(refused, 0u);
  EXPECT_GT(unknown, 0u);
  EXPECT_GT(concluded, 20u * 500);
}

// A network so slow that no READ of a node is believed (rule F2): operations read under locks, and
// none waits to its deadline for the root to grow.
TEST(SimRun, ARootWhoseReadsTakeTooLongHoldsNobodyUp) {
  SimRunOptions options = Small(5);
  options.sim.mode = sim::DeliveryMode::kShmOrder;
  options.sim.unit_gap_ns = 3'000;
  options.tree = {.key_bytes_max = 255, .value_bytes_max = 255, .node_bytes = 15'104};
  options.operations = 200;
  options.keys = 200;
  options.load = 80;
  options.scan = 0;
  options.client.operation_timeout_ms = 4'000;
  const SimRunResult result = RunSim(options);
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_GT(result.stats.tree.torn_retries, 200u) << "or this shows nothing";
  EXPECT_LT(result.virtual_ns, 4 * kSecondNs);
}

// A merge whose queue pair broke may have taken a node out: its client says so when it leaves, so
// that a sweep finds the node.
TEST(SimRun, ANodeOfAMergeOfUnknownOutcomeIsFound) {
  EXPECT_THAT(RunSim(MixedRun(238, {.cruel_share = 0,
                                    .server_pauses = false,
                                    .late_packets = false,
                                    .shapes = false,
                                    .turns = false,
                                    .clocks = false}))
                  .problems,
              IsEmpty());
}

// A tenth of the calls is lost, the lease is 4 ms: no client lives for as long as the sweep at the
// end takes, until the network is well.
TEST(SimRun, WhatIsLeftIsLookedAfterWhereClientsAreSoonCutOff) {
  const SimRunOptions options = MixedRun(1795632847, {.server_pauses = false,
                                                      .late_packets = false,
                                                      .shapes = false,
                                                      .turns = false,
                                                      .clocks = false});
  EXPECT_EQ(options.sim.call_request_loss, 0.1);
  EXPECT_EQ(options.lease_ns, 4 * kMillisecondNs);
  EXPECT_THAT(RunSim(options).problems, IsEmpty());
}

// Of some presets' runs packets come milliseconds late, although nobody dies and nothing breaks.
TEST(SimRun, PacketsOfTheLivingComeLate) {
  uint64_t late_runs = 0, late = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const SimRunOptions options = MixedRun(seed, {.cruel_share = 0});
    if (options.sim.long_delay_ns < 2 * kMillisecondNs) continue;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    ++late_runs;
    late += result.sim.long_delays;
    const SimRunOptions without = MixedRun(seed, {.cruel_share = 0,
                                                  .late_packets = false,
                                                  .shapes = false,
                                                  .turns = false,
                                                  .clocks = false});
    EXPECT_EQ(without.sim.long_delay_ns, sim::SimOptions().long_delay_ns);
    EXPECT_EQ(without.operations, options.operations);
  }
  EXPECT_GE(late_runs, 5u);
  EXPECT_GT(late, 10 * late_runs);
}

// Unkind in every way at once, and still a function of the seed.
TEST(SimRun, CruelRunsAreRepeatableAndReuseNodes) {
  uint64_t reused = 0, shrinks = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const SimRunOptions options = MixedRun(seed, {.cruel_share = 1});
    EXPECT_LT(options.times.freed_rest_ns, TimeConstants().freed_rest_ns / 50);
    EXPECT_TRUE(options.times.Validate().ok()) << options.times.Validate();
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    if (seed <= 4) {
      EXPECT_EQ(RunSim(options).trace_hash, result.trace_hash) << "seed " << seed;
    }
    reused += result.stats.tree.nodes_reused;
    shrinks += result.stats.tree.root_shrinks;
  }
  EXPECT_GT(reused, 20u);
  EXPECT_GT(shrinks, 5u);
}

TEST(SimRun, TreesThatFillAndEmptyShrinkAndUseTheirNodesAgain) {
  uint64_t shrinks = 0, reused = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SimRunOptions options = Small(seed);
    options.threads = 2;
    options.coroutines = 1;
    options.operations = 3000;
    options.keys = 48;
    options.phase = 96;
    options.tree = {255, 255, 8192};
    options.key_prefix_bytes = 200;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    EXPECT_EQ(result.stats.tree.nodes_reused, 0u) << "the rest is a second: nothing has had it";
    DivideTimes(1000, &options);
    const SimRunResult divided = RunSim(options);
    EXPECT_THAT(divided.problems, IsEmpty()) << "seed " << seed;
    shrinks += result.stats.tree.root_shrinks + divided.stats.tree.root_shrinks;
    reused += divided.stats.tree.nodes_reused;
  }
  EXPECT_GT(shrinks, 6u);
  EXPECT_GT(reused, 60u);
}

TEST(SimRun, SweepsOfSeveralAtOnce) {
  SimRunOptions options = Small(1);
  options.sweeps = 10;
  const SimRunResult result = RunSim(options);
  EXPECT_THAT(result.problems, IsEmpty());
  EXPECT_GT(result.sweeps, 10u);
}

TEST(SimRun, WhatIsClosedUnderLoadIsOpenedAgain) {
  SimRunResult all;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SimRunOptions options = Small(seed);
    options.operations = 1500;
    options.trees = 2;
    options.reopens = 12;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    EXPECT_EQ(result.operations, options.operations);
    all.sessions_reopened += result.sessions_reopened;
    all.trees_reopened += result.trees_reopened;
    all.clients_replaced += result.clients_replaced;
  }
  EXPECT_GT(all.sessions_reopened, 10u);
  EXPECT_GT(all.trees_reopened, 10u);
  EXPECT_GT(all.clients_replaced, 10u);
}

TEST(SimRun, TreesAreDroppedAndLoadedAgainWhileOthersUseThem) {
  uint64_t dropped = 0, loaded = 0, changed = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    SimRunOptions options = Small(seed);
    options.operations = 1500;
    options.trees = 2;
    options.drops = 6;
    options.bulk_loads = true;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    dropped += result.trees_dropped;
    loaded += result.bulk_loads;
    changed += result.trees_reopened;
  }
  EXPECT_GT(dropped, 20u);
  EXPECT_GT(loaded, 0u);
  EXPECT_GT(changed, 20u);
}

// Memory that a tree gives back has nodes of another size next, whose headers lie elsewhere.
TEST(SimRun, TreesOfDifferentShapesFollowEachOther) {
  uint64_t dropped = 0, again = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimRunOptions options = Small(seed);
    options.operations = 2500;
    options.phase = 300;
    options.trees = 3;
    options.tree.node_bytes = 1024;
    options.other_trees = {{60, 30, 2048}, {20, 8, 1024 + 64 * static_cast<uint32_t>(seed % 7)}};
    options.drops = 8;
    options.bulk_loads = true;
    DivideTimes(1000, &options);
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    dropped += result.trees_dropped;
    again += result.chunks_again;
  }
  EXPECT_GT(dropped, 10u);
  EXPECT_GT(again, 10u);
}

TEST(SimRun, WhenAMemoryServerDiesTheRestGoesOn) {
  uint64_t deaths = 0, after = 0, refused = 0;
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    SimRunOptions options = Small(seed);
    options.memory_servers = 3;
    options.trees = 3;
    options.keys = 200;
    options.operations = 2000;
    options.server_deaths = 1;
    DivideTimes(1000, &options);
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    deaths += result.server_deaths;
    after += result.after_server_death;
    refused += result.refused;
  }
  EXPECT_EQ(deaths, 15u);
  EXPECT_GT(after, 5000u);
  EXPECT_GT(refused, 100u);
}

TEST(SimRun, WhoIsCutOffFromOneServerIsFencedOrGoesOn) {
  uint64_t cuts = 0, fenced = 0, recovered = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SimRunOptions options = Small(seed);
    options.compute_servers = 3;
    options.lease_ns = 2 * kMillisecondNs;
    options.partitions = 4;
    options.partition_max_ns = 5 * kMillisecondNs;
    options.keys = 200;
    DivideTimes(1000, &options);
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    cuts += result.partitions;
    fenced += result.reconnects;
    recovered += result.sim.queue_pairs_reopened;
  }
  EXPECT_GT(cuts, 30u);
  EXPECT_GT(fenced, 5u);
  EXPECT_GT(recovered, 20u);
}

TEST(SimRun, CallsThatWereGivenUpAreExecutedByAServerThatGoesOn) {
  uint64_t stopped = 0, late = 0, fenced = 0, lost = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SimRunOptions options = Small(seed);
    options.keys = 200;
    options.phase = 400;
    options.operations = 1500;
    options.server_pauses = 10;
    options.server_pause_max_ns = 4 * kMillisecondNs;
    if (seed % 2 == 0) options.lease_ns = 2 * kMillisecondNs;
    DivideTimes(1000, &options);
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    stopped += result.server_pauses;
    late += result.sim.calls_too_late;
    lost += result.sim.lost_requests;
    fenced += result.reconnects;
  }
  EXPECT_EQ(stopped, 300u);
  EXPECT_GT(late, 300u);
  EXPECT_EQ(lost, 0u);
  EXPECT_EQ(fenced, 0u) << "a server that was stopped could not hear its clients (rule C1)";
}

TEST(SimRun, BoundedInEvents) {
  SimRunOptions options = Small(1);
  options.events_max = 3000;
  EXPECT_THAT(RunSim(options).problems, ElementsAre(HasSubstr("endless")));
}

TEST(SimRun, HistoryIsWrittenAndChecksAgain) {
  SimRunOptions options = Small(2);
  const TemporaryDirectory directory;
  options.history_path = directory.path() + "/history";
  EXPECT_THAT(RunSim(options).problems, IsEmpty());
  const auto operations = history::ReadHistory(options.history_path);
  ASSERT_TRUE(operations.ok()) << operations.status();
  EXPECT_EQ(operations->size(), options.operations);
  EXPECT_EQ(history::CheckHistory(*operations).verdict, history::Verdict::kCorrect);
}

TEST(SimRun, ImpossibleOptionsAreAProblemNotACrash) {
  SimRunOptions options = Small(1);
  options.tree.node_bytes = 100;
  EXPECT_THAT(RunSim(options).problems, ElementsAre(HasSubstr("set-up")));
  options = Small(1);
  options.main_bytes = 64 << 10;
  EXPECT_FALSE(RunSim(options).ok());
}

TEST(SimWorkload, KeysAreNastyAndDifferent) {
  SimRunOptions options = Small(4);
  options.tree = {60, 8, 1024};
  options.key_prefix_bytes = 44;
  const std::vector<std::string> keys = MakeKeys(options, 500);
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), 500u);
  std::set<size_t> lengths;
  for (const std::string& key : keys) {
    lengths.insert(key.size());
    EXPECT_LE(key.size(), 60u);
    EXPECT_EQ(key.substr(0, 44), std::string(44, 'p'));
  }
  EXPECT_GT(lengths.size(), 10u);
}

TEST(SimWorkload, LoadsFirst) {
  SimRunOptions options = Small(6);
  options.load = 10;
  SimWorkload workload(options);
  history::Operation o;
  std::set<std::string> loaded;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(workload.Next(&o));
    EXPECT_EQ(o.kind, history::OperationKind::kPut);
    loaded.insert(o.key);
  }
  EXPECT_EQ(loaded.size(), 10u);
  uint64_t more = 0;
  while (workload.Next(&o)) ++more;
  EXPECT_EQ(more, options.operations);
}

TEST(SimWorkload, ValuesAreUnique) {
  SimRunOptions options = Small(5);
  SimWorkload workload(options);
  std::set<std::string> values;
  history::Operation o;
  size_t operations = 0, stores = 0;
  while (workload.Next(&o)) {
    ++operations;
    if (o.value.empty()) continue;
    ++stores;
    EXPECT_TRUE(values.insert(o.value).second);
    EXPECT_LE(o.value.size(), options.tree.value_bytes_max);
  }
  EXPECT_EQ(operations, options.operations);
  EXPECT_GT(stores, operations / 4);
}

}  // namespace
}  // namespace pando
