// The command-line client: pando COMMAND [ARGUMENTS] [--flags].

#include <gflags/gflags.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include "common/program/command_line.h"
#include "common/program/rdma_flags.h"
#include "compute/tool/commands.h"
#include "compute/tool/exit_code.h"

DEFINE_string(registry, "",
              "where the memory servers are found: a directory, or "
              "memcached://HOST:PORT/CLUSTER; default: $PANDO_REGISTRY, else "
              "$XDG_RUNTIME_DIR/pando");
DEFINE_string(fabric, "shm", "transport of the memory servers: shm or verbs");
DEFINE_string(secret_file, "", "file with the cluster's secret (verbs); default: it has none");
DEFINE_string(tree, "default", "name of the tree to work on");
DEFINE_int32(timeout_ms, 10'000, "how long one operation may take, milliseconds");
DEFINE_int32(key_bytes, 0,
             "create, load: longest key, 1 to 255 bytes; 0: the file's longest line, or 8");
DEFINE_int32(value_bytes, -1,
             "create, load: longest value, 0 to 255 bytes; -1: what the file needs, or 8");
DEFINE_string(
    mode, "",
    "create, load: shared (every compute server reads and writes every key) or owned (the owner "
    "of a key, one compute server at a time, keeps it in memory and in a log); default: shared, "
    "or as the tree is");
DEFINE_int32(sessions, 0, "load: sessions that put at the same time; 0: one a CPU, at most 8");
DEFINE_bool(bulk, true, "load: fill an empty tree in one go; --nobulk puts key by key");
DEFINE_string(from, "", "scan: first key, or the least key above it");
DEFINE_string(to, "", "scan: only keys below this one");
DEFINE_string(prefix, "", "scan: only keys that begin so");
DEFINE_bool(reverse, false, "scan: from the greatest key down");
DEFINE_uint64(limit, 0, "scan: at most this many keys; 0: all");
DEFINE_bool(values, false, "scan: also print values, after a tab");
DEFINE_bool(quiet_tree, false,
            "check: nobody works on the tree: then a held lock is a problem, too");
DEFINE_bool(json, false, "check, ranges, members: print the result as JSON");
DEFINE_bool(litmus, false,
            "doctor: only test what an RDMA device's verbs do to one lock and one line at the same "
            "moment (--device, --port, --gid_index, --mtu)");
DEFINE_int32(seconds, 2, "doctor --litmus: how long each of its five to eight tests takes");

namespace pando {
namespace {

using tool::Arguments;
using tool::Settings;

const ProgramInfo kProgram = {
    .name = "pando",
    .summary = R"(pando COMMAND [ARGUMENTS] [--registry=DIR] [--tree=NAME] ...

Works on the trees of running memory servers.

  load FILE       put the lines of FILE as keys, line numbers as values; makes the tree if need be
  get KEY         print the value
  put KEY VALUE
  delete KEY
  scan            print keys in order, as bytes (--from, --to, --prefix, --reverse, --limit,
                  --values)
  count           say about how many keys the tree has, and their size ('check' counts them)
  create          make an empty tree (--key_bytes, --value_bytes, --mode)
  drop NAME       remove a tree
  flush           owned trees: bring what ended compute servers have left in logs to the leaves
  ranges          owned trees: whose which keys are (--json)
  members         owned trees: the compute servers that own keys, and their logs (--json)
  trees           list the trees
  stats           print the memory servers' counters
  check           say what is wrong with the tree, or without --tree with any (--quiet-tree, --json)
  doctor          say what is missing on this machine and how to fix it (--fabric=verbs: for RDMA;
                  --litmus: test a device's locks and lines)

Exit codes:
)" + std::string(tool::kExitCodesText),
    .source = __FILE__,
    .shared_source = kRdmaFlagsSource,
    .takes_arguments = true,
    .logs_info = false};

struct Command {
  const char* name;
  size_t arguments;
  absl::Status (*run)(const Settings&, const Arguments&);
};

constexpr std::array<Command, 15> kCommands = {{
    {"load", 1, tool::Load},
    {"get", 1, tool::Get},
    {"put", 2, tool::Put},
    {"delete", 1, tool::Delete},
    {"scan", 0, tool::Scan},
    {"count", 0, tool::Count},
    {"create", 0, tool::Create},
    {"drop", 1, tool::Drop},
    {"flush", 0, tool::Flush},
    {"ranges", 0, tool::Ranges},
    {"members", 0, tool::Members},
    {"trees", 0, tool::Trees},
    {"stats", 0, tool::Stats},
    {"check", 0, tool::Check},
    {"doctor", 0, tool::Doctor},
}};

const Command& FindCommand(const Arguments& words) {
  if (words.empty()) ExitWithUsageError(kProgram, "which command?");
  const auto command = std::find_if(kCommands.begin(), kCommands.end(),
                                    [&](const Command& c) { return c.name == words.front(); });
  if (command == kCommands.end())
    ExitWithUsageError(kProgram, "there is no command '" + words.front() + "'");
  if (words.size() - 1 != command->arguments) {
    ExitWithUsageError(kProgram, words.front() + " takes " + std::to_string(command->arguments) +
                                     " argument(s), not " + std::to_string(words.size() - 1));
  }
  return *command;
}

void CheckRange(const std::string& flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  ExitWithUsageError(kProgram, "--" + flag + " is " + std::to_string(low) + " to " +
                                   std::to_string(high) + ", not " + std::to_string(value));
}

TreeOptions::Mode ModeFromFlag() {
  if (FLAGS_mode == "owned") return TreeOptions::Mode::kOwned;
  if (!FLAGS_mode.empty() && FLAGS_mode != "shared") {
    ExitWithUsageError(kProgram, "--mode is shared or owned, not '" + FLAGS_mode + "'");
  }
  return TreeOptions::Mode::kShared;
}

Settings SettingsFromFlags(const Command& command) {
  CheckRange("timeout_ms", FLAGS_timeout_ms, 1, 24 * 3600 * 1000);
  CheckRange("key_bytes", FLAGS_key_bytes, 0, 255);
  CheckRange("value_bytes", FLAGS_value_bytes, -1, 255);
  CheckRange("sessions", FLAGS_sessions, 0, 256);
  CheckRange("seconds", FLAGS_seconds, 1, 3600);
  Settings settings;
  settings.registry = RegistryFromFlag(FLAGS_registry);
  if (settings.registry.empty() && command.run != tool::Doctor) {
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
  settings.mode = ModeFromFlag();
  settings.mode_given = !FLAGS_mode.empty();
  settings.sessions = FLAGS_sessions;
  settings.bulk = FLAGS_bulk;
  settings.from = FLAGS_from;
  settings.to = FLAGS_to;
  settings.to_given = !gflags::GetCommandLineFlagInfoOrDie("to").is_default;
  settings.prefix = FLAGS_prefix;
  settings.reverse = FLAGS_reverse;
  settings.limit = FLAGS_limit;
  settings.values = FLAGS_values;
  settings.tree_given = !gflags::GetCommandLineFlagInfoOrDie("tree").is_default;
  settings.quiet_tree = FLAGS_quiet_tree;
  settings.json = FLAGS_json;
  settings.litmus = FLAGS_litmus;
  settings.litmus_seconds = FLAGS_seconds;
  return settings;
}

// A CHECK that failed, or an exception that nobody caught; what it was has been printed.
void OnAbort(int) {
  constexpr std::string_view kText = "pando: this is a bug of pando; please report it\n";
  const ssize_t ignored = write(STDERR_FILENO, kText.data(), kText.size());
  static_cast<void>(ignored);
  _exit(tool::kBug);
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  using namespace pando;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGABRT, OnAbort);
  Arguments words = ParseCommandLine(argc, argv, kProgram);
  const Command& command = FindCommand(words);
  const Settings settings = SettingsFromFlags(command);
  words.erase(words.begin());
  absl::Status status = command.run(settings, words);
  if (const absl::Status flushed = tool::FlushOutput(); status.ok()) status = flushed;
  if (status.ok() || tool::IsReaderGone(status)) return tool::kDone;
  const std::string code = absl::StatusCodeToString(status.code());
  fprintf(stderr, "pando: %s: %s (%s)\n", command.name, std::string(status.message()).c_str(),
          code.c_str());
  return tool::ExitCodeOf(status.code());
}
