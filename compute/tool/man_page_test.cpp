#include "compute/tool/man_page.h"

#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/temporary_directory.h"
#include "compute/tool/test_texts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::tool {
namespace {

using testing::HasSubstr;

std::vector<std::string> LinesOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Requests are those that are meant, blocks are closed, and no character of a text is taken for
// one.
void ExpectSound(const std::string& page) {
  const std::set<std::string> known = {".TH", ".SH", ".TP", ".PP", ".RS", ".RE", ".nf", ".fi"};
  int literal = 0;
  for (const std::string& line : LinesOf(page)) {
    ASSERT_FALSE(line.empty() || line.starts_with('\'')) << page;
    if (line.starts_with('.')) {
      EXPECT_EQ(known.count(line.substr(0, line.find(' '))), 1u) << line;
    }
    literal += line == ".nf" ? 1 : line == ".fi" ? -1 : 0;
    EXPECT_TRUE(literal == 0 || literal == 1) << page;
  }
  EXPECT_EQ(literal, 0);
  for (const char* section : {".TH PANDO", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION",
                              ".SH EXIT STATUS", ".SH SEE ALSO"}) {
    EXPECT_THAT(page, HasSubstr(section));
  }
}

TEST(ManPageTest, ThereIsOneOfEachCommandWithEachFlag) {
  const ToolText texts = SomeTexts();
  ExpectSound(ManPage(texts));
  for (const CommandText& command : CommandTexts()) {
    EXPECT_THAT(ManPage(texts), HasSubstr("\\fBpando\\-" + command.name + "\\fR(1)"));
    const std::string page = ManPage(texts, command);
    ExpectSound(page);
    for (const std::string& flag : command.flags) {
      const FlagUse use = ParseFlagUse(flag);
      const std::string name = (use.is_on ? "[no]" : "") + use.name;
      EXPECT_THAT(page, HasSubstr("\\fB\\-\\-" + name + "\\fR")) << command.name;
    }
  }
}

TEST(ManPageTest, EscapesWhatRoffWouldTake) {
  const CommandText command = {"paint",
                               "WALL",
                               "paint a wall",
                               ".starts with a dot\n'quoted' \\t -dash\n  .literal  text\n\nend",
                               {},
                               false};
  const std::string page = ManPage(SomeTexts(), command);
  ExpectSound(page);
  EXPECT_THAT(page, HasSubstr("\n\\&.starts with a dot\n\\(aqquoted\\(aq \\et \\-dash\n"
                              ".RS\n.nf\n\\&.literal  text\n.fi\n.RE\n.PP\nend\n"));
}

TEST(ManPageTest, PagesAreWrittenOrItIsSaid) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(WriteManPages(SomeTexts(), directory.path()).ok());
  EXPECT_TRUE(std::filesystem::exists(directory.path() + "/pando-get.1"));
  EXPECT_TRUE(absl::IsInvalidArgument(WriteManPages(SomeTexts(), directory.path() + "/none")));
}

}  // namespace
}  // namespace pando::tool
