// Seeded random numbers that are the same on every machine and release (std's distributions are
// not). xoshiro256** (Blackman and Vigna), seeded through SplitMix64. Not thread-safe; not for
// secrets.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace pando {

// One step of SplitMix64: advances `state` and returns a well-mixed value. Good for deriving seeds.
constexpr uint64_t SplitMix64(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// A seed for the `index`-th of several generators that share one seed.
constexpr uint64_t DeriveSeed(uint64_t seed, uint64_t index) {
  uint64_t state = seed ^ (index * 0xd1342543de82ef95ull);
  SplitMix64(&state);
  return SplitMix64(&state);
}

class Random {
 public:
  using result_type = uint64_t;  // so that std::shuffle takes one

  constexpr explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) word = SplitMix64(&seed);
  }

  constexpr uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  constexpr uint64_t operator()() { return Next(); }
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return UINT64_MAX; }

  // Uniform in [0, n), without bias. n > 0.
  constexpr uint64_t Uniform(uint64_t n) {
    auto product = static_cast<unsigned __int128>(Next()) * n;
    if (static_cast<uint64_t>(product) < n) [[unlikely]] {
      const uint64_t threshold = -n % n;
      while (static_cast<uint64_t>(product) < threshold) {
        product = static_cast<unsigned __int128>(Next()) * n;
      }
    }
    return static_cast<uint64_t>(product >> 64);
  }
  // Uniform in [0, 1), 53 bits.
  constexpr double NextDouble() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // True with this probability.
  constexpr bool Chance(double probability) { return NextDouble() < probability; }

 private:
  std::array<uint64_t, 4> state_{};
};

}  // namespace pando
