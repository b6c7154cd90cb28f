#include "bench/workload/workload.h"

#include <array>
#include <filesystem>
#include <fstream>

#include "common/base/temporary_directory.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

// The files that come with Pando, as they lie beside the programs.
TEST(WorkloadTest, ShippedFilesAreYcsbs) {
  const auto expect = [](const char* name, OperationKind kind, double share) {
    const auto workload = LoadWorkload(name);
    ASSERT_TRUE(workload.ok()) << workload.status();
    EXPECT_EQ(workload->name, name);
    EXPECT_DOUBLE_EQ(workload->share(kind), share) << name;
  };
  expect("a", OperationKind::kUpdate, 0.5);
  expect("b", OperationKind::kUpdate, 0.05);
  expect("c", OperationKind::kRead, 1);
  expect("d", OperationKind::kInsert, 0.05);
  expect("e", OperationKind::kScan, 0.95);
  expect("f", OperationKind::kRmw, 0.5);
  expect("load", OperationKind::kInsert, 1);
  expect("update", OperationKind::kUpdate, 1);
  expect("delete", OperationKind::kDelete, 0.05);
  EXPECT_EQ(LoadWorkload("d")->distribution, "latest");
  EXPECT_FALSE(LoadWorkload("load")->preload);
  EXPECT_FALSE(LoadWorkload("c")->writes());
  EXPECT_TRUE(LoadWorkload("e")->writes());
}

// As YCSB's own are named in their folder. Pando's names come first.
TEST(WorkloadTest, AFileInTheCurrentDirectoryIsFound) {
  const TemporaryDirectory folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  std::ofstream("workloada") << "recordcount=1\n";
  std::ofstream("a") << "recordcount=1\n";
  const auto found = ReadWorkloadFile("workloada");
  const auto shipped = ReadWorkloadFile("a");
  const auto directory = ReadWorkloadFile("..");
  std::filesystem::current_path(before);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->text, "recordcount=1\n");
  EXPECT_FALSE(found->is_json());
  ASSERT_TRUE(shipped.ok()) << shipped.status();
  EXPECT_TRUE(shipped->is_json());
  EXPECT_EQ(directory.status().code(), absl::StatusCode::kNotFound);
}

TEST(WorkloadTest, AMissingOneNamesTheOthers) {
  const auto workload = LoadWorkload("z");
  EXPECT_EQ(workload.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(workload.status().message().find("a b c d"), std::string::npos) << workload.status();
  EXPECT_EQ(LoadWorkload("/nowhere/x.json").status().code(), absl::StatusCode::kNotFound);
}

// A directory opens as a file does, a device has no end, and some editors begin a text with a mark.
TEST(WorkloadTest, OnlyWhatCanBeReadIsAWorkload) {
  const TemporaryDirectory folder;
  EXPECT_EQ(ReadWorkloadFile(folder.path()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadWorkloadFile("/dev/zero").status().code(), absl::StatusCode::kInvalidArgument);
  const std::string marked = folder.path() + "/e.json";
  std::ofstream(marked) << "\xEF\xBB\xBF" << ReadWorkloadFile("e")->text;
  const auto file = ReadWorkloadFile(marked);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->is_json());
  const auto workload = ParseWorkload(*file);
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->share(OperationKind::kScan), 0.95);
}

TEST(WorkloadTest, ChoosesByShare) {
  const auto workload = *ParseWorkload(R"({"operations": {"read": 0.7, "scan": 0.2, "rmw": 0.1}})");
  Random random(1);
  std::array<int, kOperationKinds> counts{};
  for (int i = 0; i < 100'000; ++i) ++counts[static_cast<size_t>(workload.Choose(&random))];
  EXPECT_NEAR(counts[static_cast<size_t>(OperationKind::kRead)], 70'000, 800);
  EXPECT_NEAR(counts[static_cast<size_t>(OperationKind::kScan)], 20'000, 700);
  EXPECT_NEAR(counts[static_cast<size_t>(OperationKind::kRmw)], 10'000, 500);
  EXPECT_EQ(counts[static_cast<size_t>(OperationKind::kUpdate)], 0);
}

TEST(WorkloadTest, RefusesWhatItDoesNotUnderstand) {
  for (const char* text :
       {"", "[]", "{}", R"({"operations": {}})", R"({"operations": {"read": 0.5}})",
        R"({"operations": {"read": 1.5, "update": -0.5}})", R"({"operations": {"get": 1}})",
        R"({"operations": {"read": "1"}})", R"({"operations": {"read": 1}, "colour": 1})",
        R"({"operations": {"read": 1}, "scan_length_max": 0})",
        R"({"operations": {"read": 1}, "scan_length_max": -1})",
        R"({"operations": {"read": 1}, "preload": 1})",
        R"({"operations": {"read": 1}, "distribution": 1})"}) {
    EXPECT_EQ(ParseWorkload(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace pando::bench
