// Completion of command lines in shells, from the table of commands: scripts that a shell sources.
// They start nothing and ask no server.
// Thread safety: pure functions.
#pragma once

#include <string>

#include "compute/tool/help_text.h"

namespace pando::tool {

// For bash: the function _pando. Needs no other script.
std::string BashCompletion();
// For zsh: a file _pando of a directory in $fpath.
std::string ZshCompletion(const ToolText& texts);

}  // namespace pando::tool
