// The command-line client: pando COMMAND [ARGUMENTS] [--flags].

#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/units.h"
#include "common/program/command_line.h"
#include "common/program/rdma_flags.h"
#include "compute/tool/command_table.h"
#include "compute/tool/commands.h"
#include "compute/tool/completion.h"
#include "compute/tool/exit_code.h"
#include "compute/tool/help_text.h"
#include "compute/tool/input.h"
#include "compute/tool/man_page.h"
#include "pando/version.h"

// Which command has which flag: command_table.cpp.
DEFINE_string(registry, "",
              "where to find the memory servers: a directory, or "
              "memcached://HOST:PORT/CLUSTER; default: $PANDO_REGISTRY, else "
              "$XDG_RUNTIME_DIR/pando");
DEFINE_string(fabric, "shm", "transport of the memory servers: shm or verbs");
DEFINE_string(secret_file, "", "file with the cluster's secret (verbs); default: it has none");
DEFINE_string(tree, "default", "name of the tree");
DEFINE_int32(timeout_ms, 10'000, "how long one operation may take, milliseconds");
DEFINE_int32(key_bytes, 0,
             "longest key, 1 to 255 bytes; 0: as long as the longest that is loaded, or 8");
DEFINE_int32(value_bytes, -1,
             "longest value, 0 to 65536 bytes; -1: as long as the longest that is loaded, or 8");
DEFINE_int32(inline_value_bytes, 0,
             "values of more than so many bytes, 1 to 254, lie outside the leaves, "
             "which costs a get one more round trip; 0: if --value_bytes is above 255, values of "
             "more than 20, else none");
DEFINE_string(
    mode, "",
    "shared (every compute server reads and writes every key) or owned (the owner of a key, one "
    "compute server at a time, keeps it in memory and in a log); default: shared, or as the tree "
    "is");
DEFINE_int32(delete_persistence_ms, 0,
             "owned trees: a deleted entry is gone from its leaf within so many milliseconds (10 "
             "or more); 0: no bound");
DEFINE_bool(narrow_reads, pando::TreeOptions().narrow_reads,
            "leaves are laid out so that a get READs only some of their lines, on networks that "
            "gain by it; older releases cannot open such a tree");
DEFINE_int32(sessions, 0, "sessions that put at the same time; 0: one per CPU, at most 8");
DEFINE_bool(bulk, true, "fill an empty tree in one go; --nobulk puts key by key");
DEFINE_string(from, "", "first key, or the least key above it");
DEFINE_string(to, "", "only keys below this one");
DEFINE_string(prefix, "", "only keys that begin so");
DEFINE_bool(reverse, false, "from the greatest key down");
DEFINE_uint64(limit, 0, "at most this many keys; 0: all");
DEFINE_bool(values, false, "also print values, after a tab");
DEFINE_bool(quiet_tree, false, "no client uses the tree now, so a held lock is a problem");
DEFINE_bool(json, false, "print the result as JSON");
DEFINE_bool(hex, false,
            "keys and values on the command line are hexadecimal digits, two per byte, and so is "
            "the value that get prints");
DEFINE_string(format, "", "format of the input or output");
DEFINE_string(watch, "", "print again every so many seconds (0.1 to 86400), or every 2");
DEFINE_bool(
    resume, false,
    "go on with a file that has the beginning of this dump, and cut off an incomplete block");
DEFINE_string(rate, "0", "at most so many bytes a second, such as 512K or 10M; 0: no limit");
DEFINE_bool(progress, false, "show progress on standard error; default: if that is a terminal");
DEFINE_string(man_directory, "", "write the manual pages into this directory instead");
DEFINE_bool(accept_loss, false,
            "take over keys of compute servers whose logs are lost with a memory server, too: "
            "writes that were acknowledged may be lost, and what these may be is printed");
DEFINE_string(server_dead, "",
              "with --accept_loss: memory servers that are switched off for good, such as 2 or "
              "2,5; nothing is asked of them any more");
DEFINE_bool(litmus, false,
            "only test what an RDMA device's verbs do to one lock and one line at the same moment "
            "(--device, --port, --gid_index, --mtu)");
DEFINE_int32(seconds, 2, "with --litmus: how long each of its five to eight tests takes");

namespace pando {
namespace {

using tool::Arguments;
using tool::Settings;

std::string HelpText(const Arguments& words);

const ProgramInfo kProgram = {.name = "pando",
                              .source = __FILE__,
                              .shared_source = kRdmaFlagsSource,
                              .takes_arguments = true,
                              .logs_info = false,
                              .help = HelpText,
                              .bare_values = {{"watch", "2"}}};

struct Command {
  std::string_view name;
  absl::Status (*run)(const Settings&, const Arguments&);
};
absl::Status Help(const Settings& settings, const Arguments& arguments);
absl::Status Completion(const Settings& settings, const Arguments& arguments);

// One of each name in command_table.cpp.
constexpr std::array<Command, 21> kCommands = {{
    {"load", tool::Load},     {"get", tool::Get},          {"put", tool::Put},
    {"delete", tool::Delete}, {"erase", tool::EraseRange}, {"scan", tool::Scan},
    {"dump", tool::Dump},     {"restore", tool::Restore},  {"count", tool::Count},
    {"create", tool::Create}, {"drop", tool::Drop},        {"flush", tool::Flush},
    {"ranges", tool::Ranges}, {"members", tool::Members},  {"recover", tool::Recover},
    {"trees", tool::Trees},   {"stats", tool::Stats},      {"check", tool::Check},
    {"doctor", tool::Doctor}, {"completion", Completion},  {"help", Help},
}};

const tool::CommandText& FindCommand(const std::string& name) {
  const tool::CommandText* const command = tool::FindCommandText(name);
  if (command == nullptr) ExitWithUsageError(kProgram, "there is no command '" + name + "'");
  return *command;
}

tool::ToolText TextsOfTool() {
  tool::ToolText texts{.version = PANDO_VERSION_STRING};
  for (const DefinedFlag& flag : DefinedFlags(kProgram)) {
    const bool worth_saying =
        flag.type != "bool" && flag.default_value != "0" && flag.default_value != "-1";
    texts.flags.push_back({flag.name, worth_saying ? flag.default_value : "", flag.text});
  }
  return texts;
}

// Of a command, if the words begin with one; in 'help get', which asks for help itself, of get.
std::string HelpText(const Arguments& words) {
  size_t first = 0;
  if (words.size() > 1 && words.front() == "help") ++first;
  if (words.size() <= first) return tool::GeneralHelp(TextsOfTool());
  return tool::CommandHelp(TextsOfTool(), FindCommand(words[first]));
}

absl::Status Help(const Settings& settings, const Arguments& arguments) {
  if (settings.man_directory.empty()) return tool::Print(HelpText(arguments));
  if (!arguments.empty()) {
    return absl::InvalidArgumentError("--man_directory is for the pages of all commands");
  }
  return tool::WriteManPages(TextsOfTool(), settings.man_directory);
}

absl::Status Completion(const Settings&, const Arguments& arguments) {
  if (arguments[0] == "bash") return tool::Print(tool::BashCompletion());
  if (arguments[0] == "zsh") return tool::Print(tool::ZshCompletion(TextsOfTool()));
  return absl::InvalidArgumentError("shells are bash and zsh, not '" + arguments[0] + "'");
}

const Command& CommandOf(const Arguments& words) {
  if (words.empty()) ExitWithUsageError(kProgram, "which command?");
  const tool::CommandText& text = FindCommand(words.front());
  std::vector<tool::GivenFlag> given;
  for (const DefinedFlag& flag : DefinedFlags(kProgram)) {
    if (flag.given) given.push_back({flag.name, flag.value});
  }
  const std::string problem = tool::UsageProblem(text, words.size() - 1, given);
  if (!problem.empty()) ExitWithUsageError(kProgram, problem);
  const auto command = std::find_if(kCommands.begin(), kCommands.end(),
                                    [&](const Command& c) { return c.name == text.name; });
  PANDO_CHECK(command != kCommands.end()) << "no function runs " << text.name;
  return *command;
}

void CheckRange(const std::string& flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  ExitWithUsageError(kProgram, "--" + flag + " is " + std::to_string(low) + " to " +
                                   std::to_string(high) + ", not " + std::to_string(value));
}

std::string KeyFromFlag(const std::string& flag, const std::string& value) {
  auto key = tool::KeyOf(value, FLAGS_hex);
  if (!key.ok()) {
    ExitWithUsageError(kProgram, "--" + flag + ": " + std::string(key.status().message()));
  }
  return *std::move(key);
}

std::string FormatFromFlags() {
  if (!FLAGS_json) return FLAGS_format;
  if (!FLAGS_format.empty() && FLAGS_format != "json") {
    ExitWithUsageError(kProgram, "--json and --format=" + FLAGS_format + " exclude each other");
  }
  return "json";
}

tool::ShowProgress ProgressFromFlag() {
  if (gflags::GetCommandLineFlagInfoOrDie("progress").is_default) {
    return tool::ShowProgress::kOnTerminal;
  }
  return FLAGS_progress ? tool::ShowProgress::kAlways : tool::ShowProgress::kNever;
}

uint64_t RateFromFlag() {
  const auto rate = ParseBytes(FLAGS_rate);
  if (!rate.ok()) ExitWithUsageError(kProgram, "--rate: " + std::string(rate.status().message()));
  return *rate;
}

std::vector<uint16_t> ServersDeadFromFlag() {
  std::vector<uint16_t> servers;
  for (const absl::string_view text : absl::StrSplit(FLAGS_server_dead, ',', absl::SkipEmpty())) {
    uint32_t id = 0;
    if (!absl::SimpleAtoi(text, &id) || id == 0 || id > UINT16_MAX) {
      ExitWithUsageError(kProgram, "--server_dead is a list of memory servers' ids, not '" +
                                       FLAGS_server_dead + "'");
    }
    servers.push_back(static_cast<uint16_t>(id));
  }
  if (!servers.empty() && !FLAGS_accept_loss) {
    ExitWithUsageError(kProgram, "--server_dead needs --accept_loss");
  }
  return servers;
}

// 0: once.
double WatchSeconds() {
  if (FLAGS_watch.empty()) return 0;
  double seconds = 0;
  if (!absl::SimpleAtod(FLAGS_watch, &seconds) || !(seconds >= 0.1 && seconds <= 86'400)) {
    ExitWithUsageError(kProgram, "--watch is 0.1 to 86400 seconds, not '" + FLAGS_watch + "'");
  }
  return seconds;
}

Settings SettingsFromFlags(const Command& command) {
  CheckRange("timeout_ms", FLAGS_timeout_ms, 1, 24 * 3600 * 1000);
  CheckRange("key_bytes", FLAGS_key_bytes, 0, 255);
  CheckRange("value_bytes", FLAGS_value_bytes, -1, 65'536);
  CheckRange("inline_value_bytes", FLAGS_inline_value_bytes, 0, 254);
  CheckRange("sessions", FLAGS_sessions, 0, 256);
  CheckRange("delete_persistence_ms", FLAGS_delete_persistence_ms, 0, 7 * 24 * 3600 * 1000);
  CheckRange("seconds", FLAGS_seconds, 1, 3600);
  Settings settings;
  const bool connects = FindCommand(std::string(command.name)).connects;
  settings.registry = RegistryFromFlag(FLAGS_registry);
  if (settings.registry.empty() && connects && command.run != tool::Doctor) {
    ExitWithUsageError(kProgram,
                       "where is the registry? Give --registry=DIR or set PANDO_REGISTRY");
  }
  settings.tree = FLAGS_tree;
  settings.timeout_ms = FLAGS_timeout_ms;
  settings.fabric = FLAGS_fabric;
  const RdmaPath path = RdmaPathFromFlags(kProgram);
  settings.rdma = {path.device,        path.port,          path.gid_index, path.mtu_bytes,
                   path.traffic_class, path.service_level, path.pkey_index};
  settings.secret_file = FLAGS_secret_file;
  settings.key_bytes = static_cast<uint32_t>(FLAGS_key_bytes);
  settings.value_bytes_given = FLAGS_value_bytes >= 0;
  if (settings.value_bytes_given) settings.value_bytes = static_cast<uint32_t>(FLAGS_value_bytes);
  settings.inline_value_bytes = static_cast<uint32_t>(FLAGS_inline_value_bytes);
  if (FLAGS_mode == "owned") settings.mode = TreeOptions::Mode::kOwned;
  settings.mode_given = !FLAGS_mode.empty();
  settings.delete_persistence_ms = static_cast<uint32_t>(FLAGS_delete_persistence_ms);
  settings.narrow_reads = FLAGS_narrow_reads;
  settings.narrow_reads_given = !gflags::GetCommandLineFlagInfoOrDie("narrow_reads").is_default;
  settings.sessions = FLAGS_sessions;
  settings.bulk = FLAGS_bulk;
  settings.from = KeyFromFlag("from", FLAGS_from);
  settings.to = KeyFromFlag("to", FLAGS_to);
  settings.from_given = !gflags::GetCommandLineFlagInfoOrDie("from").is_default;
  settings.to_given = !gflags::GetCommandLineFlagInfoOrDie("to").is_default;
  settings.prefix = KeyFromFlag("prefix", FLAGS_prefix);
  settings.reverse = FLAGS_reverse;
  settings.limit = FLAGS_limit;
  settings.values = FLAGS_values;
  settings.tree_given = !gflags::GetCommandLineFlagInfoOrDie("tree").is_default;
  settings.quiet_tree = FLAGS_quiet_tree;
  settings.json = FLAGS_json;
  settings.hex = FLAGS_hex;
  settings.format = FormatFromFlags();
  settings.resume = FLAGS_resume;
  settings.rate = RateFromFlag();
  settings.progress = ProgressFromFlag();
  settings.watch_seconds = WatchSeconds();
  settings.man_directory = FLAGS_man_directory;
  settings.accept_loss = FLAGS_accept_loss;
  settings.servers_dead = ServersDeadFromFlag();
  settings.litmus = FLAGS_litmus;
  settings.litmus_seconds = FLAGS_seconds;
  return settings;
}

// A CHECK that failed, or an exception that nobody caught; what it was has been printed.
void OnAbort(int) {
  constexpr std::string_view kText = "pando: this is a bug in pando; please report it\n";
  const ssize_t ignored = write(STDERR_FILENO, kText.data(), kText.size());
  static_cast<void>(ignored);
  _exit(tool::kBug);
}

// It says which exception it is.
const std::terminate_handler kAbort = std::get_terminate();

// An exception that nobody caught, on whatever thread, the library's too.
[[noreturn]] void OnTerminate() {
  if (std::current_exception() != nullptr && tool::IsShortage()) {
    fprintf(stderr, "pando: %s\n", tool::kShortageText);
    _exit(tool::kUnavailable);
  }
  kAbort();
  std::abort();
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  using namespace pando;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGABRT, OnAbort);
  std::set_terminate(OnTerminate);
  Arguments words = ParseCommandLine(argc, argv, kProgram);
  const Command& command = CommandOf(words);
  const Settings settings = SettingsFromFlags(command);
  words.erase(words.begin());
  absl::Status status = tool::OrShortage([&] { return command.run(settings, words); });
  if (const absl::Status flushed = tool::FlushOutput(); status.ok()) status = flushed;
  if (status.ok() || tool::IsReaderGone(status)) return tool::kDone;
  const std::string code = absl::StatusCodeToString(status.code());
  fprintf(stderr, "pando: %s: %s (%s)\n", std::string(command.name).c_str(),
          std::string(status.message()).c_str(), code.c_str());
  return tool::ExitCodeOf(status.code());
}
