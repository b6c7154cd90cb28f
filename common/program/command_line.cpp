#include "common/program/command_line.h"

#include <fcntl.h>
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <sysexits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace pando {
namespace {

[[noreturn]] void PrintAndExit(const ProgramInfo& program, const std::string& text) {
  const bool printed =
      fwrite(text.data(), 1, text.size(), stdout) == text.size() && fflush(stdout) == 0;
  // A reader that is gone has read as much as it wanted.
  if (printed || errno == EPIPE) std::exit(0);
  std::cerr << program.name << ": writing the output: " << strerror(errno) << "\n";
  std::exit(EX_IOERR);
}

std::string HelpText(const ProgramInfo& program, const std::vector<std::string>& arguments) {
  if (program.help != nullptr) return program.help(arguments);
  std::string text = program.summary + "\n\nFlags:\n";
  for (const DefinedFlag& flag : DefinedFlags(program)) {
    text += "  --" + flag.name + " (" + flag.type;
    if (!flag.default_value.empty()) text += ", default " + flag.default_value;
    text += ")\n      " + flag.text + "\n";
  }
  return text + "  --help, --version\n";
}

// "name" or "noname" of a boolean flag; sets `value` for the latter.
bool FindFlag(std::string* name, std::string* value, gflags::CommandLineFlagInfo* info) {
  if (gflags::GetCommandLineFlagInfo(name->c_str(), info)) return true;
  if (!name->starts_with("no")) return false;
  const std::string positive = name->substr(2);
  if (!gflags::GetCommandLineFlagInfo(positive.c_str(), info) || info->type != "bool") return false;
  *name = positive;
  *value = "false";
  return true;
}

// Where a standard descriptor is closed, the next file that is opened would get it, and what is
// printed go there: into a memory server's region. As before, using it fails.
void FillStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    // The lowest one that is closed, which is this.
    (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

std::string BehindDashes(const ProgramInfo& program, const std::string& word) {
  if (!program.takes_arguments) return "";
  return "; if '" + word + "' is an argument, put -- before it";
}

}  // namespace

std::vector<DefinedFlag> DefinedFlags(const ProgramInfo& program) {
  std::vector<gflags::CommandLineFlagInfo> all;
  gflags::GetAllFlags(&all);
  std::vector<DefinedFlag> own;
  for (const gflags::CommandLineFlagInfo& flag : all) {
    if (flag.filename != program.source && flag.filename != program.shared_source) continue;
    own.push_back({flag.name, flag.type, flag.current_value, flag.default_value, flag.description,
                   !flag.is_default});
  }
  return own;
}

void ExitWithUsageError(const ProgramInfo& program, std::string_view message) {
  std::cerr << program.name << ": " << message << "\nTry '" << program.name << " --help'.\n";
  std::exit(2);
}

std::vector<std::string> ParseCommandLine(int argc, char** argv, const ProgramInfo& program) {
  FillStandardDescriptors();
  FLAGS_logtostderr = true;
  if (!program.logs_info) FLAGS_minloglevel = google::WARNING;
  google::InitGoogleLogging(argv[0]);
  std::vector<std::string> arguments;
  bool flags_ended = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (flags_ended || word.size() < 2 || word[0] != '-') {
      arguments.push_back(word);
      continue;
    }
    if (word == "--") {
      flags_ended = true;
      continue;
    }
    const size_t equals = word.find('=');
    std::string name = word.substr(word[1] == '-' ? 2 : 1);
    name = name.substr(0, name.find('='));
    std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (name == "help" || name == "h") PrintAndExit(program, HelpText(program, arguments));
    if (name == "version") PrintAndExit(program, program.name + " " + PANDO_VERSION + "\n");
    gflags::CommandLineFlagInfo info;
    if (!FindFlag(&name, &value, &info)) {
      ExitWithUsageError(program, "there is no flag --" + name + BehindDashes(program, word));
    }
    if (equals == std::string::npos && value.empty()) {
      const auto bare = program.bare_values.find(name);
      if (info.type == "bool") {
        value = "true";
      } else if (bare != program.bare_values.end()) {
        value = bare->second;
      } else if (i + 1 < argc) {
        value = argv[++i];
      } else {
        ExitWithUsageError(program, "--" + name + " needs a value");
      }
    }
    if (gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) {
      ExitWithUsageError(
          program, "--" + name + " takes a value of type " + info.type + ", not '" + value + "'");
    }
  }
  if (!arguments.empty() && !program.takes_arguments) {
    ExitWithUsageError(program, "'" + arguments.front() + "' is not a flag");
  }
  return arguments;
}

std::string RegistryFromFlag(const std::string& flag) {
  if (!flag.empty()) return flag;
  if (const char* registry = std::getenv("PANDO_REGISTRY"); registry != nullptr && *registry != 0) {
    return registry;
  }
  if (const char* run = std::getenv("XDG_RUNTIME_DIR"); run != nullptr && *run != 0) {
    return std::string(run) + "/pando";
  }
  return "";
}

}  // namespace pando
