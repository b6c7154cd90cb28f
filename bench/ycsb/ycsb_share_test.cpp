// Shares of a run that several pando-ycsb make together, as on several hosts.
#include <unistd.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/ycsb/ycsb_test_util.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

class YcsbShareTest : public YcsbTest {
 protected:
  void SetUp() override {
    YcsbTest::SetUp();
    servers_.push_back(
        *Process::Spawn({.arguments = {ProgramFolder() / "pando-memory",
                                       absl::StrCat("--registry=", registry_), "--memory=64M"},
                         .log_file = File("memory-log")}));
  }
  void TearDown() override { Stop(&servers_, 10'000); }

  const std::string registry_ = File("registry");
  std::vector<Process> servers_;
};

TEST_F(YcsbShareTest, SharesAddUpToOneRun) {
  const std::string flags =
      absl::StrCat("--registry=", registry_, " --all_compute_servers=3 --workload=d ",
                   "--records=2000 --operations=3000");
  const nlohmann::json loaded = Run(absl::StrCat(flags, " --load_only"));
  EXPECT_EQ(loaded["load"]["records"], 2'000);
  EXPECT_FALSE(loaded.contains("run"));

  const time_t start_s = time(nullptr) + 10;  // both are ready by then
  std::vector<Process> shares;
  for (const int first : {0, 1}) {
    shares.push_back(Start(absl::StrCat(flags, " --load=none --compute_servers=", first + 1,
                                        " --first_compute_server=", first, " --start_at=", start_s,
                                        " --histograms=", File(absl::StrCat("share-", first)))));
  }
  uint64_t inserts = 0;
  for (const int first : {0, 1}) {
    ASSERT_TRUE(shares[first].WaitFor(120'000));
    ASSERT_TRUE(shares[first].ended_well()) << Log();
    const nlohmann::json share = Json(absl::StrCat("share-", first));
    EXPECT_EQ(share["format"], 1);
    const nlohmann::json& run = share["run"];
    EXPECT_EQ(run["stopped"], false);
    EXPECT_NEAR(run["start_unix_ns"].get<double>() / 1e9, static_cast<double>(start_s), 0.001);
    uint64_t operations = 0;
    for (const char* kind : {"read", "insert"}) {
      const nlohmann::json& of_kind = run["by_operation"][kind];
      operations += of_kind["count"].get<uint64_t>();
      EXPECT_EQ(of_kind["errors"], 0);
      EXPECT_EQ(of_kind["not_found"], 0);  // each share inserts keys of its own
      uint64_t samples = 0;
      for (const auto& bucket : of_kind["latency_ns"]["buckets"]) {
        samples += bucket[1].get<uint64_t>();
      }
      EXPECT_EQ(samples, of_kind["count"]);
    }
    EXPECT_EQ(operations, 1'000u * (first + 1));
    inserts += run["by_operation"]["insert"]["count"].get<uint64_t>();
  }
  EXPECT_GT(inserts, 50u);
}

TEST_F(YcsbShareTest, WhoIsNotReadyInTimeFails) {
  const std::string flags = absl::StrCat("--registry=", registry_, " --records=1000");
  const time_t now = time(nullptr);
  EXPECT_NE(Fail(absl::StrCat(flags, " --start_at=", now - 5)).find("within a day from now"),
            std::string::npos);
  EXPECT_NE(Fail(absl::StrCat(flags, " --repeat=2 --start_at=", now + 60)).find("no --repeat"),
            std::string::npos);
  std::filesystem::remove(File("log"));
  // It waits for memory servers that come after the start.
  const std::string late = File("late");
  const time_t start_at = time(nullptr) + 5;  // a busy machine starts programs slowly
  Process process =
      Start(absl::StrCat("--registry=", late, " --records=1000 --start_at=", start_at));
  while (time(nullptr) <= start_at) usleep(10'000);
  servers_.push_back(
      *Process::Spawn({.arguments = {ProgramFolder() / "pando-memory",
                                     absl::StrCat("--registry=", late), "--memory=64M"},
                       .log_file = File("late-log")}));
  EXPECT_TRUE(process.WaitFor(60'000));
  EXPECT_FALSE(process.ended_well());
  EXPECT_NE(Log().find("after --start_at: give a later one"), std::string::npos) << Log();
}

TEST_F(YcsbShareTest, SharesThatMakeNoSenseAreRefused) {
  const auto refused = [this](const char* flags, const char* why) {
    EXPECT_NE(Fail(flags).find(why), std::string::npos) << flags;
  };
  refused("--first_compute_server=1", "--first_compute_server is 0 to 0");
  refused("--all_compute_servers=3 --compute_servers=2 --first_compute_server=2",
          "--first_compute_server is 0 to 1");
  refused("--all_compute_servers=3 --load=put", "--load=put");
  refused("--all_compute_servers=3 --history=/dev/null", "--history");
}

}  // namespace
}  // namespace pando::bench
