#include "bench/figures/tree_run.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "bench/figures/lock_run.h"
#include "bench/figures/parts.h"
#include "bench/host/fork_pool.h"
#include "bench/nic/nic_bench.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

// On the plain network: what is counted does not depend on the timing model.
class TreeRunTest : public ::testing::Test {
 protected:
  TreeRunTest() {
    auto loaded = Snapshot::Load({.records = 20'000, .memory_servers = 2});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    snapshot_ = *std::move(loaded);
  }

  static TreeCase Case(const System& system, int clients) {
    TreeCase one;
    one.system = system;
    one.mix = WriteOnly().mix;
    one.compute_servers = 1;
    one.threads = clients;
    one.span = {.warmup_operations = 50,
                .warmup_ns = 0,
                .operations = 400,
                .measured_ns = 100 * kMicrosecondNs,
                .events_max = 1'000'000};
    return one;
  }

  // In a child: the snapshot stays as it was.
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
    const auto result = CaseResultFromJson(answers->front());
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->errors, 0u) << result->first_error;
    return *result;
  }

  std::unique_ptr<Snapshot> snapshot_;
};

TEST_F(TreeRunTest, TwoThirdsOfTheNumbersAreLoaded) {
  EXPECT_EQ(snapshot_->key_space(), 30'000u);
  const auto client = snapshot_->cluster().NewClient();
  const auto tree = *client->OpenTree(Snapshot::kTree);
  const auto session = *client->NewSession();
  const auto report = session->Check(*tree, {.quiet_tree = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok()) << report->problems.front();
  EXPECT_EQ(report->keys, 20'000u);
  EXPECT_EQ(report->nodes_per_level[1], snapshot_->parents().size());
  EXPECT_TRUE(session->Get(*tree, snapshot_->keys().Make(29'998)).ok());
  EXPECT_TRUE(absl::IsNotFound(session->Get(*tree, snapshot_->keys().Make(29'999)).status()));
}

TEST_F(TreeRunTest, KeysAreThoseThatTheMixAsksFor) {
  TreeCase one = Case(OurSystem(), 4);
  const auto keys_after = [&](Mix::Keys keys) {
    one.mix.keys = keys;
    const auto answers = RunForked({{"case",
                                     [&]() -> absl::StatusOr<nlohmann::json> {
                                       auto ran = RunTreeCase(one, snapshot_.get());
                                       if (!ran.ok()) return ran.status();
                                       const auto client = snapshot_->cluster().NewClient();
                                       const auto tree = *client->OpenTree(Snapshot::kTree);
                                       const auto session = *client->NewSession();
                                       const auto report =
                                           session->Check(*tree, {.quiet_tree = true});
                                       if (!report.ok()) return report.status();
                                       return nlohmann::json(report->keys);
                                     }}},
                                   1);
    EXPECT_TRUE(answers.ok()) << answers.status();
    return answers->front().get<uint64_t>();
  };
  EXPECT_EQ(keys_after(Mix::Keys::kLoaded), 20'000u);
  // Each put brings a key, those of the warm-up and those that were under way at the end as well.
  EXPECT_GE(keys_after(Mix::Keys::kNew), 20'450u);
  EXPECT_GT(keys_after(Mix::Keys::kAny), 20'000u);
}

TEST_F(TreeRunTest, RoundTripsAndBytesOfAnUncontendedWriteAreThoseOfTheSystem) {
  const CaseResult fg_plus = Run(Case(FgPlusSystem(), 1));
  EXPECT_EQ(fg_plus.write_trips.Percentile(50), 4);
  EXPECT_EQ(fg_plus.write_bytes.Percentile(50), 1024);
  const CaseResult sherman = Run(Case(ShermanSystem(), 1));
  EXPECT_EQ(sherman.write_trips.Percentile(50), 3);
  EXPECT_EQ(sherman.write_bytes.Percentile(50), 64);
  const CaseResult pando = Run(Case(OurSystem(), 1));
  EXPECT_EQ(pando.write_trips.Percentile(50), 2);
  EXPECT_EQ(pando.write_bytes.Percentile(50), 64);
  EXPECT_GT(pando.mops(), sherman.mops());
  EXPECT_GT(sherman.mops(), fg_plus.mops());
  EXPECT_EQ(pando.tree.lock_failures, 0u);
}

TEST_F(TreeRunTest, TheSpanHasItsOperationsAndItsTime) {
  TreeCase one = Case(OurSystem(), 3);
  CaseResult result = Run(one);
  EXPECT_GE(result.operations, 400u);
  EXPECT_GE(result.span_ns, 100 * kMicrosecondNs);
  EXPECT_EQ(result.latency_ns.count(), result.operations);
  EXPECT_EQ(result.write_trips.count(), result.operations);
  EXPECT_FALSE(result.cut_short);
  EXPECT_GT(result.HitPercent(), 99);
  one.span.measured_ns = 2 * kMillisecondNs;
  EXPECT_GE(Run(one).span_ns, 2 * kMillisecondNs);
  one.span.events_max = 2'000;
  result = Run(one);
  EXPECT_TRUE(result.cut_short);
  EXPECT_LT(result.span_ns, 2 * kMillisecondNs);
}

TEST_F(TreeRunTest, TheSameCaseGivesTheSameNumbers) {
  TreeCase one = Case(OurSystem(), 3);
  one.mix = {.writes = 0.4, .scans = 0.2, .scan_rows = 50};
  one.compute_servers = one.coroutines = 2;
  one.distribution = {.name = "zipfian", .theta = 0.99};
  const nlohmann::json first = CaseResultToJson(Run(one));
  EXPECT_EQ(CaseResultToJson(Run(one)), first);
  one.seed = 2;
  EXPECT_NE(CaseResultToJson(Run(one)), first);
}

// With the timing of a NIC, that nothing else here needs.
TEST(TimedTreeRunTest, CoroutinesOfASessionShareDoorbells) {
  const auto nic = LoadNicProfile("connectx5-100g");
  ASSERT_TRUE(nic.ok()) << nic.status();
  const auto snapshot = Snapshot::Load(
      {.records = 20'000, .memory_servers = 1, .nic = std::make_shared<NicProfile>(*nic)});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  const auto verbs_a_doorbell = [&](int coroutines) {
    TreeCase one;
    one.system = OurSystem();
    one.compute_servers = one.threads = 1;
    one.coroutines = coroutines;
    one.span = {.warmup_operations = 50,
                .warmup_ns = 0,
                .operations = 2'000,
                .measured_ns = 100 * kMicrosecondNs,
                .events_max = 1'000'000};
    const auto result = RunTreeCase(one, snapshot->get());
    EXPECT_TRUE(result.ok()) << result.status();
    return static_cast<double>(result->verbs) / static_cast<double>(result->doorbells);
  };
  // A get is a READ.
  EXPECT_EQ(verbs_a_doorbell(1), 1);
  EXPECT_GT(verbs_a_doorbell(16), 3);
}

TEST_F(TreeRunTest, ASmallCacheMisses) {
  TreeCase one = Case(ShermanSystem(), 2);
  one.cache_share = 0.5;
  const CaseResult result = Run(one);
  EXPECT_LT(result.HitPercent(), 80);
  EXPECT_GT(result.HitPercent(), 20);
}

TEST_F(TreeRunTest, BackOffSavesAttempts) {
  TreeCase one = Case(FgPlusSystem(), 8);
  one.distribution = {.name = "zipfian", .theta = 0.99};
  const CaseResult without = Run(one);
  one.system.techniques.lock_back_off = true;
  EXPECT_LT(Run(one).tree.lock_failures, without.tree.lock_failures);
}

TEST(LockRunTest, HandoverSavesAttempts) {
  LockCase locks;
  locks.compute_servers = 2;
  locks.threads = 4;
  locks.locks = 20;
  locks.operations = 2'000;
  locks.system = FgPlusSystem();
  const auto without = RunLockCase(locks, nullptr);
  ASSERT_TRUE(without.ok()) << without.status();
  locks.system = ShermanSystem();
  const auto with = RunLockCase(locks, nullptr);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(without->operations, 2'000u);
  EXPECT_EQ(with->operations, 2'000u);
  EXPECT_EQ(without->tree.handovers, 0u);
  EXPECT_GT(with->tree.handovers, 0u);
  EXPECT_LT(with->tree.lock_failures, without->tree.lock_failures);
  EXPECT_GT(with->mops(), 0);
  locks.locks = 1 << 20;  // more than there are words
  EXPECT_TRUE(absl::IsInvalidArgument(RunLockCase(locks, nullptr).status()));
}

}  // namespace
}  // namespace pando::bench
