// Keys and values, which are any bytes, as text: JSON, hexadecimal digits, fields of tab-separated
// lines. Each form gives back the same bytes.
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando::tool {

using Json = nlohmann::ordered_json;

// As JSON wants it: no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsUtf8(std::string_view bytes);

// JSON: as the member NAME if they are UTF-8, else base64 (RFC 4648, padded) as NAME_base64.
void AddBytes(Json* object, const std::string& name, std::string_view bytes);
// What AddBytes() has added, of any JSON. InvalidArgument: neither is there, or both, or it is no
// string, or no base64.
absl::StatusOr<std::string> BytesOf(const Json& object, const std::string& name);
// In one line, or with line breaks for people; what is no UTF-8 (texts of ours, never bytes of
// users) is replaced.
std::string JsonText(const Json& json, bool in_lines = false);

// Two digits a byte. InvalidArgument: an odd number of digits, or what is no digit.
std::string ToHex(std::string_view bytes);
absl::StatusOr<std::string> FromHex(std::string_view digits);

// A field of a line of tab-separated values: \t, \n, \r and \\ stand for what would end it. All
// other bytes are as they are. InvalidArgument: a backslash before anything else.
std::string EscapeTsv(std::string_view bytes);
absl::StatusOr<std::string> UnescapeTsv(std::string_view field);

}  // namespace pando::tool
