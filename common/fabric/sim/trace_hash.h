// Hash of everything that happens in a run: two runs with the same hash were the same run.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pando::sim {

// Of some bytes; quick, not cryptographic.
inline uint64_t HashBytes(const std::byte* data, size_t bytes, uint64_t seed) {
  constexpr uint64_t kMultiplier = 0x9fb21c651e98df25ull;
  uint64_t lanes[4] = {seed, seed ^ 0x9e3779b97f4a7c15ull, ~seed, seed + bytes};
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    for (int lane = 0; lane < 4; ++lane) {
      uint64_t word;
      std::memcpy(&word, data + at + 8 * lane, 8);
      lanes[lane] = std::rotl((lanes[lane] ^ word) * kMultiplier, 29);
    }
  }
  for (; at < bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, bytes - at < 8 ? bytes - at : 8);
    lanes[0] = std::rotl((lanes[0] ^ word) * kMultiplier, 29);
  }
  uint64_t hash = lanes[0];
  for (int lane = 1; lane < 4; ++lane) hash = (std::rotl(hash, 23) ^ lanes[lane]) * kMultiplier;
  return hash ^ (hash >> 32);
}

// What is mixed in at once is folded into one word first: a run is long chains of mixing.
class TraceHash {
 public:
  void Mix(uint64_t value) {
    hash_ = std::rotl((hash_ ^ value) * 0x9fb21c651e98df25ull, 31);
    hash_ ^= hash_ >> 29;
  }
  void Mix(uint64_t first, uint64_t second) { Mix(first * kFold + second); }
  // Bytes that have moved, and where they are.
  void MixBytes(uint64_t where, const std::byte* data, size_t bytes) {
    uint64_t word;
    if (bytes == sizeof(word)) {
      std::memcpy(&word, data, sizeof(word));
    } else {
      word = HashBytes(data, bytes, /*seed=*/0);
    }
    Mix(where, word);
  }
  uint64_t value() const { return hash_; }

 private:
  static constexpr uint64_t kFold = 0xd6e8feb86659fd93ull;

  uint64_t hash_ = 0x70616e646f73696dull;
};

}  // namespace pando::sim
