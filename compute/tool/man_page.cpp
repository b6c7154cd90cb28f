#include "compute/tool/man_page.h"

#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "compute/tool/exit_code.h"

namespace pando::tool {
namespace {

// As roff shows it: no character of the text is taken for a command.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else if (c == '\'') {
      escaped += "\\(aq";  // else it is a quotation mark
    } else {
      escaped += c;
    }
  }
  return escaped.starts_with('.') ? "\\&" + escaped : escaped;
}

std::string Bold(std::string_view text) { return absl::StrCat("\\fB", Escaped(text), "\\fR"); }
std::string Italic(std::string_view text) { return absl::StrCat("\\fI", Escaped(text), "\\fR"); }

std::string Title(const std::string& name, const std::string& version, const std::string& summary) {
  return absl::StrCat(".TH ", absl::AsciiStrToUpper(name), " 1 \"\" \"pando ", version,
                      "\" \"Pando\"\n.SH NAME\n", Escaped(name), " \\- ", Escaped(summary), "\n");
}

// Paragraphs; lines that begin with a space stay as they are.
std::string Paragraphs(const std::string& text) {
  std::istringstream lines(text);
  std::string roff;
  bool literal = false;
  const auto set_literal = [&](bool on) {
    if (on != literal) roff += on ? ".RS\n.nf\n" : ".fi\n.RE\n";
    literal = on;
  };
  for (std::string line; std::getline(lines, line);) {
    set_literal(line.starts_with(' '));
    const size_t first = line.find_first_not_of(' ');
    roff += line.empty() ? ".PP\n" : Escaped(std::string_view(line).substr(first)) + "\n";
  }
  set_literal(false);
  return roff;
}

std::string FlagRoff(const ToolText& texts, const std::string& flag) {
  const FlagUse use = ParseFlagUse(flag);
  const FlagText& text = TextOfFlag(texts, use.name);
  std::string roff = ".TP\n" + Bold((use.is_on ? "--[no]" : "--") + use.name);
  if (use.value_is_optional) {
    absl::StrAppend(&roff, "[=", Italic(use.value), "]");
  } else if (!use.value.empty()) {
    absl::StrAppend(&roff, "=", Italic(use.value));
  }
  absl::StrAppend(&roff, "\n", Escaped(text.text));
  if (!text.default_value.empty())
    absl::StrAppend(&roff, " (default ", Escaped(text.default_value), ")");
  return roff + "\n";
}

std::string ExitStatus() {
  std::string roff = ".SH EXIT STATUS\n";
  for (const auto& [code, text] : kExitCodeTexts) {
    absl::StrAppend(&roff, ".TP\n", Bold(std::to_string(code)), "\n", Escaped(text), "\n");
  }
  return roff;
}

constexpr char kEnvironment[] =
    ".SH ENVIRONMENT\n.TP\n\\fBPANDO_REGISTRY\\fR\nwhere the memory servers are found, unless "
    "\\fB\\-\\-registry\\fR says so\n.TP\n\\fBXDG_RUNTIME_DIR\\fR\nwithout either, its directory "
    "pando\n";

std::string CommandUse(const CommandText& command) {
  std::string roff = Bold("pando " + command.name);
  if (!command.arguments.empty()) absl::StrAppend(&roff, " ", Italic(command.arguments));
  return roff;
}

}  // namespace

std::string ManPage(const ToolText& texts) {
  std::string roff = Title("pando", texts.version, "work on the trees of memory servers");
  absl::StrAppend(
      &roff, ".SH SYNOPSIS\n", Bold("pando"), " ", Italic("COMMAND"), " [", Italic("ARGUMENTS"),
      "] [", Italic("FLAGS"), "]\n.SH DESCRIPTION\n",
      Escaped("Pando is an ordered index on disaggregated memory. This program works on "
              "the trees of its running memory servers. Each command has a page of its "
              "own, and 'pando help COMMAND' says the same."),
      "\n.PP\n",
      Escaped("Flags are --NAME=VALUE, --NAME VALUE, --YES or --noYES, anywhere on the "
              "command line; '--' ends them."),
      "\n.SH COMMANDS\n");
  for (const CommandText& command : CommandTexts()) {
    absl::StrAppend(&roff, ".TP\n", CommandUse(command), "\n", Escaped(command.summary), "\n");
  }
  roff += ".SH OPTIONS\nFor every command that connects to memory servers:\n";
  for (const std::string& flag : ConnectionFlags()) roff += FlagRoff(texts, flag);
  absl::StrAppend(&roff, ExitStatus(), kEnvironment, ".SH SEE ALSO\n");
  for (const CommandText& command : CommandTexts()) {
    absl::StrAppend(&roff, &command == &CommandTexts().front() ? "" : ",\n",
                    Bold("pando-" + command.name), "(1)");
  }
  return roff + "\n";
}

std::string ManPage(const ToolText& texts, const CommandText& command) {
  std::string roff = Title("pando-" + command.name, texts.version, command.summary);
  absl::StrAppend(&roff, ".SH SYNOPSIS\n", CommandUse(command),
                  FlagsOf(command).empty() ? "" : " [" + Italic("FLAGS") + "]",
                  "\n.SH DESCRIPTION\n", Paragraphs(command.text));
  if (!command.flags.empty() || command.connects) roff += ".SH OPTIONS\n";
  for (const std::string& flag : command.flags) roff += FlagRoff(texts, flag);
  if (command.connects) {
    absl::StrAppend(&roff, ".PP\nThose of the connection to the memory servers are in ",
                    Bold("pando"), "(1).\n");
  }
  absl::StrAppend(&roff, ExitStatus(), command.connects ? kEnvironment : "");
  return absl::StrCat(roff, ".SH SEE ALSO\n", Bold("pando"), "(1)\n");
}

absl::Status WriteManPages(const ToolText& texts, const std::string& directory) {
  const auto write = [&](const std::string& name, const std::string& page) {
    const std::string path = absl::StrCat(directory, "/", name, ".1");
    std::ofstream file(path);
    file << page;
    file.close();
    if (file) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path));
  };
  absl::Status status = write("pando", ManPage(texts));
  for (const CommandText& command : CommandTexts()) {
    if (status.ok()) status = write("pando-" + command.name, ManPage(texts, command));
  }
  return status;
}

}  // namespace pando::tool
