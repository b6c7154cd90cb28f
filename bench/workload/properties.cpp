#include "bench/workload/properties.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

constexpr std::string_view kBlank = " \t\f";

bool GoesOn(std::string_view line) {
  const size_t text = line.find_last_not_of('\\');
  return (line.size() - (text == std::string_view::npos ? 0 : text + 1)) % 2 == 1;
}

// Takes the character behind a backslash, and what belongs to it.
std::optional<char> Unescape(std::string_view* rest) {
  const char first = rest->front();
  rest->remove_prefix(1);
  switch (first) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'u': {
      uint32_t code = 0;
      const char* const end = rest->data() + std::min<size_t>(4, rest->size());
      const auto [last, error] = std::from_chars(rest->data(), end, code, 16);
      if (error != std::errc() || last != rest->data() + 4 || code >= 0x80) return std::nullopt;
      rest->remove_prefix(4);
      return static_cast<char>(code);
    }
    default:
      return first;
  }
}

// Up to one of `ends` that has no backslash before it.
absl::StatusOr<std::string> TakeWord(std::string_view* rest, std::string_view ends) {
  std::string word;
  while (!rest->empty() && ends.find(rest->front()) == std::string_view::npos) {
    char next = rest->front();
    rest->remove_prefix(1);
    if (next == '\\' && !rest->empty()) {
      const std::optional<char> meant = Unescape(rest);
      if (!meant.has_value()) return absl::InvalidArgumentError("what \\u names is not ASCII");
      next = *meant;
    }
    word.push_back(next);
  }
  return word;
}

void SkipBlanks(std::string_view* rest) {
  rest->remove_prefix(std::min(rest->find_first_not_of(kBlank), rest->size()));
}

absl::Status ParseLine(std::string_view rest, Properties* properties) {
  PANDO_ASSIGN_OR_RETURN(const std::string name, TakeWord(&rest, "=: \t\f"));
  SkipBlanks(&rest);
  if (!rest.empty() && (rest.front() == '=' || rest.front() == ':')) rest.remove_prefix(1);
  SkipBlanks(&rest);
  if (name.empty()) return absl::InvalidArgumentError("a value without a name");
  PANDO_ASSIGN_OR_RETURN((*properties)[name], TakeWord(&rest, ""));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Properties> ParseProperties(std::string_view text) {
  Properties properties;
  std::string line;
  for (int number = 1, begins = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    std::string_view part = text.substr(0, end);
    const bool two = text.substr(end, 2) == "\r\n";
    text.remove_prefix(std::min(end + (two ? 2 : 1), text.size()));
    SkipBlanks(&part);
    if (line.empty()) {
      begins = number;
      if (part.empty() || part.front() == '#' || part.front() == '!') continue;
    }
    const bool goes_on = GoesOn(part) && !text.empty();
    if (GoesOn(part)) part.remove_suffix(1);
    line.append(part);
    if (goes_on || line.empty()) continue;
    const absl::Status status = ParseLine(line, &properties);
    if (!status.ok()) return Annotate(status, absl::StrCat("line ", begins));
    line.clear();
  }
  return properties;
}

absl::Status AddProperty(std::string_view assignment, Properties* properties) {
  const size_t at = assignment.find('=');
  if (at == 0 || at == std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("a property is NAME=VALUE, not '", std::string(assignment), "'"));
  }
  const auto stripped = [](std::string_view word) {
    return std::string(absl::StripAsciiWhitespace({word.data(), word.size()}));
  };
  properties->insert_or_assign(stripped(assignment.substr(0, at)),
                               stripped(assignment.substr(at + 1)));
  return absl::OkStatus();
}

}  // namespace pando::bench
