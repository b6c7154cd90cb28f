#include "bench/locks/lock_bench.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

// On the simulator everything is counted exactly and comes out the same every time.
class LockBenchTest : public ::testing::Test {
 protected:
  LockBenchOptions Options() {
    LockBenchOptions options;
    options.memory_servers = {1, 2};
    options.compute_servers = 2;
    options.threads = 2;
    options.coroutines = 4;
    options.operations = 4'000;
    return options;
  }

  absl::StatusOr<LockBenchResult> Run(const LockBenchOptions& options,
                                      const Techniques& techniques) {
    SimCluster cluster({.sim = {.seed = 5}, .lock_words = 1'024});
    return RunLockBench(
        options, techniques,
        {.connect = [&cluster](const ClientOptions& client)
             -> absl::StatusOr<std::unique_ptr<Client>> { return cluster.NewClient(client); },
         .run =
             [](const std::vector<std::function<void()>>& jobs) {
               for (const auto& job : jobs) job();
             }});
  }
};

TEST_F(LockBenchTest, UncontendedLocksCostTwoRoundTrips) {
  LockBenchOptions options = Options();
  options.locks = 1'000;
  options.compute_servers = options.threads = options.coroutines = 1;
  for (const LockTechnique& rung : LockLadder()) {
    const auto result = Run(options, rung.techniques);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->operations, 4'000u);
    EXPECT_EQ(result->errors, 0u) << result->first_error;
    EXPECT_EQ(result->round_trips.max(), 2) << rung.name;
    EXPECT_EQ(result->failures, 0u);
    EXPECT_EQ(result->fabric.cas, 4'000u);
    EXPECT_EQ(result->fabric.writes, 4'000u);
  }
}

TEST_F(LockBenchTest, EveryRungFailsLessAndNoLockIsHeldTwice) {
  LockBenchOptions options = Options();
  options.locks = 20;
  std::vector<LockBenchResult> results;
  for (const LockTechnique& rung : LockLadder()) {
    auto result = Run(options, rung.techniques);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->errors, 0u) << result->first_error;
    EXPECT_EQ(result->violations, 0u) << rung.name;
    EXPECT_EQ(result->operations, 4'000u);
    results.push_back(*std::move(result));
  }
  // Local tables keep a compute server from competing with itself.
  EXPECT_LT(results[1].failures, results[0].failures);
  // Handover saves the release and the next acquisition.
  EXPECT_EQ(results[2].handovers, 0u);
  EXPECT_GT(results[3].handovers, 100u);
  EXPECT_LT(results[3].round_trips.Mean(), results[2].round_trips.Mean());
  EXPECT_LT(results[3].attempts, results[2].attempts);
}

TEST_F(LockBenchTest, NoLockThatIsHeldForLongIsHeldTwice) {
  LockBenchOptions options = Options();
  options.locks = 20;
  options.held_ns = 20 * kMicrosecondNs;
  for (const LockTechnique& rung : LockLadder()) {
    const auto result = Run(options, rung.techniques);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->errors, 0u) << rung.name << ": " << result->first_error;
    EXPECT_EQ(result->violations, 0u) << rung.name;
    EXPECT_GE(result->latency_ns.min(), options.held_ns);
  }
}

TEST_F(LockBenchTest, TheSameSeedGivesTheSameRun) {
  LockBenchOptions options = Options();
  options.locks = 100;
  const auto one = Run(options, LockLadder()[3].techniques);
  const auto two = Run(options, LockLadder()[3].techniques);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->attempts, two->attempts);
  EXPECT_EQ(one->seconds, two->seconds);
  EXPECT_EQ(one->latency_ns.sum(), two->latency_ns.sum());
}

TEST_F(LockBenchTest, RefusesMoreLocksThanWords) {
  LockBenchOptions options = Options();
  options.locks = 2 * (1'024 - 256) + 1;
  EXPECT_EQ(Run(options, Techniques()).status().code(), absl::StatusCode::kInvalidArgument);
  options.locks = uint64_t{1} << 50;  // there is no memory either to note who holds them
  EXPECT_EQ(Run(options, Techniques()).status().code(), absl::StatusCode::kInvalidArgument);
  options.locks = 0;
  EXPECT_EQ(Run(options, Techniques()).status().code(), absl::StatusCode::kInvalidArgument);
  options = Options();
  options.distribution.theta = 7;
  EXPECT_EQ(Run(options, Techniques()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pando::bench
