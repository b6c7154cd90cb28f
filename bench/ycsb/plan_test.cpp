#include "bench/ycsb/plan.h"

#include <nlohmann/json.hpp>
#include <string>

#include "bench/ycsb/tree_data.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

Plan ValidPlan() {
  Plan plan;
  plan.workload = *LoadWorkload("a");
  plan.distribution.name.clear();
  plan.folder = "/tmp/run";
  plan.registry = "/tmp/run/registry";
  return plan;
}

TEST(PlanTest, FillsInWhatFollows) {
  Plan plan = ValidPlan();
  ASSERT_TRUE(CheckPlan(&plan).ok());
  EXPECT_EQ(plan.keys.key_bytes, 8u);
  EXPECT_EQ(plan.distribution.name, "zipfian");
  plan = ValidPlan();
  plan.keys.kind = "user";
  plan.distribution.name = "uniform";
  ASSERT_TRUE(CheckPlan(&plan).ok());
  EXPECT_EQ(plan.keys.key_bytes, 23u);
  EXPECT_EQ(plan.distribution.name, "uniform");
}

TEST(PlanTest, TravelsWhole) {
  Plan plan = ValidPlan();
  ASSERT_TRUE(CheckPlan(&plan).ok());
  plan.techniques = Techniques::FgPlus();
  plan.rate = 12.5;
  plan.history = true;
  plan.rdma = {"mlx5_0", 2, 3, 1024, 106, 3, 1};
  const absl::StatusOr<Plan> back = PlanFromJson(nlohmann::json::parse(PlanToJson(plan).dump()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(PlanToJson(*back), PlanToJson(plan));
  EXPECT_FALSE(back->techniques.handover);
  EXPECT_EQ(
      RdmaFlags(back->rdma),
      (std::vector<std::string>{"--device=mlx5_0", "--port=2", "--gid_index=3", "--mtu=1024",
                                "--traffic_class=106", "--service_level=3", "--pkey_index=1"}));
  EXPECT_TRUE(RdmaFlags({}).empty());
  EXPECT_EQ(back->workload.share(OperationKind::kUpdate), 0.5);
  EXPECT_FALSE(PlanFromJson(nlohmann::json::object()).ok());
  EXPECT_FALSE(PlanFromJson(nlohmann::json::array()).ok());
}

TEST(PlanTest, RefusesNonsense) {
  const auto refused = [](auto change, const std::string& named) {
    Plan plan = ValidPlan();
    change(plan);
    const absl::Status status = CheckPlan(&plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << named;
    EXPECT_NE(status.message().find(named), std::string::npos) << status;
  };
  refused([](Plan& p) { p.memory_servers = 0; }, "memory_servers");
  refused([](Plan& p) { p.compute_servers = -1; }, "compute_servers");
  refused([](Plan& p) { p.threads = 100'000; }, "threads");
  refused([](Plan& p) { p.coroutines = 0; }, "coroutines");
  refused([](Plan& p) { p.records = 0; }, "records");
  refused([](Plan& p) { p.value_bytes = 65'537; }, "value_bytes");
  refused([](Plan& p) { p.operations = 0; }, "when to stop");
  refused([](Plan& p) { p.duration_s = -1; }, "duration");
  refused([](Plan& p) { p.rate = 0.0 / 0.0; }, "rate");
  refused([](Plan& p) { p.repeat = 0; }, "repeat");
  refused([](Plan& p) { p.load = "some"; }, "--load");
  refused([](Plan& p) { p.tree = ""; }, "--tree");
  refused([](Plan& p) { p.mode = "mine"; }, "--mode");
  refused([](Plan& p) { p.tree = "\xff"; }, "--tree is not UTF-8");
  refused([](Plan& p) { p.registry = "/tmp/\xff"; }, "--registry is not UTF-8");
  refused([](Plan& p) { p.secret_file = "\xff"; }, "--secret_file is not UTF-8");
  refused([](Plan& p) { p.keys.words_file = "\xff"; }, "--words_file is not UTF-8");
  refused([](Plan& p) { p.workload.name = "\xff"; }, "--workload is not UTF-8");
  refused([](Plan& p) { p.hot_bytes = 0; }, "hot_bytes");
  refused([](Plan& p) { p.log_bytes = 1024; }, "log_bytes");
  refused([](Plan& p) { p.service_threads = 0; }, "service_threads");
  refused([](Plan& p) { p.flush_threads = 17; }, "flush_threads");
  refused([](Plan& p) { p.ranges_min = 65; }, "ranges_min");
  refused([](Plan& p) { p.dirty_percent = 91; }, "dirty_percent");
  refused([](Plan& p) { p.lend_after_ms = -2; }, "lend_after_ms");
  refused([](Plan& p) { p.route = "mine", p.mode = "owned"; }, "--route");
  refused([](Plan& p) { p.route = "owner"; }, "--mode=owned");
  refused([](Plan& p) { p.distribution = {.name = "zipfian", .theta = 1}; }, "theta");
  refused([](Plan& p) { p.keys.key_bytes = 1; }, "key_bytes");
  refused([](Plan& p) { p.history = true, p.value_bytes = 3; }, "value_bytes");
}

// 64^4 values, for 9 writers of 100,000 each.
TEST(PlanTest, AHistoryNeedsValuesForItsWarmUpToo) {
  Plan plan = ValidPlan();
  plan.history = true;
  plan.value_bytes = 4;
  plan.records = plan.operations = 100'000;
  EXPECT_TRUE(CheckPlan(&plan).ok());
  plan.warmup_s = 1;
  EXPECT_NE(CheckPlan(&plan).message().find("use a larger --value_bytes"), std::string::npos);
  plan.value_bytes = 8;
  EXPECT_TRUE(CheckPlan(&plan).ok());
}

TEST(PlanTest, ConfigSpeaksTheLanguageOfTheFlags) {
  Plan plan = ValidPlan();
  ASSERT_TRUE(CheckPlan(&plan).ok());
  const nlohmann::json config = ConfigJson(plan);
  EXPECT_EQ(config["workload"], "a");
  EXPECT_EQ(config["distribution"], "zipfian");
  EXPECT_EQ(config["keys"], "integer");
  EXPECT_EQ(config["handover"], true);
  EXPECT_FALSE(config.contains("folder"));
  EXPECT_FALSE(config.contains("registry"));  // an own one is gone after the run
  for (const char* key : {"compute_servers_all", "compute_server_first", "metrics_address"}) {
    EXPECT_FALSE(config.contains(key)) << key;  // only where it was asked for
  }
  plan.compute_servers_all = 3;
  plan.metrics_address = "9101";
  ASSERT_TRUE(CheckPlan(&plan).ok());
  EXPECT_EQ(ConfigJson(plan)["compute_servers_all"], 3);
  EXPECT_EQ(ConfigJson(plan)["metrics_address"], "9101");
}

TEST(PlanTest, AShareIsAPartOfTheThreadsOfAll) {
  Plan plan = ValidPlan();
  plan.compute_servers = 2;
  plan.threads = 4;
  EXPECT_EQ(plan.total_threads(), 8);
  plan.compute_servers_all = 5;
  plan.compute_server_first = 3;
  EXPECT_TRUE(CheckPlan(&plan).ok());
  EXPECT_EQ(plan.total_threads(), 20);
  plan.compute_server_first = 4;  // the second one would be a sixth
  EXPECT_FALSE(CheckPlan(&plan).ok());
}

TEST(PlanTest, MemoryGrowsWithTheData) {
  Plan plan = ValidPlan();
  ASSERT_TRUE(CheckPlan(&plan).ok());
  const uint64_t before = plan.region_bytes();
  plan.records *= 10;
  EXPECT_GT(plan.region_bytes(), before);
  plan.memory_bytes = 1 << 20;
  EXPECT_EQ(plan.region_bytes(), 1u << 20);
}

TEST(SuccessorTest, IsTheNextKeyThatFits) {
  EXPECT_EQ(Successor("ab", 3), std::string("ab\0", 3));
  EXPECT_EQ(Successor("abc", 3), "abd");
  EXPECT_EQ(Successor("ab\xff", 3), "ac");
  EXPECT_EQ(Successor("\xff\xff\xff", 3), "");
}

}  // namespace
}  // namespace pando::bench
