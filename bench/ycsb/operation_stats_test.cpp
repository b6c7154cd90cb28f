#include "bench/ycsb/operation_stats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/ycsb/report.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

PhaseStats Sample(uint64_t seed) {
  Random random(seed);
  PhaseStats stats;
  stats.start_ns = 1'000;
  for (int i = 0; i < 1'000; ++i) {
    const auto kind = kAllOperationKinds[random.Uniform(kOperationKinds)];
    const auto latency_ns = static_cast<int64_t>(random.Uniform(1'000'000));
    stats.of(kind).Record(latency_ns, {.round_trips = static_cast<uint32_t>(random.Uniform(4)),
                                       .verbs = 2,
                                       .bytes_read = 1'024,
                                       .bytes_written = 72});
    stats.CountFinished(stats.start_ns + static_cast<int64_t>(random.Uniform(3 * kSecondNs)));
  }
  stats.of(OperationKind::kRead).errors = 3;
  stats.of(OperationKind::kRead).not_found = 4;
  stats.first_error = "read: UNAVAILABLE";
  stats.backlog = seed;
  stats.fabric.reads = 10 * seed;
  stats.fabric.calls = 1;
  stats.tree.splits = seed;
  stats.tree.cache_bytes = 100;
  stats.tree.place_hits = 7 * seed;
  stats.tree.place_bytes = 30;
  stats.owned.hits = 5 * seed;
  stats.owned.dirty_bytes = 20;
  return stats;
}

TEST(OperationStatsTest, GoThereAndBackWhole) {
  const PhaseStats stats = Sample(7);
  const nlohmann::json raw = StatsToRawJson(stats);
  const absl::StatusOr<PhaseStats> back = StatsFromRawJson(nlohmann::json::parse(raw.dump()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(StatsToRawJson(*back), raw);
  EXPECT_EQ(StatsToResultJson(*back), StatsToResultJson(stats));
  EXPECT_EQ(back->operations(), 1'000u);
  EXPECT_EQ(back->errors(), 3u);
}

TEST(OperationStatsTest, GarbageIsAStatus) {
  for (const char* text : {"null", "{}", "[]", R"({"by_operation": []})"}) {
    EXPECT_EQ(StatsFromRawJson(nlohmann::json::parse(text)).status().code(),
              absl::StatusCode::kDataLoss);
  }
  nlohmann::json raw = StatsToRawJson(Sample(1));
  raw["fabric"]["reads"] = "many";
  EXPECT_FALSE(StatsFromRawJson(raw).ok());
}

TEST(OperationStatsTest, MergingAddsCountsAndJoinsHistograms) {
  PhaseStats sum = Sample(1);
  const PhaseStats other = Sample(2);
  const OperationStats one = sum.of(OperationKind::kScan);
  sum.Merge(other);
  const OperationStats& both = sum.of(OperationKind::kScan);
  EXPECT_EQ(both.count, one.count + other.of(OperationKind::kScan).count);
  EXPECT_EQ(both.latency_ns.count(), both.count);
  EXPECT_EQ(both.latency_ns.max(),
            std::max(one.latency_ns.max(), other.of(OperationKind::kScan).latency_ns.max()));
  EXPECT_EQ(sum.operations(), 2'000u);
  EXPECT_EQ(sum.backlog, 3u);
  EXPECT_EQ(sum.fabric.reads, 30u);
  EXPECT_EQ(sum.tree.splits, 3u);
  EXPECT_EQ(sum.tree.cache_bytes, 200u);
  EXPECT_EQ(sum.tree.place_hits, 21u);
  EXPECT_EQ(sum.tree.place_bytes, 60u);
  EXPECT_EQ(sum.owned.hits, 15u);
  EXPECT_EQ(sum.owned.dirty_bytes, 40u);
  uint64_t series = 0;
  for (const uint64_t count : sum.per_second) series += count;
  EXPECT_EQ(series, 2'000u);
  EXPECT_EQ(sum.per_second.size(), 3u);
}

TEST(OperationStatsTest, DifferencesOfCountersKeepGauges) {
  TreeStats before, after;
  before.splits = 3;
  before.cache_bytes = 50;
  after.splits = 10;
  after.cache_bytes = 70;
  after.place_bytes = 80;
  EXPECT_EQ(Difference(before, after).splits, 7u);
  EXPECT_EQ(Difference(before, after).cache_bytes, 70u);
  EXPECT_EQ(Difference(before, after).place_bytes, 80u);
  const OwnedStats early = {.hits = 3, .ranges = 1, .hot_bytes = 9, .log_messages = 4};
  const OwnedStats late = {.hits = 5, .ranges = 1, .hot_bytes = 7, .log_messages = 9};
  EXPECT_EQ(Difference(early, late).hits, 2u);
  EXPECT_EQ(Difference(early, late).log_messages, 5u);
  EXPECT_EQ(Difference(early, late).ranges, 1u);
  EXPECT_EQ(Difference(early, late).hot_bytes, 7u);
}

TEST(ReportTest, HasWhatOtherProgramsRelyOn) {
  YcsbResult result;
  for (uint64_t seed : {1, 2, 3}) {
    result.runs.push_back(Sample(seed));
    result.runs.back().end_ns = 1'000 + static_cast<int64_t>(seed) * kSecondNs;
  }
  result.load = {.method = "bulk", .records = 100, .seconds = 0.5};
  Plan plan;
  plan.workload = *LoadWorkload("a");
  plan.distribution.name = "zipfian";
  const nlohmann::json json = ResultJson(plan, result);
  EXPECT_EQ(json["load"]["throughput"], 200);
  const nlohmann::json& run = json["run"];
  EXPECT_EQ(run["seconds"], 2);  // the median one
  EXPECT_EQ(run["throughput"], 500);
  EXPECT_EQ(json["repeat"]["max"], 1'000);
  for (const char* name : {"read", "update", "insert", "scan", "delete", "rmw"}) {
    const nlohmann::json& operation = run["by_operation"][name];
    for (const char* member : {"count", "errors"}) EXPECT_TRUE(operation.contains(member));
    for (const char* member : {"mean", "p50", "p90", "p99", "p999", "max"}) {
      EXPECT_TRUE(operation["latency_us"][member].is_number()) << name << member;
    }
    for (const char* member : {"mean", "p50", "p99", "max"}) {
      EXPECT_TRUE(operation["round_trips"][member].is_number()) << name << member;
    }
    EXPECT_DOUBLE_EQ(operation["verbs"]["mean"], 2);
    EXPECT_DOUBLE_EQ(operation["bytes_read"]["mean"], 1'024);
    EXPECT_DOUBLE_EQ(operation["bytes_written"]["mean"], 72);
  }
  for (const char* member : {"reads", "writes", "cas", "chains", "bytes_read", "bytes_written"}) {
    EXPECT_TRUE(run["fabric"].contains(member)) << member;
  }
  for (const char* member :
       {"cache_hits", "cache_misses", "cache_bytes", "splits", "merges", "torn_retries",
        "lock_attempts", "lock_failures", "handovers", "combined"}) {
    EXPECT_TRUE(run["tree"].contains(member)) << member;
  }
  for (const char* member : {"commit", "compiler", "kernel", "cpu", "fabric", "device", "theta",
                             "records", "handover", "two_level_versions"}) {
    EXPECT_TRUE(json["config"].contains(member)) << member;
  }
  const std::string table = ResultTable(plan, result);
  EXPECT_NE(table.find("median of 3"), std::string::npos) << table;
  EXPECT_NE(table.find("read: UNAVAILABLE"), std::string::npos) << table;
  EXPECT_NE(table.find("too slow"), std::string::npos) << table;
  EXPECT_EQ(table.find("owned"), std::string::npos) << table;
  EXPECT_FALSE(json["config"].contains("log_bytes"));
  plan.mode = "owned";
  EXPECT_NE(ResultTable(plan, result).find("100.00 % hits"), std::string::npos);
  EXPECT_EQ(ResultJson(plan, result)["config"]["mode"], "owned");
  EXPECT_EQ(ResultJson(plan, result)["config"]["log_bytes"], plan.log_bytes);
  EXPECT_EQ(ResultJson(plan, result)["run"]["owned"]["hits"], 10);  // of the median run
}

}  // namespace
}  // namespace pando::bench
