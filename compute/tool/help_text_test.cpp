#include "compute/tool/help_text.h"

#include <sstream>

#include "compute/tool/test_texts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::tool {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

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
      EXPECT_THAT(help, AnyOf(HasSubstr("--" + ParseFlagUse(flag).name),
                              HasSubstr(FlagSynopsis(ParseFlagUse(flag)))))
          << command.name;
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
  EXPECT_EQ(FlagSynopsis(ParseFlagUse("[no]bulk")), "--[no]bulk");
}

}  // namespace
}  // namespace pando::tool
