#include "common/base/units.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pando {
namespace {

// 1, 1024, ... of a suffix; 0 if it is none.
double Multiplier(absl::string_view suffix) {
  std::string s = absl::AsciiStrToLower(absl::StripAsciiWhitespace(suffix));
  if (s.empty() || s == "b") return 1;
  constexpr absl::string_view kPrefixes = "kmgt";
  const size_t power = kPrefixes.find(s[0]);
  if (power == absl::string_view::npos) return 0;
  const std::string rest = s.substr(1);
  if (!rest.empty() && rest != "b" && rest != "ib") return 0;
  return std::pow(1024.0, static_cast<double>(power + 1));
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  const absl::string_view view(text.data(), text.size());
  const absl::string_view trimmed = absl::StripAsciiWhitespace(view);
  const size_t digits = trimmed.find_first_not_of("0123456789.");
  const absl::string_view number = trimmed.substr(0, digits);
  const double multiplier =
      digits == absl::string_view::npos ? 1 : Multiplier(trimmed.substr(digits));
  const auto bad = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("'", view, "' is not a size in bytes; write 4096, 64K or 1.5GiB"));
  };
  if (number.empty() || multiplier == 0) return bad();
  uint64_t whole;
  if (multiplier == 1) {  // exact: a double would lose low bits
    if (!absl::SimpleAtoi(number, &whole) || whole >> 63 != 0) return bad();
    return whole;
  }
  double value;
  if (!absl::SimpleAtod(number, &value)) return bad();
  value *= multiplier;
  if (!(value >= 0) || value >= 0x1.0p63) return bad();
  return static_cast<uint64_t>(value);
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < kKiB) return absl::StrCat(bytes, " B");
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / kKiB;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatCount(double count) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  while (std::abs(count) >= 999.5 && unit + 1 < std::size(kUnits)) {
    count /= 1000;
    ++unit;
  }
  const double magnitude = std::abs(count);
  const int digits = magnitude >= 99.95 || (unit == 0 && count == std::floor(count)) ? 0
                     : magnitude >= 9.995                                            ? 1
                                                                                     : 2;
  return absl::StrFormat("%.*f%s", digits, count, kUnits[unit]);
}

}  // namespace pando
