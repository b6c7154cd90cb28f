#include "compute/tool/byte_text.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace pando::tool {
namespace {

// Bytes of the UTF-8 sequence that `rest` begins with; 0: it begins with none.
size_t SequenceBytes(std::string_view rest) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(rest[i]); };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  const size_t size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size == 0 || rest.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (at(i) < 0x80 || at(i) > 0xbf) return 0;
  }
  const uint8_t second = at(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second > 0x9f;
  const bool too_large = first == 0xf4 && second > 0x8f;
  return overlong || surrogate || too_large ? 0 : size;
}

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

bool IsUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t size = SequenceBytes(bytes);
    if (size == 0) return false;
    bytes.remove_prefix(size);
  }
  return true;
}

void AddBytes(Json* object, const std::string& name, std::string_view bytes) {
  if (IsUtf8(bytes)) {
    (*object)[name] = bytes;
  } else {
    (*object)[name + "_base64"] = absl::Base64Escape(View(bytes));
  }
}

absl::StatusOr<std::string> BytesOf(const Json& object, const std::string& name) {
  const std::string encoded_name = name + "_base64";
  if (!object.is_object() || object.contains(name) == object.contains(encoded_name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no object with either \"", name, "\" or \"", encoded_name, "\""));
  }
  const bool encoded = object.contains(encoded_name);
  const Json& member = object.at(encoded ? encoded_name : name);
  if (!member.is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is not a string"));
  }
  const auto& text = member.get_ref<const std::string&>();
  if (!encoded) return text;
  std::string bytes;
  // Only what AddBytes() writes: else several texts would be one key.
  if (!absl::Base64Unescape(text, &bytes) || absl::Base64Escape(bytes) != text) {
    return absl::InvalidArgumentError(absl::StrCat("\"", encoded_name, "\" is not base64"));
  }
  return bytes;
}

std::string JsonText(const Json& json, bool in_lines) {
  return json.dump(in_lines ? 2 : -1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ToHex(std::string_view bytes) { return absl::BytesToHexString(View(bytes)); }

absl::StatusOr<std::string> FromHex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    const int high = DigitValue(digits[i]), low = DigitValue(digits[i + 1]);
    if (high < 0 || low < 0) break;
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  if (bytes.size() * 2 == digits.size()) return bytes;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", absl::CHexEscape(View(digits)), "' is not made of hexadecimal digits, two per byte"));
}

std::string EscapeTsv(std::string_view bytes) {
  std::string field;
  field.reserve(bytes.size());
  for (const char c : bytes) {
    switch (c) {
      case '\t':
        field += "\\t";
        break;
      case '\n':
        field += "\\n";
        break;
      case '\r':
        field += "\\r";
        break;
      case '\\':
        field += "\\\\";
        break;
      default:
        field += c;
    }
  }
  return field;
}

absl::StatusOr<std::string> UnescapeTsv(std::string_view field) {
  std::string bytes;
  bytes.reserve(field.size());
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] != '\\') {
      bytes += field[i];
      continue;
    }
    const char escaped = ++i < field.size() ? field[i] : '\0';
    constexpr std::string_view kEscapes = "tnr\\", kBytes = "\t\n\r\\";
    const size_t at = kEscapes.find(escaped);
    if (at == std::string_view::npos) {
      return absl::InvalidArgumentError(
          "a backslash that is none of \\t, \\n, \\r and \\\\ (a backslash itself is two)");
    }
    bytes += kBytes[at];
  }
  return bytes;
}

}  // namespace pando::tool
