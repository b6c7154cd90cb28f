#include "compute/tool/command_table.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::tool {
namespace {

using testing::HasSubstr;

const CommandText kCommand = {"paint",
                              "WALL [COLOUR]",
                              "paint",
                              "Paints.",
                              {"coats=N", "dry", "watch[=SECONDS]", "with=brush|roller|hand"},
                              false};

TEST(CommandTableTest, NamesAndFlagsAreUniqueAndSummariesShort) {
  std::set<std::string> names;
  for (const CommandText& command : CommandTexts()) {
    EXPECT_TRUE(names.insert(command.name).second) << command.name;
    EXPECT_LE(command.summary.size(), 80u) << command.name;
    EXPECT_FALSE(command.summary.empty() || command.text.empty()) << command.name;
    EXPECT_EQ(command.summary.find('\n'), std::string::npos) << command.name;
    EXPECT_EQ(FindCommandText(command.name), &command);
    std::set<std::string> flags;
    for (const std::string& flag : FlagsOf(command)) {
      EXPECT_TRUE(flags.insert(ParseFlagUse(flag).name).second) << command.name << " " << flag;
    }
  }
  EXPECT_EQ(FindCommandText("no-such-command"), nullptr);
}

TEST(CommandTableTest, ParsesFlagsAndArguments) {
  const FlagUse plain = ParseFlagUse("tree=NAME"), yes = ParseFlagUse("json"),
                optional = ParseFlagUse("watch[=SECONDS]");
  EXPECT_EQ(plain.name, "tree");
  EXPECT_EQ(plain.value, "NAME");
  EXPECT_FALSE(plain.value_is_optional);
  EXPECT_EQ(yes.name, "json");
  EXPECT_EQ(yes.value, "");
  EXPECT_EQ(optional.name, "watch");
  EXPECT_EQ(optional.value, "SECONDS");
  EXPECT_TRUE(optional.value_is_optional);
  EXPECT_EQ(ParseFlagUse("[no]bulk").name, "bulk");
  EXPECT_TRUE(ParseFlagUse("[no]bulk").is_on && !yes.is_on);
  EXPECT_EQ(CountArguments(kCommand).min, 1u);
  EXPECT_EQ(CountArguments(kCommand).max, 2u);
}

TEST(CommandTableTest, RefusesArgumentsAndFlagsThatMeanNothing) {
  EXPECT_EQ(UsageProblem(kCommand, 1, {}), "");
  EXPECT_EQ(UsageProblem(kCommand, 2, {{"coats", "2"}, {"dry", "true"}, {"watch", "1"}}), "");
  EXPECT_THAT(UsageProblem(kCommand, 0, {}), HasSubstr("paint takes 1 to 2 arguments, not 0"));
  EXPECT_THAT(UsageProblem(kCommand, 3, {}), HasSubstr("not 3"));
  EXPECT_THAT(UsageProblem(kCommand, 1, {{"dry", "true"}, {"tree", "t"}}),
              HasSubstr("--tree means nothing to 'paint'"));
  EXPECT_EQ(UsageProblem(kCommand, 1, {{"with", "roller"}}), "");
  EXPECT_EQ(UsageProblem(kCommand, 1, {{"with", ""}}), "");
  EXPECT_EQ(UsageProblem(kCommand, 1, {{"with", "foot"}}),
            "--with is brush, roller or hand, not 'foot'");
  // Nor those of a connection, where it has none.
  EXPECT_THAT(UsageProblem(kCommand, 1, {{"registry", "d"}}),
              HasSubstr("--registry means nothing"));
  EXPECT_EQ(UsageProblem(*FindCommandText("get"), 1, {{"registry", "d"}, {"tree", "t"}}), "");
}

}  // namespace
}  // namespace pando::tool
