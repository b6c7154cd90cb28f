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

// A merge whose queue pair broke may have taken a node out: its client says so when it leaves, so
// that a sweep finds the node.
TEST(SimRun, ANodeOfAMergeOfUnknownOutcomeIsFound) {
  EXPECT_THAT(RunSim(MixedRun(238)).problems, IsEmpty());
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
