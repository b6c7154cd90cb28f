// --plot as a user gives it: the program with real servers, Debian's Python, and a Python without
// matplotlib.
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

bool MatplotlibIsThere() {
  return std::system("/usr/bin/python3 -c 'import matplotlib' 2>/dev/null") == 0;
}

class PlotTest : public ::testing::Test {
 protected:
  std::string File(const std::string& name) const { return folder_.path() / name; }
  std::string Text(const std::string& name) const {
    std::ifstream stream(File(name), std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  // Whether it ended well.
  bool Run(const std::vector<std::string>& flags) {
    Process::Options options;
    options.arguments = {ProgramFolder() / "pando-ycsb", "--noprogress", "--records=2000",
                         "--operations=2000"};
    options.arguments.insert(options.arguments.end(), flags.begin(), flags.end());
    options.log_file = File("log");
    Process process = *Process::Spawn(options);
    EXPECT_TRUE(process.WaitFor(120'000)) << Text("log");
    return process.ended_well();
  }

  const TemporaryFolder folder_ = *TemporaryFolder::Create();
};

TEST_F(PlotTest, ThereIsAPictureOfTheRun) {
  if (!MatplotlibIsThere()) GTEST_SKIP() << "python3-matplotlib is not installed";
  ASSERT_TRUE(Run({"--workload=a", absl::StrCat("--plot=", File("new/pictures"))})) << Text("log");
  EXPECT_EQ(Text("new/pictures/run.png").substr(1, 3), "PNG");
  const auto run = nlohmann::json::parse(Text("new/pictures/run.json"), nullptr, false);
  ASSERT_TRUE(run.is_object());
  EXPECT_GT(run["throughput"], 0);
  EXPECT_NE(run["title"].get<std::string>().find("workload a"), std::string::npos);
  uint64_t operations = 0;
  for (const auto& count : run["per_second"]) operations += count.get<uint64_t>();
  EXPECT_EQ(operations, 2000u);
  ASSERT_EQ(run["latency_above"].size(), 2u);
  for (const char* kind : {"read", "update"}) {
    const auto& points = run["latency_above"][kind];
    ASSERT_GT(points.size(), 1u) << kind;
    for (size_t i = 1; i < points.size(); ++i) {
      EXPECT_GT(points[i][0], points[i - 1][0]) << kind;
      EXPECT_LT(points[i][1], points[i - 1][1]) << kind;
      EXPECT_GT(points[i][1], 0) << kind;
    }
  }
}

TEST_F(PlotTest, WithoutMatplotlibNothingIsRunAndItSaysWhatIsMissing) {
  std::ofstream(File("matplotlib.py")) << "raise ImportError\n";
  setenv("PYTHONPATH", folder_.path().c_str(), /*overwrite=*/1);
  EXPECT_FALSE(Run({"--workload=c", absl::StrCat("--plot=", File("p"))}));
  unsetenv("PYTHONPATH");
  EXPECT_EQ(Text("log"),
            "pando-ycsb: --plot needs matplotlib for /usr/bin/python3 (Debian: "
            "python3-matplotlib)\n");
}

TEST_F(PlotTest, AFolderThatCannotBeMadeAndNoRunAreRefused) {
  std::ofstream(File("file")) << "no folder\n";
  EXPECT_FALSE(Run({absl::StrCat("--plot=", File("file/p"))}));
  EXPECT_NE(Text("log").find("cannot write"), std::string::npos) << Text("log");
  std::filesystem::remove(File("log"));
  EXPECT_FALSE(Run({"--load_only", absl::StrCat("--plot=", File("p"))}));
  EXPECT_NE(Text("log").find("--load_only has none"), std::string::npos) << Text("log");
}

}  // namespace
}  // namespace pando::bench
