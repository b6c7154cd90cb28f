// Rule L1: the global lock word, and which word guards which node.
#pragma once

#include <cstdint>

#include "common/wire/remote_address.h"

namespace pando {

// 64 bits: owner (compute server) 16 | incarnation 32 | mode 4 | zero 12, from the most significant
// bit. 0 is free. Recovery compares owner and incarnation only.
struct LockWord {
  static constexpr uint64_t kFree = 0;
  enum Mode : uint8_t { kExclusive = 1 };

  uint16_t owner = 0;
  uint32_t incarnation = 0;
  uint8_t mode = kExclusive;

  constexpr uint64_t Encode() const {
    return (uint64_t{owner} << 48) | (uint64_t{incarnation} << 16) | (uint64_t{mode} << 12);
  }
  static constexpr LockWord Decode(uint64_t word) {
    return {static_cast<uint16_t>(word >> 48), static_cast<uint32_t>(word >> 16),
            static_cast<uint8_t>((word >> 12) & 0xf)};
  }
  static constexpr bool IsValid(uint64_t word) { return (word & 0xfff) == 0; }
};

// The first words of every lock table belong to the root records of the catalog (rule R1: "its own
// lock").
inline constexpr uint32_t kRootLockWords = 256;

// Stable mix of a remote address; the same in every process and release (part of the protocol).
constexpr uint64_t MixAddress(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Index of the word that guards `node`, in the lock table of the node's own server.
// Needs word_count > kRootLockWords.
constexpr uint32_t LockIndex(RemoteAddress node, uint32_t word_count) {
  return kRootLockWords +
         static_cast<uint32_t>(MixAddress(node.offset()) % (word_count - kRootLockWords));
}

}  // namespace pando
