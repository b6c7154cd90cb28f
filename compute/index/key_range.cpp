#include "compute/index/key_range.h"

#include <algorithm>
#include <optional>

namespace pando {
namespace {

// The least string above all that begin with `prefix`. Nothing: there is none.
std::optional<std::string> PrefixEnd(std::string_view prefix) {
  const size_t last = prefix.find_last_not_of('\xff');
  if (last == std::string_view::npos) return std::nullopt;
  std::string end(prefix.substr(0, last + 1));
  end.back() = static_cast<char>(static_cast<uint8_t>(end.back()) + 1);
  return end;
}

}  // namespace

std::string KeyBefore(std::string_view key, uint32_t bytes_max) {
  std::string before(key);
  if (before.back() == '\0') {
    before.pop_back();
  } else {
    before.back() = static_cast<char>(before.back() - 1);
    before.resize(bytes_max, '\xff');
  }
  return before;
}

KeyCut KeyCut::At(std::string_view bound, bool after, uint32_t bytes_max) {
  if (bound.empty()) return Lowest();  // no key is empty
  if (bound.size() <= bytes_max) return {std::string(bound), after};
  // No key is equal to it, and those below it are its own beginning and what is below that.
  return {std::string(bound.substr(0, bytes_max)), true};
}

KeyRange RangeOf(const CursorOptions& options, uint32_t bytes_max) {
  KeyRange range{KeyCut::At(options.from, options.from_exclusive, bytes_max),
                 KeyCut::Highest(bytes_max)};
  if (options.to.has_value()) {
    range.high = std::min(range.high, KeyCut::At(*options.to, options.to_inclusive, bytes_max));
  }
  if (options.prefix.empty()) return range;
  range.low = std::max(range.low, KeyCut::At(options.prefix, /*after=*/false, bytes_max));
  if (const std::optional<std::string> end = PrefixEnd(options.prefix); end.has_value()) {
    range.high = std::min(range.high, KeyCut::At(*end, /*after=*/false, bytes_max));
  }
  return range;
}

}  // namespace pando
