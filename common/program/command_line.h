// What the programs share: command-line flags (gflags) with clear errors, and the log (glog). Only
// for files named main.cpp, and on their main thread; the library parses no flags and initialises
// no log.
//
// Exit codes: 0 after --help and --version, or 74 where what they print cannot be written; 2 for
// anything wrong with the command line.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pando {

struct ProgramInfo {
  std::string name;              // "pando-memory"
  std::string summary;           // what it does and how it is called; the flags are listed below it
  std::string source;            // where its flags are defined: __FILE__ of main.cpp
  std::string shared_source;     // of flags that programs share (rdma_flags.h); "": it has none
  bool takes_arguments = false;  // words that are no flags
  bool logs_info = true;         // else warnings and errors only
  // What --help prints behind these arguments; not given: the summary, and all flags.
  std::function<std::string(const std::vector<std::string>& arguments)> help = nullptr;
  // Flags that may be given without a value, and the one that they have then.
  std::map<std::string, std::string> bare_values = {};
};

// One of the program's own flags, or of those that it shares.
struct DefinedFlag {
  std::string name, type, value, default_value, text;
  bool given = false;  // on the command line
};
std::vector<DefinedFlag> DefinedFlags(const ProgramInfo& program);

// Sets the flags given as --name=value, --name value, --boolean or --noboolean, also between the
// arguments, and returns those; "--" ends the flags. The log goes to standard error. Exits as said
// above. Before anything else it puts /dev/null where a standard descriptor is closed.
std::vector<std::string> ParseCommandLine(int argc, char** argv, const ProgramInfo& program);

// Prints "NAME: MESSAGE" and how to get help, and exits with 2.
[[noreturn]] void ExitWithUsageError(const ProgramInfo& program, std::string_view message);

// Where a registry is looked for: `flag` if not empty, else $PANDO_REGISTRY, else
// $XDG_RUNTIME_DIR/pando, else "".
std::string RegistryFromFlag(const std::string& flag);

}  // namespace pando
