#include "compute/tool/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace pando::tool {
namespace {

std::string CommandNames() {
  return absl::StrJoin(CommandTexts(), " ", [](std::string* out, const CommandText& command) {
    out->append(command.name);
  });
}

// "--tree= --json ...".
std::string FlagWords(const std::vector<std::string>& flags) {
  std::string words;
  for (const std::string& flag : flags) {
    const FlagUse use = ParseFlagUse(flag);
    absl::StrAppend(&words, use.is_on ? "--no" : "--", use.name,
                    use.value.empty() || use.value_is_optional ? " " : "= ");
  }
  return words + "--help";
}

// What a word can be, as an assignment of the function below; "": anything.
std::string BashValue(const std::string& value) {
  if (value == "FILE") return "kind='file'";
  if (value == "DIR") return "kind='directory'";
  if (value == "[COMMAND]") return absl::StrCat("words='", CommandNames(), "'");
  const std::vector<std::string> choices = ChoicesOf({.value = value});
  return choices.size() < 2 ? "" : absl::StrCat("words='", absl::StrJoin(choices, " "), "'");
}

// The branches of a case over COMMAND:--FLAG.
std::string BashFlagValues() {
  std::string branches;
  const auto add = [&](const std::string& command, const std::vector<std::string>& flags) {
    for (const std::string& flag : flags) {
      const FlagUse use = ParseFlagUse(flag);
      const std::string value = BashValue(use.value);
      if (value.empty()) continue;
      absl::StrAppend(&branches, "      ", command, ":--", use.name, ") ", value, " ;;\n");
    }
  };
  for (const CommandText& command : CommandTexts()) add(command.name, command.flags);
  add("*", ConnectionFlags());
  return branches;
}

std::string BashFlags() {
  std::string branches;
  for (const CommandText& command : CommandTexts()) {
    absl::StrAppend(&branches, "      ", command.name, ") words='", FlagWords(FlagsOf(command)),
                    "' ;;\n");
  }
  return branches;
}

std::string BashArguments() {
  std::string branches;
  for (const CommandText& command : CommandTexts()) {
    const std::string value = BashValue(command.arguments);
    if (!value.empty()) absl::StrAppend(&branches, "      ", command.name, ") ", value, " ;;\n");
  }
  return branches;
}

// In single quotes; of a description in brackets what ends it is escaped.
std::string ZshQuoted(const std::string& text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}});
}
std::string ZshDescription(const std::string& text) {
  return ZshQuoted(
      absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}}));
}

std::string ZshValue(const std::string& value) {
  if (value == "FILE") return "_files";
  if (value == "DIR") return "_files -/";
  if (value == "[COMMAND]") return absl::StrCat("(", CommandNames(), ")");
  const std::vector<std::string> choices = ChoicesOf({.value = value});
  return choices.size() < 2 ? "" : absl::StrCat("(", absl::StrJoin(choices, " "), ")");
}

std::string ZshFlag(const ToolText& texts, const std::string& flag) {
  const FlagUse use = ParseFlagUse(flag);
  std::string spec = absl::StrCat("        '--", use.is_on ? "no" : "", use.name);
  if (!use.value.empty()) spec += use.value_is_optional ? "=-" : "=";
  absl::StrAppend(&spec, "[", ZshDescription(TextOfFlag(texts, use.name).text), "]");
  if (!use.value.empty()) {
    absl::StrAppend(&spec, use.value_is_optional ? "::" : ":", use.name, ":", ZshValue(use.value));
  }
  return spec + "'";
}

}  // namespace

std::string BashCompletion() {
  return absl::StrCat(R"(# Completion of pando for bash; made by 'pando completion bash'.
_pando() {
  local current=${COMP_WORDS[COMP_CWORD]} before="" command="" flag="" kind="" words="" i
  ((COMP_CWORD < 2)) || before=${COMP_WORDS[COMP_CWORD - 1]}
  # '=' is a word of its own.
  if [[ $current == '=' ]]; then
    flag=$before
    current=""
  elif [[ $before == '=' ]]; then
    flag=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
      -*) [[ ${COMP_WORDS[i + 1]-} != '=' ]] || ((i += 2)) ;;
      *)
        command=${COMP_WORDS[i]}
        break
        ;;
    esac
  done
  if [[ -n $flag ]]; then
    case $command:$flag in
)",
                      BashFlagValues(), R"(    esac
  elif [[ -z $command && $current == -* ]]; then
    words=')",
                      FlagWords(ConnectionFlags()), R"( --version'
  elif [[ -z $command ]]; then
    words=')",
                      CommandNames(), R"('
  elif [[ $current == -* ]]; then
    case $command in
)",
                      BashFlags(), R"(    esac
  else
    case $command in
)",
                      BashArguments(), R"(    esac
  fi
  case $kind in
    file) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    directory) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current") ;;
  esac
  [[ -z $kind ]] || compopt -o filenames 2>/dev/null || true
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null || true
  return 0
}
complete -F _pando pando
)");
}

std::string ZshCompletion(const ToolText& texts) {
  std::string script = R"(#compdef pando
# Completion of pando for zsh; made by 'pando completion zsh'.
_pando() {
  local curcontext="$curcontext" state line
  local -a commands
  commands=(
)";
  for (const CommandText& command : CommandTexts()) {
    absl::StrAppend(&script, "    '", command.name, ":",
                    ZshQuoted(absl::StrReplaceAll(command.summary, {{":", "\\:"}})), "'\n");
  }
  script += "  )\n  _arguments -C \\\n";
  for (const std::string& flag : ConnectionFlags()) {
    absl::StrAppend(&script, ZshFlag(texts, flag), " \\\n");
  }
  script += R"(        '--help[say what pando does]' '--version[say which one it is]' \
        '1: :->command' '*:: :->arguments'
  case $state in
  command) _describe -t commands command commands ;;
  arguments)
    case $line[1] in
)";
  for (const CommandText& command : CommandTexts()) {
    absl::StrAppend(&script, "    ", command.name, ")\n      _arguments \\\n");
    for (const std::string& flag : FlagsOf(command)) {
      absl::StrAppend(&script, ZshFlag(texts, flag), " \\\n");
    }
    const std::string value = ZshValue(command.arguments);
    if (!value.empty()) absl::StrAppend(&script, "        '1:argument:", value, "' \\\n");
    script += "        '--help[say what it does]'\n      ;;\n";
  }
  return script + R"(    esac
    ;;
  esac
}
_pando "$@"
)";
}

}  // namespace pando::tool
