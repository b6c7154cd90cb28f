// pando-ycsb as a user runs it: real memory servers, real processes.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/history/checker.h"
#include "bench/history/history_io.h"
#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "bench/ycsb/ycsb_test_util.h"
#include "common/base/clock.h"
#include "common/base/sanitizer.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

// The first compute server owns the keys, the others ask it; its memory has room for few of them.
TEST_F(YcsbTest, AHistoryOfAnOwnedTreeIsLinearizable) {
  const nlohmann::json result = Run(absl::StrCat(
      "--mode=owned --hot_bytes=64K --log_bytes=256K --memory_servers=2 --compute_servers=3 "
      "--threads=2 --coroutines=4 --workload=delete --records=2000 --distribution=uniform "
      "--operations=20000 --repeat=2 --history=",
      File("history")));
  EXPECT_EQ(result["config"]["mode"], "owned");
  EXPECT_EQ(result["run"]["errors"], 0) << Log();
  const nlohmann::json& owned = result["run"]["owned"];
  for (const char* counter : {"hits", "misses", "log_batches", "flushed"}) {
    EXPECT_GT(owned[counter].get<uint64_t>(), 0u) << counter;
  }
  EXPECT_EQ(owned["ranges"], 1);
  const auto operations = history::ReadHistory(File("history"));
  const auto initial = history::ReadState(File("history.initial"));
  const auto final_state = history::ReadState(File("history.final"));
  ASSERT_TRUE(operations.ok() && initial.ok() && final_state.ok());
  EXPECT_EQ(initial->size(), 2'000u);
  EXPECT_GT(operations->size(), 30'000u);
  const history::CheckResult checked = history::CheckHistory(*operations, &*initial, &*final_state);
  EXPECT_EQ(checked.verdict, history::Verdict::kCorrect);
  EXPECT_EQ(Leftovers(), std::vector<std::string>());
}

// Keys are divided among the compute servers, and hardly anything is asked of another.
TEST_F(YcsbTest, OperationsGoToTheOwner) {
  const nlohmann::json result =
      Run("--mode=owned --route=owner --service_threads=2 --compute_servers=2 --threads=1 "
          "--coroutines=4 --workload=a --records=2000 --distribution=uniform --warmup=2 "
          "--duration=0.5");
  EXPECT_EQ(result["config"]["route"], "owner");
  EXPECT_EQ(result["config"]["service_threads"], 2);
  EXPECT_EQ(result["run"]["errors"], 0) << Log();
  const nlohmann::json& owned = result["run"]["owned"];
  EXPECT_GE(owned["ranges"].get<int>(), 2);
  EXPECT_GT(owned["hits"].get<uint64_t>(), 0u);
  EXPECT_LT(owned["forwarded"].get<double>(), 0.2 * result["run"]["operations"].get<double>());
}

TEST_F(YcsbTest, AHistoryOfSeveralProcessesIsLinearizable) {
  const nlohmann::json result =
      Run(absl::StrCat("--memory_servers=2 --compute_servers=2 --threads=2 --coroutines=4 "
                       "--workload=delete --records=50 --operations=4000 --repeat=2 --history=",
                       File("history")));
  EXPECT_EQ(result["run"]["operations"], 4'000);
  EXPECT_EQ(result["repeat"]["count"], 2);
  EXPECT_EQ(Lines("history"), 8'000u);
  EXPECT_EQ(Lines("history.initial"), 50u);
  const auto operations = history::ReadHistory(File("history"));
  const auto initial = history::ReadState(File("history.initial"));
  const auto final_state = history::ReadState(File("history.final"));
  ASSERT_TRUE(operations.ok() && initial.ok() && final_state.ok());
  const history::CheckResult checked = history::CheckHistory(*operations, &*initial, &*final_state);
  EXPECT_EQ(checked.verdict, history::Verdict::kCorrect);
  EXPECT_EQ(Leftovers(), std::vector<std::string>());
}

// The second run has the seed, the clients and the keys of the first.
TEST_F(YcsbTest, AHistoryOnAnEarlierRunsTreeHasValuesOfItsOwn) {
  const std::string registry = File("registry");
  std::vector<Process> servers;
  servers.push_back(
      *Process::Spawn({.arguments = {ProgramFolder() / "pando-memory",
                                     absl::StrCat("--registry=", registry), "--memory=64M"},
                       .log_file = File("memory-log")}));
  const std::string flags =
      absl::StrCat("--registry=", registry, " --workload=a --records=100 --operations=2000 ",
                   "--value_bytes=4 --history=", File("history"));
  Run(flags);
  Run(absl::StrCat(flags, " --load=none"));
  const auto operations = history::ReadHistory(File("history"));
  const auto initial = history::ReadState(File("history.initial"));
  ASSERT_TRUE(operations.ok() && initial.ok());
  std::set<std::string> values;
  for (const auto& [key, value] : *initial) EXPECT_TRUE(values.insert(value).second);
  for (const history::Operation& o : *operations) {
    if (o.kind == history::OperationKind::kGet) continue;
    EXPECT_TRUE(values.insert(o.value).second) << o.value << " of " << o.key;
  }
  EXPECT_GT(values.size(), 1'000u);
  // Now only some of the 262,144 values of three bytes are left to another.
  const std::string short_values =
      absl::StrCat("--registry=", registry, " --tree=short --workload=a --records=100 ",
                   "--value_bytes=3 --history=", File("history"), " --operations=");
  Run(absl::StrCat(short_values, "20000"));
  const std::string why = Fail(absl::StrCat(short_values, "29000 --load=none"));
  EXPECT_NE(why.find("3 bytes are too few beside those of the tree"), std::string::npos) << why;
  Stop(&servers, 10'000);
}

TEST_F(YcsbTest, CountsAddUp) {
  const nlohmann::json result =
      Run("--in_process --workload=f --records=5000 --operations=20000 --distribution=hotspot");
  const nlohmann::json& run = result["run"];
  EXPECT_EQ(result["load"]["records"], 5'000);
  const uint64_t reads = run["by_operation"]["read"]["count"];
  const uint64_t rmws = run["by_operation"]["rmw"]["count"];
  EXPECT_EQ(reads + rmws, 20'000u);
  EXPECT_NEAR(static_cast<double>(rmws), 10'000, 500);
  uint64_t series = 0;
  for (const auto& count : run["per_second"]) series += count.get<uint64_t>();
  EXPECT_EQ(series, 20'000u);
  EXPECT_EQ(run["errors"], 0);
  EXPECT_GE(run["by_operation"]["read"]["round_trips"]["mean"].get<double>(), 1.0);
}

TEST_F(YcsbTest, LoadFillsAnEmptyTree) {
  const nlohmann::json result =
      Run(absl::StrCat("--workload=load --records=3000 --keys=user --history=", File("history")));
  EXPECT_EQ(result["run"]["by_operation"]["insert"]["count"], 3'000);
  EXPECT_EQ(Lines("history.initial"), 0u);
  EXPECT_EQ(Lines("history.final"), 3'000u);
}

TEST_F(YcsbTest, InsertsGrowTheTreeAndPutsLoadIt) {
  const nlohmann::json result =
      Run(absl::StrCat("--workload=d --records=2000 --operations=4000 --load=put --threads=2 "
                       "--history=",
                       File("history")));
  const size_t inserts = result["run"]["by_operation"]["insert"]["count"];
  EXPECT_GT(inserts, 100u);
  EXPECT_EQ(result["run"]["by_operation"]["insert"]["not_found"], 0);
  EXPECT_EQ(result["run"]["by_operation"]["read"]["not_found"], 0);
  EXPECT_EQ(Lines("history.final"), 2'000 + inserts);
}

TEST_F(YcsbTest, AnOpenLoopKeepsItsRate) {
  const nlohmann::json result =
      Run("--workload=c --records=1000 --rate=2000 --duration=1 --warmup=0.2");
  EXPECT_NEAR(result["run"]["operations"].get<double>(), 2'000, 300);
  EXPECT_NEAR(result["run"]["seconds"].get<double>(), 1, 0.2);
}

// The whole measured part, and no more, is in the counters of the fabric.
TEST_F(YcsbTest, CountersBeginWhereTheWarmUpEnds) {
  if (kSanitized) GTEST_SKIP() << "too slow to look at the clock in time";
  const nlohmann::json run =
      Run("--workload=c --records=1000 --rate=5000 --warmup=1 --duration=0.5")["run"];
  const nlohmann::json& reads = run["by_operation"]["read"];
  const double verbs = reads["verbs"]["mean"].get<double>() * reads["count"].get<double>();
  EXPECT_GT(verbs, 0);
  EXPECT_NEAR(run["fabric"]["reads"].get<double>(), verbs, 0.15 * verbs);
}

// What was loaded before is not counted, nor taken off.
TEST_F(YcsbTest, ProgressCountsTheRunsOperations) {
  Run("--workload=c --records=50000 --rate=1000 --duration=2.5");
  const std::string log = Log();
  EXPECT_NE(log.find("loaded 50000 keys"), std::string::npos) << log;
  EXPECT_NE(log.find(" operations  "), std::string::npos) << log;
  EXPECT_EQ(log.find(" T operations"), std::string::npos) << log;
}

// In the form of those in YCSB's repository, by a path: the records have 1,000 bytes.
TEST_F(YcsbTest, RunsAPropertyFileOfYcsbUnchanged) {
  std::ofstream(File("workloady"))
      << "# Header" << std::string(150, ' ') << "\r\n#" << std::string(150, ' ') << "\r\n\r\n"
      << "#   Mix: 50/50\r\nrecordcount=1000\r\noperationcount=1000\r\n"
         "workload=com.yahoo.ycsb.workloads.CoreWorkload\r\n\r\nreadallfields=true\r\n"
         "readproportion=0.5\r\nupdateproportion=0.5\r\nscanproportion=0\r\ninsertproportion=0\r\n"
         "\r\nrequestdistribution=zipfian \r\n\r\n";
  const nlohmann::json result = Run(absl::StrCat("-P ", File("workloady")));
  EXPECT_EQ(Log().find("without a meaning here"), std::string::npos) << Log();
  EXPECT_EQ(result["config"]["records"], 1'000);
  EXPECT_EQ(result["config"]["value_bytes"], 1'000);
  EXPECT_EQ(result["run"]["operations"], 1'000);
  EXPECT_EQ(result["run"]["errors"], 0);
  EXPECT_GT(result["run"]["by_operation"]["read"]["count"], 400);
  EXPECT_GT(result["run"]["by_operation"]["update"]["count"], 400);
}

TEST_F(YcsbTest, TakesPropertyFilesOfYcsb) {
  std::ofstream(File("workloadx")) << "# Mine\nrecordcount=1000\noperationcount=3000\n"
                                      "workload=site.ycsb.workloads.CoreWorkload\n"
                                      "readproportion=0.5\nscanproportion=0.25\n"
                                      "updateproportion=0\ninsertproportion=0.25\n"
                                      "requestdistribution=zipfian\nmaxscanlength=7\nhistogram=x\n";
  for (const std::string flag : {"--workload=", "-P "}) {
    const nlohmann::json result =
        Run(absl::StrCat(flag, File("workloadx"), " -p fieldlength=20 -p operationcount=2000"));
    EXPECT_NE(Log().find("without a meaning here: histogram"), std::string::npos) << Log();
    EXPECT_EQ(result["config"]["workload"], "workloadx");
    EXPECT_EQ(result["config"]["records"], 1'000);
    EXPECT_EQ(result["config"]["value_bytes"], 200);
    EXPECT_EQ(result["config"]["keys"], "user");
    EXPECT_EQ(result["config"]["distribution"], "zipfian");
    EXPECT_EQ(result["run"]["operations"], 2'000);
    EXPECT_EQ(result["run"]["by_operation"]["update"]["count"], 0);
    EXPECT_GT(result["run"]["by_operation"]["scan"]["count"], 300);
    std::filesystem::remove(File("log"));
  }
  const nlohmann::json whole = Run(absl::StrCat("-P ", File("workloadx")));
  EXPECT_EQ(whole["config"]["value_bytes"], 1'000);
  EXPECT_EQ(whole["run"]["operations"], 3'000);
  EXPECT_EQ(whole["run"]["errors"], 0);
  EXPECT_NE(
      Fail(absl::StrCat("-P ", File("workloadx"), " -p fieldlength=7000")).find("length=6553"),
      std::string::npos);
  EXPECT_NE(Fail(absl::StrCat("-P ", File("workloadx"), " --workload=a")).find("one of them"),
            std::string::npos);
  EXPECT_NE(Fail("-p recordcount").find("NAME=VALUE"), std::string::npos);
  EXPECT_NE(Fail("-P").find("-P FILE"), std::string::npos);
  EXPECT_NE(Fail(absl::StrCat("-P ", File("none"))).find("none"), std::string::npos);
}

TEST_F(YcsbTest, CtrlCShowsWhatWasMeasured) {
  Process process = Start(absl::StrCat(
      "--compute_servers=2 --records=1000 --duration=600 --repeat=3 --json=", File("json"),
      " --histograms=", File("histograms")));
  while (Log().find("/s\n") == std::string::npos) usleep(10'000);  // of the run
  process.Signal(SIGINT);
  EXPECT_TRUE(process.WaitFor(10'000));
  EXPECT_EQ(*process.ending(), "exited with 130") << Log();
  EXPECT_NE(Log().find("stopped by a signal"), std::string::npos) << Log();
  const nlohmann::json result = Json("json");
  EXPECT_GT(result["run"]["operations"].get<uint64_t>(), 0u);
  EXPECT_LT(result["run"]["seconds"].get<double>(), 60);
  EXPECT_EQ(result["run"]["errors"], 0);
  EXPECT_EQ(result["repeat"]["count"], 1);
  EXPECT_EQ(Json("histograms")["run"]["stopped"], true);
  EXPECT_EQ(Leftovers(), std::vector<std::string>());
}

TEST_F(YcsbTest, CtrlCLeavesNothingBehind) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Process process = Start("--compute_servers=2 --memory_servers=2 --records=1000 --duration=60");
    while (Log().find("run") == std::string::npos) usleep(10'000);
    process.Signal(signal);
    EXPECT_TRUE(process.WaitFor(10'000));
    EXPECT_EQ(*process.ending(), absl::StrCat("exited with ", 128 + signal)) << Log();
    EXPECT_EQ(Leftovers(), std::vector<std::string>());
    std::filesystem::remove(File("log"));
  }
}

TEST_F(YcsbTest, BadFlagsAreClear) {
  EXPECT_NE(Fail("--workload=z").find("no workload 'z'; there are: a b c"), std::string::npos);
  EXPECT_NE(Fail("--theta=2 --distribution=zipfian").find("theta is 2"), std::string::npos);
  EXPECT_NE(Fail("--distribution=bell").find("unknown distribution"), std::string::npos);
  EXPECT_NE(Fail("--preset=fast").find("--preset is"), std::string::npos);
  EXPECT_NE(Fail("--colour=red").find("colour"), std::string::npos);
  EXPECT_NE(Fail("--memory=lots").find("'lots' is not a size"), std::string::npos);
  EXPECT_NE(Fail("--json=/nowhere/x").find("cannot write /nowhere/x"), std::string::npos);
  EXPECT_NE(Fail("--plan_file=/tmp").find("/tmp cannot be read"), std::string::npos) << Log();
  EXPECT_NE(Fail("--fabric=pigeon").find("unknown fabric 'pigeon'"), std::string::npos);
  EXPECT_NE(Fail("--memory=1M --records=1000000").find("RESOURCE_EXHAUSTED"), std::string::npos);
}

// With YCSB's defaults it would run, and measure something else than what was meant.
TEST_F(YcsbTest, ATextWithoutAPropertyOfYcsbsIsNoWorkload) {
  std::ofstream(File("empty"));
  std::ofstream(File("numbers")) << "1\n2\n3\n";
  for (const std::string name : {"empty", "numbers"}) {
    Process process = Start(absl::StrCat("--records=1000 --operations=1000 --workload=", File(name),
                                         " -p recordcount=1000"));
    EXPECT_TRUE(process.WaitFor(60'000));
    EXPECT_EQ(*process.ending(), "exited with 2") << name;
    EXPECT_NE(Log().find(absl::StrCat(name, " is no workload")), std::string::npos) << Log();
  }
  // As one may set what others do not.
  std::ofstream(File("workloadx")) << "recordcount=1000\noperationcount=1000\n";
  Run(absl::StrCat("-P ", File("workloadx"), " -P ", File("numbers")));
}

// The results in files are there.
TEST_F(YcsbTest, ATableThatIsLostIsNoSuccess) {
  Process process =
      *Process::Spawn({.arguments = {ProgramFolder() / "pando-ycsb", "--records=1000",
                                     "--operations=1000", absl::StrCat("--json=", File("json"))},
                       .log_file = "/dev/full"});
  EXPECT_TRUE(process.WaitFor(60'000));
  EXPECT_EQ(*process.ending(), "exited with 1");
  EXPECT_EQ(Json("json")["run"]["operations"], 1'000);
}

// Names of files and trees may be any bytes, those in JSON may not.
TEST_F(YcsbTest, NamesThatAreNotUtf8AreRefused) {
  const std::string odd = File("\xff");
  const std::string flags = "--records=1000 --operations=1000 ";
  EXPECT_NE(Fail(flags + "--tree=\xff").find("--tree is not UTF-8"), std::string::npos) << Log();
  EXPECT_NE(Fail(flags + "--history=" + odd).find("--history"), std::string::npos) << Log();
  std::filesystem::create_directory(odd);
  setenv("TMPDIR", odd.c_str(), 1);
  EXPECT_NE(Fail(flags).find("TMPDIR is not UTF-8"), std::string::npos) << Log();
}

TEST_F(YcsbTest, AMemoryServerThatDoesNotStartIsNotWaitedFor) {
  const int64_t start_ns = RealClock().NowNs();
  for (const char* const flags : {"--memory=64K", "--memory=64K --in_process"}) {
    EXPECT_NE(Fail(flags).find("a region of 64.0 KiB is too small"), std::string::npos) << flags;
  }
  // The wait for a server to be announced takes 20 seconds.
  EXPECT_LT(RealClock().NowNs() - start_ns, 10 * kSecondNs);
}

TEST_F(YcsbTest, JoinsARunningCluster) {
  const std::string registry = File("registry");
  std::vector<Process> servers;
  servers.push_back(
      *Process::Spawn({.arguments = {ProgramFolder() / "pando-memory",
                                     absl::StrCat("--registry=", registry), "--memory=64M"},
                       .log_file = File("memory-log")}));
  const std::string flags =
      absl::StrCat("--registry=", registry, " --workload=c --records=1000 --operations=1000");
  EXPECT_EQ(Run(flags)["run"]["operations"], 1'000);
  EXPECT_NE(Fail(flags).find("--load=none"), std::string::npos);  // the records are there
  EXPECT_EQ(Run(absl::StrCat(flags, " --load=none"))["run"]["by_operation"]["read"]["not_found"],
            0);
  EXPECT_EQ(Run(absl::StrCat(flags, " --drop"))["load"]["records"], 1'000);
  EXPECT_FALSE(servers[0].HasEnded());  // it is not ours to stop
  Stop(&servers, 10'000);
}

// Sorted and unsorted, beside keys that are there: those stay, or get the newer values.
TEST_F(YcsbTest, LoadsIntoTreesThatHaveKeys) {
  const std::string registry = File("registry");
  std::vector<Process> servers;
  servers.push_back(
      *Process::Spawn({.arguments = {ProgramFolder() / "pando-memory",
                                     absl::StrCat("--registry=", registry), "--memory=64M"},
                       .log_file = File("memory-log")}));
  for (const std::string mode : {"shared", "owned"}) {
    const std::string flags =
        absl::StrCat("--registry=", registry, " --mode=", mode, " --tree=", mode,
                     " --compute_servers=2 --workload=c --operations=1000 --records=");
    Run(absl::StrCat(flags, "1000 --load_only"));
    EXPECT_NE(Log().find("loaded 1000 keys (100 %)"), std::string::npos) << Log();
    // Keys 0 to 1999 of a random order, then in ascending order.
    for (const std::string keys : {"integer", "ordered"}) {
      const nlohmann::json result =
          Run(absl::StrCat(flags, "2000 --load=put --keys=", keys, " --history=", File("history")));
      EXPECT_NE(Log().find("loaded 2000 keys (100 %)"), std::string::npos) << Log();
      EXPECT_EQ(result["load"]["records"], 2'000);
      EXPECT_EQ(result["run"]["by_operation"]["read"]["not_found"], 0);
      EXPECT_GE(Lines("history.initial"), 2'000u);
    }
    EXPECT_EQ(Lines("history.initial"), 4'000u) << "other keys, beside those of before";
  }
  Stop(&servers, 10'000);
}

}  // namespace
}  // namespace pando::bench
