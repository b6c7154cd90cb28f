#include "bench/figures/points.h"

#include <cmath>
#include <fstream>
#include <string>

#include "bench/figures/page.h"
#include "bench/host/paths.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

std::vector<Point> SomePoints() {
  return {{"uniform, Sherman", 528, "throughput_mops", 22},
          {"uniform, Sherman", "peak", "throughput_mops", 40.123456789},
          {"uniform, FG+", 528, "p99_us", 7}};
}

std::vector<Note> SomePublished() {
  return {{"scalability", "uniform, Sherman", "throughput_mops", 528, 44, "the paper"}};
}

TEST(Points, JsonHasSixMembersAndNullWhereNothingWasPublished) {
  std::vector<Point> points = SomePoints();
  AttachPublished("scalability", SomePublished(), &points);
  const Json expected = {{{"series", "uniform, Sherman"},
                          {"x", 528},
                          {"metric", "throughput_mops"},
                          {"published", 44.0},
                          {"simulated", 22.0},
                          {"ratio", 0.5}},
                         {{"series", "uniform, Sherman"},
                          {"x", "peak"},
                          {"metric", "throughput_mops"},
                          {"published", nullptr},
                          {"simulated", 40.1235},
                          {"ratio", nullptr}},
                         {{"series", "uniform, FG+"},
                          {"x", 528},
                          {"metric", "p99_us"},
                          {"published", nullptr},
                          {"simulated", 7.0},
                          {"ratio", nullptr}}};
  EXPECT_EQ(PointsToJson(points), expected);
  const auto read = PointsFromJson(PointsToJson(points));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(PointsToJson(*read), expected);
}

TEST(Points, WhatWasPublishedOnlyIsComparedWithNothing) {
  std::vector<Point> points = {{.series = "a peer",
                                .x = "read",
                                .metric = "throughput_mops",
                                .simulated = std::nan(""),
                                .published = 49.7}};
  EXPECT_FALSE(points[0].far_off());
  const Json json = PointsToJson(points);
  EXPECT_TRUE(json[0].at("simulated").is_null());
  EXPECT_TRUE(json[0].at("ratio").is_null());
  const auto read = PointsFromJson(json);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(PointsToJson(*read), json);
  EXPECT_NE(PointsToCsv(points).find("throughput_mops,49.7,,\n"), std::string::npos);
}

TEST(Points, JsonOfAnotherFormIsRefused) {
  EXPECT_EQ(PointsFromJson(Json::parse(R"([{"series": "a"}])")).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(Points, CsvQuotesWhatHasCommas) {
  std::vector<Point> points = SomePoints();
  AttachPublished("scalability", SomePublished(), &points);
  EXPECT_EQ(PointsToCsv(points),
            "series,x,metric,published,simulated,ratio\n"
            "\"uniform, Sherman\",528,throughput_mops,44,22,0.5\n"
            "\"uniform, Sherman\",peak,throughput_mops,,40.1235,\n"
            "\"uniform, FG+\",528,p99_us,,7,\n");
}

TEST(Points, OnlyTheSameFigureSeriesPlaceAndMetricIsCompared) {
  std::vector<Point> points = SomePoints();
  AttachPublished("breakdown", SomePublished(), &points);
  for (const Point& point : points) EXPECT_FALSE(point.published.has_value());
}

TEST(Points, FarOffIsMoreThanAFactorOfOneAndAHalfEitherWay) {
  Point point = {.published = 2.0};
  for (const auto& [simulated, far_off] :
       {std::pair(1.0, true), {1.4, false}, {2.9, false}, {3.1, true}}) {
    point.simulated = simulated;
    EXPECT_EQ(point.far_off(), far_off) << simulated;
  }
}

TEST(Points, FilesWithWrongEntriesAreRefused) {
  const auto folder = TemporaryFolder::Create();
  ASSERT_TRUE(folder.ok());
  const std::filesystem::path file = folder->path() / "published.json";
  EXPECT_TRUE(absl::IsNotFound(LoadPublished(file).status()));
  for (const char* text : {"{", "{}", R"([{"figure": "locks"}])",
                           R"([{"figure": "locks", "series": "a", "x": 1, "metric": "m",
                                "value": "many", "source": "s"}])"}) {
    ASSERT_TRUE(WriteFile(file, text).ok());
    EXPECT_TRUE(absl::IsInvalidArgument(LoadPublished(file).status())) << text;
  }
}

TEST(Page, LabelsWhatIsSimulatedAndExplainsWhatIsFarOff) {
  FigureOnPage figure;
  figure.run.figure = "scalability";
  figure.run.title = "Clients";
  figure.run.x_name = "clients";
  figure.run.profile = "some-nic";
  figure.run.commit = "1234abc";
  figure.points = SomePoints();
  AttachPublished("scalability", SomePublished(), &figure.points);
  const std::string unexplained = MakePage({figure}, SomePublished(), {});
  EXPECT_NE(unexplained.find("simulated, profile some-nic, commit 1234abc"), std::string::npos);
  EXPECT_NE(unexplained.find("| uniform, Sherman | 528 | throughput_mops | 44 | 22 | 0.5 | **not "
                             "explained yet** |"),
            std::string::npos)
      << unexplained;
  EXPECT_NE(unexplained.find("* the paper\n"), std::string::npos);
  const std::vector<Note> explanations = {
      {"breakdown", "", "", nullptr, 0, "another figure"},
      {"scalability", "", "throughput_mops", nullptr, 0, "their links are wider"}};
  const std::string explained = MakePage({figure}, SomePublished(), explanations);
  EXPECT_NE(explained.find("| 0.5 | their links are wider |"), std::string::npos) << explained;
}

TEST(Page, ADescriptionOfARunComesBackAsItWas) {
  FigureRun run;
  run.figure = "locks";
  run.records = 7;
  run.quick = true;
  run.remarks = {"cut short"};
  const auto read = FigureRunFromJson(FigureRunToJson(run));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(FigureRunToJson(*read), FigureRunToJson(run));
  EXPECT_EQ(FigureRunFromJson(Json::object()).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace pando::bench
