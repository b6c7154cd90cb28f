// A test that runs pando-ycsb as a user does, in a folder of its own.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "gtest/gtest.h"

namespace pando::bench {

class YcsbTest : public ::testing::Test {
 protected:
  std::string File(const std::string& name) const { return folder_.path() / name; }

  Process Start(const std::string& flags) {
    Process::Options options;
    options.arguments = {ProgramFolder() / "pando-ycsb"};
    for (const absl::string_view flag : absl::StrSplit(flags, ' ', absl::SkipEmpty())) {
      options.arguments.emplace_back(flag);
    }
    options.log_file = File("log");
    return *Process::Spawn(options);
  }
  std::string Log() const { return Tail(folder_.path() / "log", 100'000); }

  // Runs to the end, which must be good, and returns the result.
  nlohmann::json Run(const std::string& flags) {
    Process process = Start(absl::StrCat(flags, " --json=", File("json")));
    EXPECT_TRUE(process.WaitFor(120'000)) << Log();
    EXPECT_TRUE(process.ended_well()) << Log();
    return Json("json");
  }
  // What a file holds.
  nlohmann::json Json(const std::string& name) const {
    std::ifstream stream(File(name));
    return nlohmann::json::parse(stream, nullptr, false);
  }
  // Runs to a bad end, quickly, and returns what was said.
  std::string Fail(const std::string& flags) {
    std::filesystem::remove(File("log"));
    Process process = Start(flags);
    EXPECT_TRUE(process.WaitFor(60'000));
    EXPECT_FALSE(process.ended_well()) << flags;
    return Log();
  }
  // Lines of a file.
  size_t Lines(const std::string& name) const {
    std::ifstream stream(folder_.path() / name);
    return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(stream), {}, '\n'));
  }
  // Processes that still use this test's TMPDIR would keep their sockets there.
  std::vector<std::string> Leftovers() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (entry.is_directory()) names.push_back(entry.path());
    }
    return names;
  }

  void SetUp() override { setenv("TMPDIR", folder_.path().c_str(), 1); }

  const TemporaryFolder folder_ = *TemporaryFolder::Create();
};

}  // namespace pando::bench
