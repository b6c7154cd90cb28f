// What readers of windows are told where a rule of them is switched off, and are not where it
// holds. Built with PANDO_BROKEN_VARIANTS, as rules_test.
#include <gtest/gtest.h>

#include <vector>

#include "common/base/rule.h"
#include "common/wire/window_scenes.h"

namespace pando {
namespace {

class WithoutRule {
 public:
  explicit WithoutRule(Rule rule) { BreakRule(rule); }
  ~WithoutRule() { BreakRule(Rule::kNone); }
};

NodeLayout Eights() { return TestLayout(8, 8, 0, true); }

TEST(WindowRulesTest, N1) {
  EXPECT_EQ(SpillScene(Eights(), false, true, 1), "");
  WithoutRule n1(Rule::kN1);
  EXPECT_NE(SpillScene(Eights(), false, true, 1), "");
}

TEST(WindowRulesTest, N1Window) {
  WithoutRule n1(Rule::kN1Window);
  EXPECT_NE(SpillScene(Eights(), false, true, 1), "");
}

TEST(WindowRulesTest, N2Nv) {
  EXPECT_EQ(NodeScene(Eights(), false, true, /*split=*/true, 1), "");
  WithoutRule n2(Rule::kN2Nv);
  EXPECT_NE(NodeScene(Eights(), false, true, /*split=*/true, 1), "");
}

TEST(WindowRulesTest, N2Ev) {
  const NodeLayout layout = TestLayout(60, 60, 2048, true);
  ASSERT_GT(layout.lines_per_group(), 1u);
  EXPECT_EQ(UpdateScene(layout, false, true, 1), "");
  WithoutRule n2(Rule::kN2Ev);
  EXPECT_NE(UpdateScene(layout, false, true, 1), "");
}

TEST(WindowRulesTest, N2Near) {
  const NodeLayout layout = Eights();
  Random random(1);
  std::vector<LeafEntry> entries;
  while (entries.size() < layout.slot_count() / 2) {
    entries.push_back({SceneKey(&random, layout), "v"});
  }
  const TestImage image = TestLeaf(layout, TestHeader(), entries);
  const auto not_found = [&] {
    int keys = 0;
    for (const LeafEntry& entry : entries) {
      LeafMatch match;
      keys += ClassifyWindow(image.data(), layout, TestExpectation(entry.key), false, &match,
                             WindowPart::kNear) == WindowVerdict::kAbsent;
    }
    return keys;
  };
  EXPECT_EQ(not_found(), 0);
  WithoutRule n2(Rule::kN2Near);
  EXPECT_GT(not_found(), 0);
}

TEST(WindowRulesTest, N6) {
  EXPECT_EQ(SpillScene(Eights(), false, true, 1), "");
  WithoutRule n6(Rule::kN6);
  EXPECT_NE(SpillScene(Eights(), false, true, 1), "");
}

// The flag's lines would have come after the key's.
TEST(WindowRulesTest, N7) {
  const auto first_problem = [] {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      for (size_t landed = 1; landed < 4; ++landed) {
        std::string problem = NodeScene(Eights(), false, true, /*split=*/false, seed, {landed});
        if (!problem.empty()) return problem;
      }
    }
    return std::string();
  };
  EXPECT_EQ(first_problem(), "");
  WithoutRule n7(Rule::kN7);
  EXPECT_NE(first_problem(), "");
}

// The flag's line would have come before that of the key.
TEST(WindowRulesTest, N7Drop) {
  const auto first_problem = [] {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      std::string problem = DropScene(Eights(), false, true, seed);
      if (!problem.empty()) return problem;
    }
    return std::string();
  };
  EXPECT_EQ(first_problem(), "");
  WithoutRule n7(Rule::kN7Drop);
  EXPECT_NE(first_problem(), "");
}

TEST(WindowRulesTest, N8Flags) {
  const auto first_problem = [] {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      std::string problem = NarrowWriteScene(Eights(), false, seed);
      if (!problem.empty()) return problem;
    }
    return std::string();
  };
  EXPECT_EQ(first_problem(), "");
  WithoutRule n8(Rule::kN8Flags);
  EXPECT_EQ(first_problem(), "a flag is missing");
}

}  // namespace
}  // namespace pando
