// Each rule of the protocol is there for a reason: switched off, a kept run fails; with the rule
// the same run passes.
//
// broken_rules.json: variant (common/base/rule.h) -> flags of pando-sim, and what goes wrong. A run
// fails with exit status 1, or by one of our own checks (SIGABRT); anything else (a crash, bad
// flags) is not how a broken rule shows.
#include <sys/wait.h>

#include <cstdio>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "bench/sim/broken_rules_json.h"
#include "common/base/rule.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace pando {
namespace {

struct KeptRun {
  std::string variant;
  std::string flags;
  std::string shows;  // part of what the failing run prints
};

void PrintTo(const KeptRun& run, std::ostream* to) { *to << run.variant; }

std::vector<KeptRun> KeptRuns() {
  const nlohmann::json rules = nlohmann::json::parse(std::string_view(kBrokenRulesJson));
  std::vector<KeptRun> runs;
  for (const auto& [variant, run] : rules.items()) {
    runs.push_back(
        {variant, run.at("flags").get<std::string>(), run.at("shows").get<std::string>()});
  }
  return runs;
}

// Several rules have the same run: once is enough for what it does with all rules.
std::vector<KeptRun> DifferentRuns() {
  std::vector<KeptRun> runs;
  std::set<std::string> seen;
  for (const KeptRun& run : KeptRuns()) {
    if (seen.insert(run.flags).second) runs.push_back(run);
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

class KeptRunTest : public testing::TestWithParam<KeptRun> {
 protected:
  static std::string Command() { return std::string(PANDO_SIM_BROKEN) + " " + GetParam().flags; }
};
std::string NameOf(const testing::TestParamInfo<KeptRun>& info) { return info.param.variant; }

class WithTheRules : public KeptRunTest {};
TEST_P(WithTheRules, Passes) {
  std::string output;
  const int status = Execute(Command(), &output);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << Command() << "\n" << output;
}
INSTANTIATE_TEST_SUITE_P(Rules, WithTheRules, testing::ValuesIn(DifferentRuns()), NameOf);

class WithoutTheRule : public KeptRunTest {};
TEST_P(WithoutTheRule, Fails) {
  const std::string command = Command() + " --break=" + GetParam().variant;
  std::string output;
  const int status = Execute(command, &output);
  const bool noticed = WIFEXITED(status) && WEXITSTATUS(status) == 1;
  const bool checked = (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) ||
                       (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGABRT);
  EXPECT_TRUE(noticed || checked) << command << " ends with status " << status << "\n" << output;
  EXPECT_NE(output.find(GetParam().shows), std::string::npos) << output;
}
INSTANTIATE_TEST_SUITE_P(Rules, WithoutTheRule, testing::ValuesIn(KeptRuns()), NameOf);

TEST(BrokenRules, EachVariantHasARunOrATest) {
  std::set<std::string> run_of;
  for (const KeptRun& run : KeptRuns()) {
    EXPECT_NE(RuleByName(run.variant), Rule::kNone) << run.variant << ": no such variant";
    run_of.insert(run.variant);
  }
  for (const RuleVariant& variant : RuleVariants()) {
    EXPECT_NE(run_of.contains(std::string(variant.name)), !variant.test.empty()) << variant.name;
  }
}

// A command line that is wrong is no run that broke, and the one that repeats a run is not.
TEST(BrokenRules, AreNotWhatAWrongCommandLineShows) {
  for (const std::string flags :
       {"--timeout_ms=0", "--tree=300/8", "--tree=8/70000", "--exhaustive_crashes --tree=300/8",
        "--packet_bytes=0", "--combine_max=0", "--node_bytes=100", "--lock_words=0",
        "--history=/nowhere/h", "--read=nan", "--hot_share=nan", "--call_loss=2"}) {
    std::string output;
    const int status = Execute(std::string(PANDO_SIM) + " --operations=10 " + flags, &output);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << flags << "\n" << output;
    EXPECT_EQ(output.find("BROKE"), std::string::npos) << flags << "\n" << output;
  }
  std::string output;
  Execute(std::string(PANDO_SIM) + " --operations=10 --seeds 1:2 --call_loss=1", &output);
  EXPECT_NE(output.find("repeat: pando-sim --operations=10 --call_loss=1 --seed=2\n"),
            std::string::npos)
      << output;
}

// One line each, in columns: for people who look for a rule's run.
TEST(BrokenRules, AreListed) {
  std::string list;
  ASSERT_EQ(Execute(std::string(PANDO_SIM) + " --list_rules", &list), 0) << list;
  size_t at = 0;
  for (const RuleVariant& variant : RuleVariants()) {
    const size_t found = list.find("\t" + std::string(variant.name) + "\t", at);
    ASSERT_NE(found, std::string::npos) << variant.name << "\n" << list;
    at = found;
  }
  for (const KeptRun& run : KeptRuns()) {
    EXPECT_NE(list.find("pando-sim-broken " + run.flags + " --break=" + run.variant + "\n"),
              std::string::npos)
        << run.variant;
  }
}

}  // namespace
}  // namespace pando
