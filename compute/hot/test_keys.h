// Keys for tests of this room, of the kinds that an index of prefixes and heads can get wrong.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/random.h"

namespace pando {

enum class KeyKind {
  kRandom8,   // eight bytes, anywhere
  kDense8,    // eight bytes, next to each other
  kDecimal,   // 24 digits and letters, a long common beginning
  kFewBytes,  // short, of 0x00, 0x01 and 0xff: many are beginnings of others, or differ by zeros at
              // the end
  kDeep,      // up to 240 bytes that agree for most of their length
  kManyRanges,  // the beginnings of many ranges of equal keys: the same head in many nodes
};
inline constexpr int kKeyKinds = 6;

// One of about `n` keys of that kind.
inline std::string TestKey(KeyKind kind, uint64_t n, Random& random) {
  const uint64_t i = random.Uniform(n);
  uint64_t mixed = i;
  const uint64_t hash = SplitMix64(&mixed);
  const auto big_endian = [](uint64_t word) {
    std::string key(8, '\0');
    for (size_t byte = 8; byte-- > 0; word >>= 8) key[byte] = static_cast<char>(word);
    return key;
  };
  switch (kind) {
    case KeyKind::kRandom8:
      return big_endian(hash);
    case KeyKind::kDense8:
      return big_endian(i);
    case KeyKind::kDecimal: {
      const std::string digits = std::to_string(hash % n);
      return "user" + std::string(20 - digits.size(), '0') + digits;
    }
    case KeyKind::kFewBytes: {
      std::string key(1 + hash % 9, '\0');
      for (size_t at = 0; at < key.size(); ++at) key[at] = "\0\x01\xff"[(hash >> (8 + 4 * at)) % 3];
      return key;
    }
    case KeyKind::kDeep: {
      std::string key(240, 'd');
      key[hash % 4 == 0 ? hash % 233 : 232] = static_cast<char>(hash >> 32);
      key.resize(233 + hash % 8);
      return key + std::to_string(hash % 97).substr(0, 240 - key.size());
    }
    case KeyKind::kManyRanges:
      return big_endian(hash % 5) + big_endian((hash >> 8) % 3) + big_endian(i);
  }
  return {};
}

}  // namespace pando
