// Help for people, from the table of commands and the texts of the flags.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "compute/tool/command_table.h"

namespace pando::tool {

// A flag as it was defined.
struct FlagText {
  std::string name;
  std::string default_value;  // "": none that is worth mentioning
  std::string text;
};
struct ToolText {
  std::string version;
  std::vector<FlagText> flags;  // each that a command of the table has
};

// What `pando` is, its commands, the flags of the connection, exit codes.
std::string GeneralHelp(const ToolText& texts);
std::string CommandHelp(const ToolText& texts, const CommandText& command);

// "pando get KEY [--flags]".
std::string Synopsis(const CommandText& command);
// "--tree=NAME", "--watch[=SECONDS]", "--json".
std::string FlagSynopsis(const FlagUse& use);
// CHECKs that it is there: a flag of the table that is not defined is a bug.
const FlagText& TextOfFlag(const ToolText& texts, const std::string& name);

}  // namespace pando::tool
