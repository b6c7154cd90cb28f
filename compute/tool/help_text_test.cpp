#include "compute/tool/help_text.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::tool {
namespace {

using testing::HasSubstr;

// Each flag of the table, with a text of its own.
ToolText SomeTexts() {
  ToolText texts{.version = "1.2"};
  const auto add = [&](const std::vector<std::string>& flags) {
    for (const std::string& flag : flags) {
      const std::string name = ParseFlagUse(flag).name;
      texts.flags.push_back({name, name == "tree" ? "default" : "", "what " + name + " does"});
    }
  };
  for (const CommandText& command : CommandTexts()) add(command.flags);
  add(ConnectionFlags());
  return texts;
}

TEST(HelpTextTest, NamesEachCommandOnce) {
  const std::string help = GeneralHelp(SomeTexts());
  for (const CommandText& command : CommandTexts()) {
    EXPECT_THAT(help, HasSubstr("\n  " + command.name + " ")) << command.name;
    EXPECT_THAT(help, HasSubstr(command.summary));
  }
  EXPECT_THAT(help, HasSubstr("Exit codes:"));
  EXPECT_THAT(help, HasSubstr("--registry=DIR\n      what registry does"));
}

TEST(HelpTextTest, SaysAllOfACommand) {
  const ToolText texts = SomeTexts();
  for (const CommandText& command : CommandTexts()) {
    const std::string help = CommandHelp(texts, command);
    EXPECT_THAT(help, testing::StartsWith("pando " + command.name)) << command.name;
    for (const std::string& flag : FlagsOf(command)) {
      EXPECT_THAT(help, HasSubstr("--" + ParseFlagUse(flag).name)) << command.name;
    }
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
  EXPECT_THAT(CommandHelp(texts, *FindCommandText("get")),
              HasSubstr("--tree=NAME (default default)\n      what tree does\n"));
}

TEST(HelpTextTest, SynopsesOfFlags) {
  EXPECT_EQ(FlagSynopsis(ParseFlagUse("json")), "--json");
  EXPECT_EQ(FlagSynopsis(ParseFlagUse("tree=NAME")), "--tree=NAME");
  EXPECT_EQ(FlagSynopsis(ParseFlagUse("watch[=SECONDS]")), "--watch[=SECONDS]");
}

}  // namespace
}  // namespace pando::tool
