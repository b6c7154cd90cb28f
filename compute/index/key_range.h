// Places between keys, and the ranges that they bound. Pure.
//
// Bounds of users are any bytes; a tree's keys are 1 to `key_bytes_max`. So a bound is made a cut
// that fits: it lies before or after a string of at most `key_bytes_max` bytes, and divides the
// tree's keys as the bound does. There is a cut below all keys, and one above.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "pando/cursor.h"

namespace pando {

// The greatest string of at most `bytes_max` bytes below `key`, which is not empty: what the left
// neighbour of the node that starts at `key` covers.
std::string KeyBefore(std::string_view key, uint32_t bytes_max);

struct KeyCut {
  std::string key;
  bool after = false;

  // Below and above all keys of up to `bytes_max` bytes.
  static KeyCut Lowest() { return {}; }
  static KeyCut Highest(uint32_t bytes_max) { return {std::string(bytes_max, '\xff'), true}; }
  // Before or after any string.
  static KeyCut At(std::string_view bound, bool after, uint32_t bytes_max);

  // The least string that is not below it: keys above it are from here on.
  std::string FirstAbove() const { return after ? key + '\0' : key; }
  bool IsAbove(std::string_view other) const { return after ? other <= key : other < key; }
  friend auto operator<=>(const KeyCut&, const KeyCut&) = default;
};

struct KeyRange {
  KeyCut low, high;  // keys between them; none if low >= high
};
// Bounds and prefix; not what else is in the options.
KeyRange RangeOf(const CursorOptions& options, uint32_t bytes_max);

}  // namespace pando
