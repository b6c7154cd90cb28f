// Manual pages, from the same texts as --help: pando(1), and one of each command.
// Thread safety: pure functions, but for what is written.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "compute/tool/command_table.h"
#include "compute/tool/help_text.h"

namespace pando::tool {

std::string ManPage(const ToolText& texts);                              // pando.1
std::string ManPage(const ToolText& texts, const CommandText& command);  // pando-COMMAND.1
// All of them, into a directory that is there. InvalidArgument: they cannot be written.
absl::Status WriteManPages(const ToolText& texts, const std::string& directory);

}  // namespace pando::tool
