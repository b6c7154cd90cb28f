// Cases of owned trees, and what their owners' work costs in simulated time.
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bench/figures/figure.h"
#include "bench/figures/owned_servers.h"
#include "bench/figures/parts.h"
#include "bench/figures/tree_run.h"
#include "bench/host/fork_pool.h"
#include "bench/nic/nic_bench.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

constexpr int kServers = 2;

class OwnedRunTest : public ::testing::Test {
 protected:
  // With other constants, if `change` says so.
  void Load(
      const std::function<void(NicProfile*)>& change = [](NicProfile*) {},
      uint32_t delete_persistence_ms = 0) {
    auto nic = LoadNicProfile("connectx5-100g");
    ASSERT_TRUE(nic.ok()) << nic.status();
    change(&*nic);
    nic_ = std::make_shared<NicProfile>(*nic);
    auto loaded = Snapshot::Load({.records = 6'000,
                                  .memory_servers = kServers,
                                  .owned = true,
                                  .delete_persistence_ms = delete_persistence_ms,
                                  .nic = nic_});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    snapshot_ = *std::move(loaded);
  }

  // Gets of loaded keys, all in memory.
  TreeCase Case(int threads) const {
    TreeCase one;
    one.system = OurSystem();
    one.compute_servers = kServers;
    one.threads = threads;
    one.operation_cpu_ns = nic_->cpu.operation_ns;
    one.owners = Owners{.hot_share = 2};
    one.mix.keys = Mix::Keys::kLoaded;
    one.span = {.warmup_operations = 200,
                .warmup_ns = 0,
                .operations = 2'000,
                .measured_ns = 100 * kMicrosecondNs,
                .events_max = 3'000'000};
    return one;
  }

  CaseResult Run(const TreeCase& one) {
    const auto answers = RunForked({{"case",
                                     [&]() -> absl::StatusOr<nlohmann::json> {
                                       auto result = RunTreeCase(one, snapshot_.get());
                                       if (!result.ok()) return result.status();
                                       result->cpu_seconds = 0;
                                       return CaseResultToJson(*result);
                                     }}},
                                   1);
    EXPECT_TRUE(answers.ok()) << answers.status();
    if (!answers.ok()) return {};
    const auto result = CaseResultFromJson(answers->front());
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->errors, 0u) << result->first_error;
    EXPECT_FALSE(result->cut_short);
    return *result;
  }

  std::shared_ptr<const NicProfile> nic_;
  std::unique_ptr<Snapshot> snapshot_;
};

TEST(OwnerOfTest, KeysAreDividedEvenlyAndInOrder) {
  int owner = 0, count[5] = {};
  for (uint64_t number = 0; number < 1'003; ++number) {
    EXPECT_GE(OwnerOf(number, 1'003, 5), owner);
    owner = OwnerOf(number, 1'003, 5);
    ASSERT_LT(owner, 5);
    ++count[owner];
  }
  for (const int of_one : count) EXPECT_NEAR(of_one, 1'003 / 5, 1);
}

TEST_F(OwnedRunTest, AHitAtTheOwnerTakesItsProcessorTimeAndNothingElse) {
  Load();
  const CaseResult result = Run(Case(/*threads=*/1));
  EXPECT_EQ(result.owned.misses, 0u);
  EXPECT_GE(result.owned.hits, result.operations);
  EXPECT_EQ(result.peer_messages, 0u);
  EXPECT_LT(result.Each(result.fabric.chains), 0.01);
  // One thread a partition: nobody waits for it.
  const double ns = nic_->cpu.operation_ns + nic_->cpu.record_ns;
  EXPECT_NEAR(result.latency_ns.Mean(), ns, 10);
  EXPECT_NEAR(result.mops(), kServers * 1e3 / ns, 0.05 * kServers * 1e3 / ns);
}

// Every operation is for the same record.
TreeCase OfOneRecord(TreeCase one) {
  one.compute_servers = 1;
  one.distribution = {.name = "hotspot", .hotspot_items = 1e-9, .hotspot_operations = 1};
  return one;
}

TEST_F(OwnedRunTest, ABusyPartitionBoundsWrites) {
  constexpr double kRecordNs = 20'000;
  Load([](NicProfile* nic) { nic->cpu.record_ns = kRecordNs; });
  TreeCase one = OfOneRecord(Case(/*threads=*/4));
  one.mix.writes = 1;
  const CaseResult four = Run(one);
  // One partition is held all the time, now and then by a flush.
  EXPECT_LE(four.mops(), 1.03 * 1e3 / kRecordNs);
  EXPECT_GE(four.mops(), 0.85 * 1e3 / kRecordNs);
  // Who waits does so with his thread.
  EXPECT_GE(four.latency_ns.Mean(), 0.95 * 4 * kRecordNs);
  EXPECT_NEAR(four.busy.partition, 1, 0.05);
  // Keys of all partitions: three of four threads find theirs free most of the time.
  one.distribution = {.name = "uniform"};
  EXPECT_GT(Run(one).mops(), 1.7 * four.mops());
}

// Rule T9: gets of a popular record hold nothing, and take as long.
TEST_F(OwnedRunTest, NoPartitionBoundsGetsOfAPopularRecord) {
  constexpr double kRecordNs = 5'000;
  constexpr int kThreads = 4;
  Load([](NicProfile* nic) { nic->cpu.record_ns = kRecordNs; });
  const CaseResult result = Run(OfOneRecord(Case(kThreads)));
  const double ns = nic_->cpu.operation_ns + kRecordNs;
  EXPECT_NEAR(result.latency_ns.Mean(), ns, 0.05 * ns);
  EXPECT_NEAR(result.mops(), kThreads * 1e3 / ns, 0.05 * kThreads * 1e3 / ns);
  // One of 32 takes the mutex.
  EXPECT_LT(result.busy.partition, 0.15);
}

// What nobody writes is READ, but for some that ask for it, and what is at home.
TEST_F(OwnedRunTest, WhatIsOnlyReadIsLent) {
  Load();
  TreeCase one = Case(/*threads=*/4);
  one.owners->routed = false;
  const CaseResult any = Run(one);
  EXPECT_LT(any.Each(any.peer_messages), 0.25);
  EXPECT_NEAR(any.Each(any.fabric.chains), 0.5, 0.15);
  EXPECT_GT(any.owned.lent, any.operations / 3);
  one.mix.writes = 0.5;
  const CaseResult mixed = Run(one);
  EXPECT_GT(mixed.Each(mixed.peer_messages), 0.3);
}

TEST_F(OwnedRunTest, WhatIsForwardedTakesMessagesAndTheOwnersTime) {
  Load();
  TreeCase one = Case(/*threads=*/4);
  one.owners->lends = false;
  const CaseResult routed = Run(one);
  one.owners->routed = false;
  const CaseResult any = Run(one);
  // Half of the keys are another's; an answer may take more requests than one.
  EXPECT_GT(any.Each(any.peer_messages), 0.3);
  EXPECT_LE(any.Each(any.peer_messages), 1.1);
  EXPECT_LT(any.mops(), routed.mops());
  EXPECT_GT(any.PercentileUs(99), 2e-3 * nic_->calls.one_way_ns);
}

TEST_F(OwnedRunTest, AServiceExecutesNoMoreThanItsThreadCan) {
  constexpr double kOperationNs = 20'000;
  Load([](NicProfile* nic) { nic->cpu.operation_ns = kOperationNs; });
  TreeCase one = Case(/*threads=*/6);
  one.operation_cpu_ns = 0;  // of those who ask
  one.owners->lends = false;
  one.owners->routed = false;
  const CaseResult any = Run(one);
  // Half of all operations are executed by the services, of which each owner has one.
  EXPECT_LE(any.mops(), 1.05 * 2 * kServers * 1e3 / kOperationNs);
  EXPECT_GE(any.mops(), 0.7 * 2 * kServers * 1e3 / kOperationNs);
}

// What one asks is executed by one thread: of three owners each is asked by two.
TEST_F(OwnedRunTest, MoreServiceThreadsExecuteMore) {
  constexpr double kOperationNs = 20'000;
  constexpr int kOwners = 3;
  Load([](NicProfile* nic) { nic->cpu.operation_ns = kOperationNs; });
  TreeCase one = Case(/*threads=*/6);
  one.compute_servers = kOwners;
  one.operation_cpu_ns = 0;
  one.owners->lends = false;
  one.owners->routed = false;
  const CaseResult by_one = Run(one);
  one.owners->service_threads = 2;
  const CaseResult by_two = Run(one);
  // Two thirds of all operations are executed by the services.
  EXPECT_GT(by_two.mops(), 1.5 * by_one.mops());
  EXPECT_LE(by_two.mops(), 1.05 * 2 * 1.5 * kOwners * 1e3 / kOperationNs);
}

TEST_F(OwnedRunTest, WritesAreLoggedAndFlushed) {
  Load();
  TreeCase one = Case(/*threads=*/4);
  one.mix.writes = 1;
  one.owners->hot_bytes = 64 << 10;
  one.span.warmup_operations = 6'000;
  one.span.operations = 6'000;
  const CaseResult result = Run(one);
  // Those that are under way at the two ends of the span count once.
  EXPECT_NEAR(static_cast<double>(result.owned.log_messages),
              static_cast<double>(result.operations), 100);
  EXPECT_GT(result.owned.flushed, result.operations / 4);
  EXPECT_GT(result.latency_ns.Percentile(50), nic_->nic.doorbell_ns);  // of the log's WRITE
  EXPECT_GT(result.Each(result.fabric.chains), 0.2);
}

TEST_F(OwnedRunTest, NewKeysComeToTheirOwnersOnce) {
  Load();
  TreeCase one = Case(/*threads=*/2);
  one.mix = {.writes = 1, .keys = Mix::Keys::kNew};
  one.span.warmup_operations = 500;
  one.span.operations = 1'500;
  one.span.measured_ns = 0;
  const CaseResult routed = Run(one);
  EXPECT_EQ(routed.peer_messages, 0u);
  EXPECT_EQ(routed.hot_bytes_max, kServers * (snapshot_->leaf_bytes() * 2 / kServers));
  one.owners->routed = false;
  EXPECT_GT(Run(one).peer_messages, 0u);
  // There are half as many as records; a key that comes twice would be an update.
  one.span.operations = 4'000;
  const auto result = RunTreeCase(one, snapshot_.get());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->first_error, "OUT_OF_RANGE: every new key has been inserted");
}

TEST_F(OwnedRunTest, NoTombstoneIsOlderThanItsDeadline) {
  constexpr int64_t kDeadlineMs = 200;
  Load([](NicProfile*) {}, kDeadlineMs);
  TreeCase one = Case(/*threads=*/2);
  one.compute_servers = 1;
  one.mix.writes = 0.9;
  one.mix.erases = 0.1;
  one.operations_per_s = 2'000;
  one.tombstone_ns = kDeadlineMs * kMillisecondNs;
  one.span.measured_ns = 5 * one.tombstone_ns;
  const CaseResult result = Run(one);
  EXPECT_GT(result.looks, 100u);
  EXPECT_EQ(result.late_looks, 0u);
  EXPECT_GT(result.oldest_tombstone_ms, static_cast<uint64_t>(kDeadlineMs / 4));
  EXPECT_NEAR(result.mops() * 1e6, 2'000, 100);
  // Held against less than that they are found.
  one.tombstone_ns = kDeadlineMs * kMillisecondNs / 4;
  EXPECT_GT(Run(one).late_looks, 0u);
}

TEST(OwnedFigures, SayWhatOperationsCost) {
  Grid grid;
  grid.quick = true;
  const std::map<std::string, std::set<std::string>> metrics = {
      {"owned", {"messages_an_operation", "throughput_over_published_sherman", "p99_us"}},
      {"owned_cache", {"owned_hits_percent", "chains_an_operation"}},
      {"buffered", {"bytes_read_an_operation", "bytes_written_an_operation"}},
      {"peers", {"partition_busy_percent", "dirty_percent", "hot_megabytes", "flushed_each"}},
      {"deletes", {"late_looks_percent", "extra_chains_percent", "oldest_tombstone_s"}}};
  for (const auto& [name, wanted] : metrics) {
    const auto figure = MakeFigure(name, grid);
    ASSERT_TRUE(figure.ok()) << figure.status();
    CaseResult result;
    result.operations = 2;
    result.fabric.chains = 3;
    const std::vector<Point> points =
        PointsOf(*figure, std::vector<CaseResult>(figure->cases.size(), result));
    std::set<std::string> found;
    for (const Point& point : points) {
      found.insert(point.metric);
      if (point.metric == "chains_an_operation") {
        EXPECT_EQ(point.simulated, 1.5);
      }
    }
    for (const std::string& metric : wanted) EXPECT_TRUE(found.contains(metric)) << metric;
  }
}

}  // namespace
}  // namespace pando::bench
