#include "compute/tool/completion.h"

#include "compute/tool/test_texts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::tool {
namespace {

using testing::HasSubstr;

// What the scripts do is tested in the shells themselves (tool_test shells).
TEST(CompletionTest, ScriptsHaveEachCommandAndFlag) {
  ToolText texts = SomeTexts();
  for (FlagText& flag : texts.flags) flag.text = "it's [one]: two";
  const std::string bash = BashCompletion(), zsh = ZshCompletion(texts);
  for (const CommandText& command : CommandTexts()) {
    EXPECT_THAT(bash, HasSubstr("      " + command.name + ") words='"));
    EXPECT_THAT(zsh, HasSubstr("    " + command.name + ")\n"));
    for (const std::string& flag : FlagsOf(command)) {
      const FlagUse use = ParseFlagUse(flag);
      const std::string name = (use.is_on ? "--no" : "--") + use.name;
      EXPECT_THAT(bash, HasSubstr(name)) << command.name;
      EXPECT_THAT(zsh, HasSubstr("'" + name)) << command.name;
    }
  }
  EXPECT_THAT(zsh, HasSubstr("'--tree=[it'\\''s \\[one\\]\\: two]:tree:'"));
  EXPECT_THAT(zsh, HasSubstr("'--watch=-["));
  EXPECT_THAT(bash, HasSubstr("scan:--format) words='raw tsv hex json' ;;"));
  EXPECT_THAT(bash, HasSubstr("*:--registry) kind='directory' ;;"));
}

}  // namespace
}  // namespace pando::tool
