#include "bench/ycsb/core_workload.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// With YCSB's defaults, as of a file.
Properties OfFile(const Properties& said) {
  Properties properties = CoreWorkloadDefaults();
  for (const auto& [name, value] : said) properties.insert_or_assign(name, value);
  return properties;
}

bool NoFlag(const char*) { return false; }

TEST(CoreWorkloadTest, APropertyFileIsAPlan) {
  Plan plan;
  const auto unknown = ApplyCoreWorkload(OfFile({{"workload", "site.ycsb.workloads.CoreWorkload"},
                                                 {"recordcount", "5000"},
                                                 {"operationcount", "700"},
                                                 {"fieldlength", "25"},
                                                 {"readproportion", "0"},
                                                 {"updateproportion", "3"},
                                                 {"scanproportion", "1"},
                                                 {"requestdistribution", "zipfian"},
                                                 {"minscanlength", "2"},
                                                 {"maxscanlength", "9"},
                                                 {"scanlengthdistribution", "zipfian"},
                                                 {"insertorder", "ordered"},
                                                 {"zeropadding", "12"},
                                                 {"threadcount", "16"},
                                                 {"target", "2500"},
                                                 {"maxexecutiontime", "20"},
                                                 {"table", "usertable"},
                                                 {"readallfields", "true"},
                                                 {"redis.host", "here"}}),
                                         NoFlag, &plan);
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_THAT(*unknown, ElementsAre("redis.host"));
  EXPECT_EQ(plan.records, 5'000u);
  EXPECT_EQ(plan.operations, 700u);
  EXPECT_EQ(plan.value_bytes, 250u);
  EXPECT_EQ(plan.workload.share(OperationKind::kUpdate), 0.75);
  EXPECT_EQ(plan.workload.share(OperationKind::kScan), 0.25);
  EXPECT_EQ(plan.workload.share(OperationKind::kRead), 0);
  EXPECT_EQ(plan.distribution.name, "zipfian");
  EXPECT_EQ(plan.workload.scan_length_min, 2u);
  EXPECT_EQ(plan.workload.scan_length_max, 9u);
  EXPECT_EQ(plan.workload.scan_lengths, "zipfian");
  EXPECT_EQ(plan.keys.kind, "user_ordered");
  EXPECT_EQ(plan.keys.zero_padding, 12u);
  EXPECT_EQ(plan.coroutines, 16);
  EXPECT_EQ(plan.rate, 2'500);
  EXPECT_EQ(plan.duration_s, 20);
  EXPECT_EQ(plan.tree, "usertable");
}

TEST(CoreWorkloadTest, ARecordHasTenFieldsOfAHundredBytes) {
  Plan plan;
  ASSERT_TRUE(ApplyCoreWorkload(OfFile({{"recordcount", "5000"}}), NoFlag, &plan).ok());
  EXPECT_EQ(plan.value_bytes, 1'000u);
  ASSERT_TRUE(
      ApplyCoreWorkload(OfFile({{"fieldcount", "1"}, {"fieldlength", "65535"}}), NoFlag, &plan)
          .ok());
  EXPECT_EQ(plan.value_bytes, 65'535u);
}

TEST(CoreWorkloadTest, FlagsCountMore) {
  Plan plan;
  plan.records = 3;
  plan.value_bytes = 8;
  plan.keys.kind = "integer";
  plan.distribution.name = "latest";
  const auto is_given = [](const char* flag) {
    const std::string_view name = flag;
    return name == "records" || name == "value_bytes" || name == "keys" || name == "distribution";
  };
  ASSERT_TRUE(
      ApplyCoreWorkload(OfFile({{"recordcount", "5000"}, {"operationcount", "9"}}), is_given, &plan)
          .ok());
  EXPECT_EQ(plan.records, 3u);
  EXPECT_EQ(plan.value_bytes, 8u);
  EXPECT_EQ(plan.keys.kind, "integer");
  EXPECT_EQ(plan.distribution.name, "latest");
  EXPECT_EQ(plan.operations, 9u);
  EXPECT_EQ(plan.workload.share(OperationKind::kRead), 0.95);
}

// A file as YCSB's repository has them: a header of comments with blanks up to one column, the
// class under its old name or its new one, values with blanks behind them, lines that end as on
// Windows.
std::string FileInYcsbsForm(const char* package, const char* mix) {
  const std::string blanks(120, ' ');
  return absl::StrCat(
      "# Anybody may use and copy this file.", blanks, "\n#", blanks,
      "\n# There is no warranty: \"as it is\", 100/0.", blanks, "\n\n\n",
      "# A workload with recordcount=7 in a comment\n#   Records: 1 KB\n#          \n\n",
      "recordcount=1000\noperationcount=1000\nworkload=", package,
      ".workloads.CoreWorkload\n\nreadallfields=true\n\n", mix, "\n\n\n");
}

TEST(CoreWorkloadTest, FilesInTheFormOfYcsbsOwnArePlans) {
  struct Mix {
    const char* text;
    double read, update, insert, scan, rmw;
    const char* distribution;
  };
  const Mix mixes[] = {
      {"readproportion=0.5\nupdateproportion=0.5\nscanproportion=0\ninsertproportion=0\n\n"
       "requestdistribution=zipfian\n",
       0.5, 0.5, 0, 0, 0, "zipfian"},
      {"readproportion=1\nupdateproportion=0\nscanproportion=0\ninsertproportion=0\n"
       "requestdistribution=uniform  ",
       1, 0, 0, 0, 0, "uniform"},
      {"readproportion=0.95 \nupdateproportion=0\nscanproportion=0\ninsertproportion=0.05\t\n\n"
       "requestdistribution=latest \n",
       0.95, 0, 0.05, 0, 0, "latest"},
      {"readproportion=0\nupdateproportion=0\nscanproportion=0.95\ninsertproportion=0.05\n\n"
       "requestdistribution=zipfian\n\nmaxscanlength=100\n\nscanlengthdistribution=uniform ",
       0, 0, 0.05, 0.95, 0, "zipfian"},
      {"readproportion=0.5\nupdateproportion=0\nscanproportion=0\ninsertproportion=0\n"
       "readmodifywriteproportion=0.5\n\nrequestdistribution=zipfian",
       0.5, 0, 0, 0, 0.5, "zipfian"},
  };
  for (const Mix& mix : mixes) {
    for (const char* package : {"com.yahoo.ycsb", "site.ycsb"}) {
      for (const char* end : {"\n", "\r\n"}) {
        const std::string text =
            absl::StrReplaceAll(FileInYcsbsForm(package, mix.text), {{"\n", end}});
        const auto said = ParseProperties(text);
        ASSERT_TRUE(said.ok()) << said.status();
        Plan plan;
        const auto unknown = ApplyCoreWorkload(OfFile(*said), NoFlag, &plan);
        ASSERT_TRUE(unknown.ok()) << unknown.status() << text;
        EXPECT_THAT(*unknown, IsEmpty());
        EXPECT_EQ(plan.records, 1'000u);
        EXPECT_EQ(plan.operations, 1'000u);
        EXPECT_EQ(plan.value_bytes, 1'000u);
        EXPECT_EQ(plan.keys.kind, "user");
        EXPECT_EQ(plan.distribution.name, mix.distribution);
        EXPECT_EQ(plan.workload.scan_lengths, "uniform");
        EXPECT_DOUBLE_EQ(plan.workload.share(OperationKind::kRead), mix.read);
        EXPECT_DOUBLE_EQ(plan.workload.share(OperationKind::kUpdate), mix.update);
        EXPECT_DOUBLE_EQ(plan.workload.share(OperationKind::kInsert), mix.insert);
        EXPECT_DOUBLE_EQ(plan.workload.share(OperationKind::kScan), mix.scan);
        EXPECT_DOUBLE_EQ(plan.workload.share(OperationKind::kRmw), mix.rmw);
      }
    }
  }
}

// Over a workload of our own only what is said changes.
TEST(CoreWorkloadTest, SinglePropertiesChangeNoMore) {
  Plan plan;
  plan.workload = *LoadWorkload("e");
  const Plan before = plan;
  const auto unknown = ApplyCoreWorkload({{"recordcount", "10"}}, NoFlag, &plan);
  ASSERT_TRUE(unknown.ok());
  EXPECT_THAT(*unknown, IsEmpty());
  EXPECT_EQ(plan.records, 10u);
  EXPECT_EQ(plan.value_bytes, before.value_bytes);
  EXPECT_EQ(plan.workload.shares, before.workload.shares);
  EXPECT_EQ(plan.workload.scan_length_max, before.workload.scan_length_max);
  EXPECT_EQ(plan.keys.kind, before.keys.kind);
}

TEST(CoreWorkloadTest, WhatCannotBeRunIsRefusedByName) {
  const auto why = [](const Properties& said) {
    Plan plan;
    const auto result = ApplyCoreWorkload(said, NoFlag, &plan);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  EXPECT_THAT(why(OfFile({{"fieldlength", "10000"}})), HasSubstr("add -p fieldlength=6553"));
  EXPECT_THAT(why({{"recordcount", "-1"}}), HasSubstr("recordcount"));
  EXPECT_THAT(why({{"recordcount", "many"}}), HasSubstr("recordcount is 'many'"));
  EXPECT_THAT(why({{"readproportion", "nan"}}), HasSubstr("readproportion"));
  EXPECT_THAT(why({{"readproportion", "0"}}), HasSubstr("proportion"));
  EXPECT_THAT(why({{"scanlengthdistribution", "normal"}}), HasSubstr("'normal'"));
  EXPECT_THAT(why({{"minscanlength", "7"}, {"maxscanlength", "6"}}), HasSubstr("7 to 6"));
  EXPECT_THAT(why({{"insertorder", "random"}}), HasSubstr("insertorder"));
  EXPECT_THAT(why({{"fieldlengthdistribution", "zipfian"}}), HasSubstr("fieldlengthdistribution"));
  EXPECT_THAT(why({{"workload", "site.ycsb.workloads.TimeSeriesWorkload"}}), HasSubstr("workload"));
  EXPECT_THAT(why({{"dataintegrity", "true"}}), HasSubstr("--history"));
}

}  // namespace
}  // namespace pando::bench
