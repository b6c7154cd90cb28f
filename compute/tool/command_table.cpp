#include "compute/tool/command_table.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace pando::tool {
namespace {

constexpr char kJsonBytes[] =
    "In JSON a key is \"key\" if it is UTF-8, else, as base64, \"key_base64\"; so are values.";

std::vector<CommandText> MakeCommandTexts() {
  return {
      {"load",
       "FILE",
       "put the records of a text, or of standard input (-), into a tree",
       std::string(
           "Makes the tree if there is none, for keys and values as long as these (8 bytes if "
           "there "
           "are none). Of a key that is there twice the last value counts, and empty lines do not. "
           "Formats:\n"
           "  lines  keys, a line each; their values are the numbers of the lines\n"
           "  tsv    a key, a tab, a value; \\t, \\n, \\r, \\\\ for tabs, line feeds, carriage "
           "returns, backslashes\n"
           "  csv    a key, a comma, a value; in double quotes what has commas, quotes (doubled) "
           "or "
           "line ends\n"
           "  jsonl  an object with \"key\" and \"value\"; 'pando scan --values --json' prints "
           "this\n\n"
           "A tree without keys is filled in one go: others see all of it or, where something went "
           "wrong, nothing. With --nobulk, and where the tree has keys, these are put by several "
           "sessions; what fails says how many were.\n\n") +
           kJsonBytes,
       {"tree=NAME", "format=lines|tsv|csv|jsonl", "key_bytes=N", "value_bytes=N",
        "mode=shared|owned", "sessions=N", "[no]bulk", "progress"}},
      {"get",
       "KEY",
       "print the value of a key",
       std::string("Prints the value as it is and a line feed; with --json key and value, one "
                   "object in a line. Exit code 1: there is no such key.\n\n") +
           kJsonBytes,
       {"tree=NAME", "hex", "json"}},
      {"put",
       "KEY VALUE",
       "set the value of a key",
       "Sets the value, whether the key was there or not. Words that begin with a dash come after "
       "'--'. A value may come from elsewhere, as it is, to the last byte:\n"
       "  @FILE  what the file holds\n"
       "  @-     what comes from standard input\n"
       "  @@...  a value that begins with one @",
       {"tree=NAME", "hex"}},
      {"delete",
       "KEY",
       "remove a key",
       "Removes a key. Exit code 1: it was not there.",
       {"tree=NAME", "hex"}},
      {"erase",
       "",
       "remove all keys of a range",
       "Removes the keys from --from on that are below --to, and says how many those were; one of "
       "the two has to be given, and --from= with nothing behind it means all keys. By leaf and "
       "not by key: others go on meanwhile, and what they put there at that time may stay. It is "
       "no snapshot and not atomic: what fails says how to go on, and the same command again does "
       "no harm.",
       {"tree=NAME", "from=KEY", "to=KEY", "hex", "json", "progress"}},
      {"scan",
       "",
       "print keys in order",
       std::string("Prints the keys of a range in their order, a line each, and with --values what "
                   "they have. It is no snapshot: keys that come and go meanwhile may be in it or "
                   "not. Formats:\n"
                   "  raw   bytes as they are, a tab between key and value\n"
                   "  tsv   the same, and \\t, \\n, \\r, \\\\ for tabs, line feeds, carriage "
                   "returns, backslashes\n"
                   "  hex   two hexadecimal digits a byte, a tab between key and value\n"
                   "  json  an object a line; --json is the same\n\n") +
           kJsonBytes,
       {"tree=NAME", "from=KEY", "to=KEY", "prefix=BYTES", "reverse", "limit=N", "values",
        "format=raw|tsv|hex|json", "json", "hex"}},
      {"dump",
       "FILE",
       "write the tree's options and entries to a file or, as -, to standard output",
       "A stream with checksums, from which 'pando restore' makes the tree again; the same tree "
       "gives the same bytes. It is no snapshot: of what changes meanwhile each key is as it was "
       "at "
       "some moment. A file that is there already is left alone (exit code 1), but with --resume: "
       "then the blocks that are whole stay, the rest is cut off, and the dump goes on behind the "
       "last key that is there. Exit code 74: what is there is damaged, or cannot be written.",
       {"tree=NAME", "resume", "rate=BYTES", "progress"}},
      {"restore",
       "FILE",
       "put what is in a dump, or from standard input (-), into a tree",
       "Makes the tree, with the options of the dump, if there is none. Into a tree without keys "
       "all comes in one go: others see all of it or, where something went wrong, nothing. Into "
       "one "
       "that has keys, and with --nobulk or --rate, the entries are put one after the other, in "
       "the "
       "order of keys: those of the dump get its values, all others stay. That does no harm if it "
       "is done twice, and what fails says up to which key it came: with --from it goes on there. "
       "Exit code 74: the dump is damaged or ends too early; at which offset is said.",
       {"tree=NAME", "[no]bulk", "from=KEY", "hex", "rate=BYTES", "progress"}},
      {"count",
       "",
       "say about how many keys the tree has, and their size",
       "An estimate from some of the tree's leaves; 'pando check' counts them.",
       {"tree=NAME"}},
      {"create",
       "",
       "make an empty tree",
       "Makes a tree for keys and values of so many bytes at most. A tree that is there and has "
       "just these options is fine; with others: exit code 1.",
       {"tree=NAME", "key_bytes=N", "value_bytes=N", "mode=shared|owned",
        "delete_persistence_ms=N"}},
      {"drop",
       "[NAME]",
       "remove a tree",
       "Removes the tree of that name, or of --tree; one of the two has to be given.",
       {"tree=NAME"}},
      {"flush",
       "",
       "owned trees: bring what ended compute servers have left in logs to the leaves",
       "Exit code 1: the keys belong to a compute server that is at work, which flushes itself.",
       {"tree=NAME"}},
      {"ranges",
       "",
       "owned trees: whose which keys are, and how much they are used",
       "Owns nothing by asking.",
       {"tree=NAME", "json"}},
      {"members",
       "",
       "owned trees: the compute servers that own keys, and their logs",
       "Whether they are at work, and how many ranges each has.",
       {"json"}},
      {"trees", "", "list the trees", "Their names and options.", {"json"}},
      {"stats",
       "",
       "print the memory servers' memory and counters",
       "Exit code 69: one does not answer. With --watch again and again, also then, with what each "
       "counter has grown by, until it is interrupted or nobody reads it; as JSON: an object a "
       "line, with the time in milliseconds since 1970.",
       {"json", "watch[=SECONDS]"}},
      {"check",
       "",
       "say what is wrong with a tree, or with any",
       "Reads every node of the tree of --tree, or of all trees, also while others work on them. "
       "Exit code 74: something is wrong; others: it could not be checked.",
       {"tree=NAME", "quiet_tree", "json"}},
      {"doctor",
       "",
       "say what is missing on this machine and how to fix it",
       "Looks at this host and its registry. What RDMA lacks is to be fixed only if it is asked "
       "for "
       "(--fabric=verbs, --device, --port, --gid_index, --mtu) or the memory servers have it. Exit "
       "code 1: something has to be fixed.",
       {"litmus", "seconds=N"}},
      {"completion",
       "bash|zsh",
       "print a script that completes command lines in that shell",
       "Packages install them. By hand, for bash:\n"
       "  source <(pando completion bash)\n"
       "and for zsh, into a directory of $fpath:\n"
       "  pando completion zsh >_pando",
       {},
       /*connects=*/false},
      {"help",
       "[COMMAND]",
       "say what a command does, and its flags",
       "The same as --help behind the command; without one: all commands, the flags of the "
       "connection, and the exit codes.",
       {"man_directory=DIR"},
       /*connects=*/false},
  };
}

}  // namespace

const std::vector<CommandText>& CommandTexts() {
  static const auto* const texts = new std::vector<CommandText>(MakeCommandTexts());
  return *texts;
}

const CommandText* FindCommandText(std::string_view name) {
  for (const CommandText& command : CommandTexts()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

const std::vector<std::string>& ConnectionFlags() {
  static const auto* const flags = new std::vector<std::string>{
      "registry=DIR",    "fabric=shm|verbs", "secret_file=FILE", "timeout_ms=N",
      "device=NAME",     "port=N",           "gid_index=N",      "mtu=256|512|1024|2048|4096",
      "traffic_class=N", "service_level=N",  "pkey_index=N"};
  return *flags;
}

std::vector<std::string> FlagsOf(const CommandText& command) {
  std::vector<std::string> flags = command.flags;
  if (command.connects) {
    flags.insert(flags.end(), ConnectionFlags().begin(), ConnectionFlags().end());
  }
  return flags;
}

FlagUse ParseFlagUse(std::string_view text) {
  const bool is_on = text.starts_with("[no]");
  if (is_on) text.remove_prefix(4);
  const size_t equals = text.find('=');
  FlagUse use{.name = std::string(text.substr(0, equals)), .is_on = is_on};
  if (equals == std::string_view::npos) return use;
  use.value = text.substr(equals + 1);
  if (use.name.ends_with('[')) {
    use.name.pop_back();
    use.value.pop_back();
    use.value_is_optional = true;
  }
  return use;
}

ArgumentCount CountArguments(const CommandText& command) {
  ArgumentCount count;
  bool in_word = false;
  for (const char c : command.arguments) {
    if (!in_word && c != ' ') {
      ++count.max;
      if (c != '[') ++count.min;
    }
    in_word = c != ' ';
  }
  return count;
}

std::vector<std::string> ChoicesOf(const FlagUse& use) { return absl::StrSplit(use.value, '|'); }

namespace {

std::string ValueProblem(const FlagUse& use, const std::string& value) {
  std::vector<std::string> choices = ChoicesOf(use);
  if (choices.size() < 2 || value.empty() || absl::c_linear_search(choices, value)) return "";
  const std::string last = choices.back();
  choices.pop_back();
  return absl::StrCat("--", use.name, " is ", absl::StrJoin(choices, ", "), " or ", last, ", not '",
                      value, "'");
}

}  // namespace

std::string UsageProblem(const CommandText& command, size_t arguments,
                         const std::vector<GivenFlag>& given) {
  const auto [min, max] = CountArguments(command);
  if (arguments < min || arguments > max) {
    const std::string count = min == max ? absl::StrCat(min) : absl::StrCat(min, " to ", max);
    return absl::StrCat(command.name, " takes ", count, max == 1 ? " argument" : " arguments",
                        ", not ", arguments);
  }
  const std::vector<std::string> flags = FlagsOf(command);
  for (const auto& [name, value] : given) {
    const auto flag =
        std::find_if(flags.begin(), flags.end(),
                     [&name = name](const std::string& f) { return ParseFlagUse(f).name == name; });
    if (flag == flags.end()) {
      return absl::StrCat("--", name, " means nothing to '", command.name, "'; see 'pando help ",
                          command.name, "'");
    }
    // Those of the connection have defaults of their own, and who takes them up judges them.
    const bool is_own = static_cast<size_t>(flag - flags.begin()) < command.flags.size();
    std::string problem = is_own ? ValueProblem(ParseFlagUse(*flag), value) : "";
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace pando::tool
