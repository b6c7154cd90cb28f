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
           "Creates the tree if there is none, for the longest key and value of the text (8 bytes "
           "for an empty text). A tree that is there keeps its options: flags that say otherwise "
           "are refused. If a key occurs twice, the last value counts; empty lines are "
           "skipped. Formats:\n"
           "  lines  keys, one per line; their values are the line numbers\n"
           "  tsv    a key, a tab, a value; \\t, \\n, \\r, \\\\ for tabs, line feeds, carriage "
           "returns, backslashes\n"
           "  csv    a key, a comma, a value; in double quotes what has commas, quotes (doubled) "
           "or "
           "line ends\n"
           "  jsonl  an object with \"key\" and \"value\"; 'pando scan --values --json' prints "
           "this\n\n"
           "A carriage return before a line feed is a byte of the key in lines, which keeps every "
           "byte, and refused in tsv; csv leaves it out, and a byte order mark at the start.\n\n"
           "An empty tree is filled in one go: other clients see all of it or, after an error, "
           "nothing. With --nobulk, and if the tree has keys, several sessions put the records; an "
           "error says how many they had put.\n\n") +
           kJsonBytes,
       {"tree=NAME", "format=lines|tsv|csv|jsonl", "key_bytes=N", "value_bytes=N",
        "inline_value_bytes=N", "mode=shared|owned", "[no]narrow_reads", "sessions=N", "[no]bulk",
        "progress"}},
      {"get",
       "KEY",
       "print the value of a key",
       std::string("Prints the value as it is and a line feed; with --json key and value, as one "
                   "object on one line. Exit code 1: there is no such key.\n\n") +
           kJsonBytes,
       {"tree=NAME", "hex", "json"}},
      {"put",
       "KEY VALUE",
       "set the value of a key",
       "Sets the value, whether the key existed or not; 65,536 bytes at most. Put '--' before "
       "words that begin with a dash. A value may come from elsewhere, unchanged to the last "
       "byte:\n"
       "  @FILE  the contents of the file\n"
       "  @-     standard input\n"
       "  @@...  a value that begins with one @",
       {"tree=NAME", "hex"}},
      {"delete",
       "KEY",
       "remove a key",
       "Removes a key. Exit code 1: there is no such key.",
       {"tree=NAME", "hex"}},
      {"erase",
       "",
       "remove all keys of a range",
       "Removes the keys from --from on that are below --to, and prints their number. Give at "
       "least one of the two; --from= without a value means all keys. Works by leaf, not by key. "
       "Other clients go on meanwhile, and keys that they put at that time may stay. It is not "
       "atomic: an error says how to go on, and it is safe to repeat the command.",
       {"tree=NAME", "from=KEY", "to=KEY", "hex", "json", "progress"}},
      {"scan",
       "",
       "print keys in order",
       std::string("Prints the keys of a range in order, one per line, and with --values their "
                   "values. It is not a snapshot: keys that come and go meanwhile may be in it or "
                   "not. Formats:\n"
                   "  raw   bytes as they are, a tab between key and value\n"
                   "  tsv   the same, and \\t, \\n, \\r, \\\\ for tabs, line feeds, carriage "
                   "returns, backslashes\n"
                   "  hex   two hexadecimal digits per byte, a tab between key and value\n"
                   "  json  one object per line; --json is the same\n\n") +
           kJsonBytes,
       {"tree=NAME", "from=KEY", "to=KEY", "prefix=BYTES", "reverse", "limit=N", "values",
        "format=raw|tsv|hex|json", "json", "hex"}},
      {"dump",
       "FILE",
       "write the tree's options and entries to a file or, as -, to standard output",
       "Writes a stream with checksums, from which 'pando restore' makes the tree again; the same "
       "tree gives the same bytes. It is not a snapshot: each key is as it was at some moment. "
       "Does not touch a file that exists (exit code 1), except with --resume: that keeps the "
       "whole blocks, cuts off the rest, and goes on after the last key in the file. Exit code "
       "74: the file is damaged, or cannot be written.",
       {"tree=NAME", "resume", "rate=BYTES", "progress"}},
      {"restore",
       "FILE",
       "put the entries of a dump, or of standard input (-), into a tree",
       "Creates the tree, with the options of the dump, if there is none. Fills an empty tree in "
       "one go: other clients see all of it or, after an error, nothing. If the tree has keys, and "
       "with --nobulk or --rate, it puts the entries one after the other, in the order of keys: "
       "keys of the dump get its values, and all others stay. It is safe to repeat. An error says "
       "how far it got: go on there with --from. Exit code 74: the dump is damaged or ends too "
       "early; the message has the offset.",
       {"tree=NAME", "[no]bulk", "from=KEY", "hex", "rate=BYTES", "progress"}},
      {"count",
       "",
       "estimate how many keys the tree has, and their size",
       "An estimate from some of the tree's leaves; 'pando check' counts them.",
       {"tree=NAME"}},
      {"create",
       "",
       "make an empty tree",
       "Makes a tree for keys and values of at most so many bytes. Long values lie outside the "
       "leaves. If the tree exists with the same options, that is fine; with other options: exit "
       "code 1.",
       {"tree=NAME", "key_bytes=N", "value_bytes=N", "inline_value_bytes=N", "mode=shared|owned",
        "delete_persistence_ms=N", "[no]narrow_reads"}},
      {"drop",
       "[NAME]",
       "remove a tree",
       "Removes the tree of that name, or of --tree; give one of the two.",
       {"tree=NAME"}},
      {"flush",
       "",
       "owned trees: write to the leaves what ended compute servers have left in logs",
       "Exit code 1: keys belong to running compute servers, which flush themselves.",
       {"tree=NAME"}},
      {"recover",
       "",
       "owned trees: take over all that ended compute servers have left",
       "Writes their logs to the leaves, and leaves their keys to the next client that asks. "
       "Compute servers do this themselves when they need the keys, or share a tree with them. "
       "Exit code 69: something could not be taken over in time.\n\n"
       "A compute server that has ended left acknowledged writes in its log that are not yet in "
       "the "
       "leaves. If that log is lost as well (its memory server has ended, or was started again), "
       "its keys stay unavailable: nobody can tell that the log does not come back. --accept_loss "
       "takes over these keys without it, and prints which of them may have lost acknowledged "
       "writes. Logs that can be read are read as ever. Over verbs, or if a memory server's "
       "machine "
       "is off, name that server with --server_dead; if it answers, the command does nothing, and "
       "ends with exit code 1. Name only machines that are off for good: otherwise what ended "
       "compute servers have sent there may still arrive.",
       {"accept_loss", "server_dead=ID,...", "json"}},
      {"ranges",
       "",
       "owned trees: list ranges of keys, their owners, and how much they are used",
       "The command does not become an owner.",
       {"tree=NAME", "json"}},
      {"members",
       "",
       "owned trees: the compute servers that own keys, and their logs",
       "Says whether they are alive, and how many ranges each has.",
       {"json"}},
      {"trees", "", "list the trees", "Their names and options.", {"json"}},
      {"stats",
       "",
       "print the memory servers' memory and counters",
       "Exit code 69: one does not answer. With --watch it prints repeatedly, even then, and by "
       "how much each counter has grown, until it is interrupted or its output is closed; as "
       "JSON: one object per line, with the time in milliseconds since 1970.",
       {"json", "watch[=SECONDS]"}},
      {"check",
       "",
       "say what is wrong with one tree, or with all",
       "Reads every node and value of the tree of --tree, or of all trees, even while others work "
       "on them. Exit code 74: something is wrong with a tree. Other codes: a tree could not be "
       "checked; without --tree the others are, all the same.",
       {"tree=NAME", "quiet_tree", "json"}},
      {"doctor",
       "",
       "say what is missing on this machine and how to fix it",
       "Looks at this host and its registry. Reports a missing part of RDMA as an error only if "
       "you ask for RDMA (--fabric=verbs, --device, --port, --gid_index, --mtu) or the memory "
       "servers use it. Exit code 1: something has to be fixed.",
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
       "The same as --help after the command. Without a command: all commands, the flags of the "
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
