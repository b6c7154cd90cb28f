// Each rule of the protocol is there for a reason: switched off, a kept run fails; with the rule
// the same run passes.
//
// broken_rules.json: rule -> flags of pando-sim, and what goes wrong. A run fails with exit status
// 1, or by one of our own checks (SIGABRT); anything else (a crash, bad flags) is not how a broken
// rule shows.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "common/base/rule.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace pando {
namespace {

struct KeptRun {
  std::string flags;
  std::string shows;  // part of what the failing run prints
};

std::map<std::string, KeptRun> KeptRuns() {
  std::ifstream file(PANDO_BROKEN_RULES_JSON);
  const nlohmann::json rules = nlohmann::json::parse(file);
  std::map<std::string, KeptRun> runs;
  for (const auto& [rule, run] : rules.items()) {
    runs[rule] = {run.at("flags").get<std::string>(), run.at("shows").get<std::string>()};
  }
  return runs;
}

int Execute(const std::string& command, std::string* output) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return -1;
  char buffer[4096];
  while (const size_t bytes = std::fread(buffer, 1, sizeof(buffer), pipe))
    output->append(buffer, bytes);
  return pclose(pipe);
}

class BrokenRule : public testing::TestWithParam<const char*> {};

TEST_P(BrokenRule, FailsAndPassesWithTheRule) {
  const std::string rule = GetParam();
  ASSERT_NE(RuleByName(rule), Rule::kNone);
  const auto runs = KeptRuns();
  const auto run = runs.find(rule);
  ASSERT_NE(run, runs.end()) << "no kept run";
  const std::string command = std::string(PANDO_SIM_BROKEN) + " " + run->second.flags;

  std::string with_rule;
  const int passes = Execute(command, &with_rule);
  EXPECT_TRUE(WIFEXITED(passes) && WEXITSTATUS(passes) == 0) << command << "\n" << with_rule;

  std::string without;
  const int fails = Execute(command + " --break=" + rule, &without);
  const bool noticed = WIFEXITED(fails) && WEXITSTATUS(fails) == 1;
  const bool checked = (WIFSIGNALED(fails) && WTERMSIG(fails) == SIGABRT) ||
                       (WIFEXITED(fails) && WEXITSTATUS(fails) == 128 + SIGABRT);
  EXPECT_TRUE(noticed || checked) << command << " --break=" << rule << " ends with status " << fails
                                  << "\n"
                                  << without;
  EXPECT_NE(without.find(run->second.shows), std::string::npos) << without;
}

INSTANTIATE_TEST_SUITE_P(Rules, BrokenRule,
                         testing::Values("F1", "F2", "F3", "V1", "V5", "L2", "L4", "L5", "L5_quiet",
                                         "S2", "S3", "U2", "R2", "M2", "M4", "M7", "R3", "R4", "C2",
                                         "C3", "C4", "C5"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace pando
