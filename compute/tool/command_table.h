// The commands of `pando`, as texts: which arguments and flags each has, and what it does. The one
// table behind the check of command lines, --help, the manual pages and the shells' completion.
// What a flag does is said where it is defined (main.cpp).
// Thread safety: constant.
//
// Invariants (command_table_test.cpp):
// 1. Names are unique, and so are the flags of a command.
// 2. A summary is one line that fits a terminal beside the name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pando::tool {

struct CommandText {
  std::string name;
  std::string arguments;  // "KEY VALUE"; in brackets what may be left out: "[NAME]"
  std::string summary;    // "print the value of a key"
  // Paragraphs with an empty line between them. Lines that begin with a space stay as they are.
  std::string text;
  // Its own, each as "NAME=VALUE" or, if it is a yes or no, "NAME". VALUE is a word for people:
  // FILE, DIR, or the choices: "tsv|json". "[=VALUE]": the value may be left out. "[no]NAME": a yes
  // unless --noNAME is given.
  std::vector<std::string> flags;
  // It works with memory servers, and has the flags for that, too.
  bool connects = true;
};

const std::vector<CommandText>& CommandTexts();
// Null: there is none of that name.
const CommandText* FindCommandText(std::string_view name);

// Flags of whatever connects, as CommandText::flags.
const std::vector<std::string>& ConnectionFlags();

// All flags of a command: its own, then those of the connection.
std::vector<std::string> FlagsOf(const CommandText& command);

// "tree=NAME" in parts.
struct FlagUse {
  std::string name;
  std::string value;  // "": a yes or no
  bool value_is_optional = false;
  bool is_on = false;  // --noNAME is what says something
};
FlagUse ParseFlagUse(std::string_view text);

// How many arguments "KEY [VALUE]" are.
struct ArgumentCount {
  size_t min = 0, max = 0;
};
ArgumentCount CountArguments(const CommandText& command);

struct GivenFlag {
  std::string name, value;
};
// What is wrong with this use of a command, for people; "": nothing. A flag that has choices has
// one of them.
std::string UsageProblem(const CommandText& command, size_t arguments,
                         const std::vector<GivenFlag>& given);

// "tsv|json" in parts; one part that is no choice: "NAME".
std::vector<std::string> ChoicesOf(const FlagUse& use);

}  // namespace pando::tool
