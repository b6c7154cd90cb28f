// For tests: texts of flags, as a program that has all of them would give them.
#pragma once

#include <string>
#include <vector>

#include "compute/tool/help_text.h"

namespace pando::tool {

// Each flag of the table, with a text of its own.
inline ToolText SomeTexts() {
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

}  // namespace pando::tool
