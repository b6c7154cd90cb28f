// What the tests of owned trees' broken variants (common/base/rule.h) share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "bench/owned/owned_run.h"
#include "bench/owned/owned_stage.h"
#include "common/base/rule.h"

namespace pando {

inline constexpr uint64_t kRuleSeeds = 60;

class OwnedRulesTest : public testing::Test {
 protected:
  ~OwnedRulesTest() override { BreakRule(Rule::kNone); }

  using Play = std::function<std::string(uint64_t seed)>;  // what went wrong

  // Some seed shows it; that one does not where the rule holds.
  static void ExpectShown(Rule rule, const Play& play) {
    for (uint64_t seed = 1; seed <= kRuleSeeds; ++seed) {
      BreakRule(rule);
      const std::string shown = play(seed);
      BreakRule(Rule::kNone);
      if (shown.empty()) continue;
      EXPECT_EQ(play(seed), "") << "with all rules, seed " << seed;
      std::printf("seed %lu: %s\n", seed, shown.substr(0, 160).c_str());
      return;
    }
    FAIL() << "no seed shows it";
  }
  static std::string Run(const OwnedRunOptions& options) { return RunOwners(options).what(); }
};

inline bool Put(OwnedStage* stage, OwnedActor* actor, uint64_t key) {
  return stage->Do(actor, 0, 0,
                   OwnedStage::Make(history::OperationKind::kPut, KeyOf(key), stage->NewValue()));
}
inline bool Get(OwnedStage* stage, OwnedActor* actor, uint64_t key) {
  return stage->Do(actor, 0, 0, OwnedStage::Make(history::OperationKind::kGet, KeyOf(key)));
}

}  // namespace pando
