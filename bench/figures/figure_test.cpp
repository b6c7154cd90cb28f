#include "bench/figures/figure.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "bench/figures/runner.h"
#include "bench/host/data_files.h"
#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

// Everything as small as it can be.
Grid TinyGrid() {
  Grid grid;
  grid.quick = true;
  grid.records = 3'000;
  grid.memory_servers = grid.compute_servers = 2;
  grid.threads = 2;
  grid.span = {.warmup_operations = 20,
               .warmup_ns = 0,
               .operations = 100,
               .measured_ns = 20 * kMicrosecondNs,
               .events_max = 100'000};
  return grid;
}

std::filesystem::path Data(const char* name) { return *FindDataFile("file", "figures", name); }

std::vector<Figure> AllFigures(const Grid& grid) {
  std::vector<Figure> figures;
  for (const std::string& name : FigureNames()) figures.push_back(*MakeFigure(name, grid));
  return figures;
}

TEST(Figures, AnUnknownNameIsRefusedWithThoseThereAre) {
  const absl::Status status = MakeFigure("nonsense", TinyGrid()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("breakdown"), std::string::npos) << status;
}

TEST(Figures, ComparisonsAreWithEarlierCases) {
  for (const Figure& figure : AllFigures(Grid())) {
    for (size_t i = 0; i < figure.cases.size(); ++i) {
      for (const auto& against : figure.cases[i].against) EXPECT_LT(against.index, i);
    }
  }
}

// A made-up result that has all the values that anything was published about.
CaseResult SomeResult() {
  CaseResult result;
  result.operations = 100;
  result.span_ns = 1'000'000;
  result.latency_ns.Add(2'000);
  for (const int64_t trips : {1, 2, 3, 4}) result.write_trips.Add(trips);
  result.write_bytes.Add(64);
  result.write_retries.Add(1);
  result.read_retries.Add(0);
  return result;
}

TEST(Figures, EverythingPublishedHasItsPoint) {
  const auto published = LoadPublished(Data("published"));
  ASSERT_TRUE(published.ok()) << published.status();
  std::set<const Note*> found;
  for (const Figure& figure : AllFigures(Grid())) {
    const std::vector<Point> points =
        PointsOf(figure, std::vector<CaseResult>(figure.cases.size(), SomeResult()));
    for (const Note& note : *published) {
      for (const Point& point : points) {
        if (note.Matches(figure.name, point)) found.insert(&note);
      }
    }
  }
  for (const Note& note : *published) {
    EXPECT_TRUE(found.contains(&note))
        << note.figure << ": " << note.series << ": " << note.x << ": " << note.metric;
  }
  EXPECT_TRUE(LoadExplanations(Data("explanations")).ok());
}

class RunnerTest : public ::testing::Test {
 protected:
  RunnerTest() : folder_(*TemporaryFolder::Create()) {
    options_.grid = TinyGrid();
    options_.profile = "none";
    options_.out = folder_.path() / "out";
    options_.pictures = false;
    options_.jobs = 2;
  }

  std::string Text(const char* file) {
    std::ifstream in(options_.out / file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

  TemporaryFolder folder_;
  RunnerOptions options_;
};

TEST_F(RunnerTest, EveryFigureHasPointsAndFiles) {
  options_.grid.span.operations = 40;
  // A figure of 64 servers is no tiny one.
  std::vector<Figure> figures = AllFigures(options_.grid);
  std::erase_if(figures.back().cases, [](const FigureCase& one) { return one.x == 64; });
  ASSERT_EQ(figures.back().name, "servers");
  ASSERT_TRUE(CheckWritable(options_.out).ok());
  const absl::Status made = MakeFigures(figures, options_);
  ASSERT_TRUE(made.ok()) << made;
  const std::string page = Text("index.md");
  for (const Figure& figure : figures) {
    const auto json = ReadJson(options_.out / (figure.name + ".json"));
    ASSERT_TRUE(json.ok()) << json.status();
    const auto points = PointsFromJson(*json);
    ASSERT_TRUE(points.ok()) << points.status();
    std::set<std::string> series;
    for (const Point& point : *points) {
      series.insert(point.series);
      if (figure.name == "peers" && point.published.has_value() && !point.ratio().has_value())
        continue;  // published only
      EXPECT_TRUE(std::isfinite(point.simulated)) << figure.name << ": " << point.series;
      if (point.metric == "throughput_mops") {
        EXPECT_GT(point.simulated, 0) << figure.name << ": " << point.series;
      }
    }
    EXPECT_FALSE(series.empty()) << figure.name;
    EXPECT_NE(page.find("## " + figure.name + ": "), std::string::npos);
    EXPECT_FALSE(Text((figure.name + ".csv").c_str()).empty());
  }
  EXPECT_EQ(page.find("failed, the first with"), std::string::npos) << page;
}

TEST_F(RunnerTest, ThereIsAPictureWhereMatplotlibIs) {
  if (std::system("/usr/bin/python3 -c 'import matplotlib' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3-matplotlib is not installed";
  }
  options_.pictures = true;
  ASSERT_TRUE(CheckWritable(options_.out).ok());
  ASSERT_TRUE(MakeFigures({*MakeFigure("internals", options_.grid)}, options_).ok());
  EXPECT_EQ(Text("internals.png").substr(1, 3), "PNG");
  EXPECT_NE(Text("index.md").find("![internals](internals.png)"), std::string::npos);
}

TEST_F(RunnerTest, AFigureThatIsSmallerThanTheGridSaysSo) {
  options_.grid.compute_servers = 3;
  Figure figure = *MakeFigure("deletes", options_.grid);
  figure.cases.resize(1);
  figure.cases[0].snapshot.records = 1'000;
  ASSERT_TRUE(CheckWritable(options_.out).ok());
  ASSERT_TRUE(MakeFigures({figure}, options_).ok());
  const auto run = FigureRunFromJson(*ReadJson(options_.out / "deletes.run.json"));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->records, 1'000u);
  EXPECT_EQ(run->compute_servers, 1);
}

TEST_F(RunnerTest, TheSameSeedGivesTheSameFiles) {
  const std::vector<Figure> figures = {*MakeFigure("locks", options_.grid),
                                       *MakeFigure("internals", options_.grid)};
  ASSERT_TRUE(CheckWritable(options_.out).ok());
  ASSERT_TRUE(MakeFigures(figures, options_).ok());
  const std::string json = Text("internals.json"), csv = Text("locks.csv"), page = Text("index.md");
  ASSERT_FALSE(json.empty() || csv.empty() || page.empty());
  options_.jobs = 1;
  ASSERT_TRUE(MakeFigures(figures, options_).ok());
  EXPECT_EQ(Text("internals.json"), json);
  EXPECT_EQ(Text("locks.csv"), csv);
  EXPECT_EQ(Text("index.md"), page);
}

TEST_F(RunnerTest, OnSharedMemoryCasesAreMeasured) {
  options_.real = {.name = "shm", .seconds = 0.1};
  options_.profile = "";
  Figure figure = *MakeFigure("range", options_.grid);
  figure.cases.erase(figure.cases.begin() + 2, figure.cases.end());
  ASSERT_TRUE(CheckWritable(options_.out).ok());
  const absl::Status made = MakeFigures({figure}, options_);
  ASSERT_TRUE(made.ok()) << made;
  const auto points = PointsFromJson(*ReadJson(options_.out / "range.json"));
  ASSERT_TRUE(points.ok()) << points.status();
  EXPECT_GT(points->front().simulated, 0);
  for (const Point& point : *points) EXPECT_FALSE(point.published.has_value());
  EXPECT_NE(Text("index.md").find("measured on shm, commit"), std::string::npos);
}

TEST_F(RunnerTest, ACaseThatCannotBeRunIsNamed) {
  Figure figure = *MakeFigure("cache", options_.grid);
  std::get<TreeCase>(figure.cases[1].run).distribution.theta = 7;
  std::get<TreeCase>(figure.cases[1].run).distribution.name = "zipfian";
  ASSERT_TRUE(CheckWritable(options_.out).ok());
  const absl::Status made = MakeFigures({figure}, options_);
  EXPECT_TRUE(absl::IsInvalidArgument(made));
  EXPECT_NE(made.message().find("cache: uniform, Sherman: 1.2"), std::string::npos) << made;
}

TEST_F(RunnerTest, AFolderThatCannotBeMadeIsRefused) {
  ASSERT_TRUE(WriteFile(folder_.path() / "file", "").ok());
  const absl::Status status = CheckWritable(folder_.path() / "file" / "out");
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("file/out"), std::string::npos) << status;
}

TEST(Program, RefusesWrongFlagsWithTwoAndUnwritableFoldersWithOne) {
  const TemporaryFolder folder = *TemporaryFolder::Create();
  const auto run = [&folder](std::vector<std::string> flags) {
    flags.insert(flags.begin(), (ProgramFolder() / "pando-figures").string());
    const std::string log = folder.path() / "log";
    auto program = Process::Spawn({.arguments = flags, .log_file = log});
    EXPECT_TRUE(program.ok() && program->WaitFor(60'000));
    return *program->ending() + ": " + Tail(log);
  };
  const std::string out = "--out=" + (folder.path() / "out").string();
  const auto expect = [](const std::string& ending, const char* exit, const char* message) {
    EXPECT_EQ(ending.find(exit), 0u) << ending;
    EXPECT_NE(ending.find(message), std::string::npos) << ending;
  };
  expect(run({"--figure=nonsense", out}), "exited with 2", "no figure 'nonsense'");
  expect(run({"--figure=locks", out, "--fabric=shm"}), "exited with 2", "simulated only");
  expect(run({"--figure=locks", out, "--fabric=nonsense"}), "exited with 2", "--fabric");
  expect(run({"--figure=locks"}), "exited with 2", "--out");
  expect(run({"--figure=locks", out, "--profile=nonsense"}), "exited with 2", "nonsense");
  expect(run({"--figure=locks", out, "--threads=1000"}), "exited with 2", "--threads");
  expect(run({"--figure=locks", "--quick", "--out=/proc/nowhere"}), "exited with 1",
         "/proc/nowhere");
}

}  // namespace
}  // namespace pando::bench
