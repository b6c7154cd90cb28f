#include "compute/tool/help_text.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "compute/tool/exit_code.h"

namespace pando::tool {
namespace {

constexpr size_t kHelpColumns = 100;

// One paragraph or line, with line breaks between words; each line begins with `indent`.
std::string Wrapped(const std::string& paragraph, const std::string& indent) {
  if (paragraph.starts_with(' ')) return indent + paragraph + "\n";
  std::istringstream words(paragraph);
  std::string text, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > kHelpColumns) {
      text += indent + line + "\n";
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  return text + indent + line + "\n";
}

std::string WrappedText(const std::string& text, const std::string& indent) {
  std::istringstream lines(text);
  std::string wrapped;
  for (std::string line; std::getline(lines, line);) {
    wrapped += line.empty() ? "\n" : Wrapped(line, indent);
  }
  return wrapped;
}

std::string FlagHelp(const ToolText& texts, const std::string& flag) {
  const FlagUse use = ParseFlagUse(flag);
  const FlagText& text = TextOfFlag(texts, use.name);
  std::string help = "  " + FlagSynopsis(use);
  if (!text.default_value.empty()) absl::StrAppend(&help, " (default ", text.default_value, ")");
  return help + "\n" + Wrapped(text.text, "      ");
}

}  // namespace

std::string Synopsis(const CommandText& command) {
  return absl::StrCat("pando ", command.name, command.arguments.empty() ? "" : " ",
                      command.arguments, FlagsOf(command).empty() ? "" : " [--flags]");
}

std::string FlagSynopsis(const FlagUse& use) {
  if (use.value.empty()) return absl::StrCat(use.is_on ? "--[no]" : "--", use.name);
  if (use.value_is_optional) return absl::StrCat("--", use.name, "[=", use.value, "]");
  return absl::StrCat("--", use.name, "=", use.value);
}

const FlagText& TextOfFlag(const ToolText& texts, const std::string& name) {
  const auto found = std::find_if(texts.flags.begin(), texts.flags.end(),
                                  [&](const FlagText& flag) { return flag.name == name; });
  PANDO_CHECK(found != texts.flags.end()) << "no flag is called " << name;
  return *found;
}

std::string GeneralHelp(const ToolText& texts) {
  std::string help =
      "pando COMMAND [ARGUMENTS] [--registry=DIR] [--tree=NAME] ...\n\n"
      "Works on the trees of running memory servers. 'pando help COMMAND' says more of a command,\n"
      "and which flags it has.\n\n";
  size_t width = 0;
  for (const CommandText& command : CommandTexts()) {
    width = std::max(width, command.name.size() + 1 + command.arguments.size());
  }
  for (const CommandText& command : CommandTexts()) {
    std::string name = absl::StrCat(command.name, " ", command.arguments);
    name.resize(width, ' ');
    absl::StrAppend(&help, "  ", name, "  ", command.summary, "\n");
  }
  absl::StrAppend(&help,
                  "\nFlags are --NAME=VALUE, --NAME VALUE, --YES or --noYES, anywhere; '--' ends "
                  "them.\n\nFlags of the connection:\n");
  for (const std::string& flag : ConnectionFlags()) help += FlagHelp(texts, flag);
  help += "  --help, --version\n\nExit codes:\n";
  for (const auto& [code, text] : kExitCodeTexts) {
    std::string lines = Wrapped(text, "      ");
    const std::string number = std::to_string(code);
    lines.replace(2, number.size(), number);
    help += lines;
  }
  return help;
}

std::string CommandHelp(const ToolText& texts, const CommandText& command) {
  std::string help = absl::StrCat(Synopsis(command), "\n\n", WrappedText(command.text, ""), "\n");
  if (!command.flags.empty()) help += "Flags:\n";
  for (const std::string& flag : command.flags) help += FlagHelp(texts, flag);
  if (!command.connects) return help;
  std::string line = "Flags of the connection ('pando help'):";
  for (const std::string& flag : ConnectionFlags()) {
    absl::StrAppend(&line, " --", ParseFlagUse(flag).name);
  }
  return absl::StrCat(help, command.flags.empty() ? "" : "\n", Wrapped(line, ""));
}

}  // namespace pando::tool
