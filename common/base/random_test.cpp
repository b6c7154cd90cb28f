#include "common/base/random.h"

#include <array>
#include <set>

#include "gtest/gtest.h"

namespace pando {
namespace {

// The sequence is part of every kept seed: it must never change.
TEST(RandomTest, SequenceIsFixed) {
  uint64_t state = 0;
  EXPECT_EQ(SplitMix64(&state), 0xe220a8397b1dcdafull);
  EXPECT_EQ(SplitMix64(&state), 0x6e789e6aa1b965f4ull);
  Random a(42), b(42), c(43);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = a.Next();
    EXPECT_EQ(value, b.Next());
    differs |= value != c.Next();
  }
  EXPECT_TRUE(differs);
}

TEST(RandomTest, UniformCoversItsRangeEvenly) {
  Random random(7);
  std::array<int, 10> counts{};
  for (int i = 0; i < 100'000; ++i) ++counts.at(random.Uniform(10));
  for (int count : counts) EXPECT_NEAR(count, 10'000, 500);
  EXPECT_EQ(random.Uniform(1), 0u);
  for (int i = 0; i < 100; ++i) {
    EXPECT_LT(random.Uniform(UINT64_MAX), UINT64_MAX);
  }
}

TEST(RandomTest, DoublesLieBelowOne) {
  Random random(9);
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double value = random.NextDouble();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.01);
  EXPECT_FALSE(random.Chance(0));
  EXPECT_TRUE(random.Chance(1));
}

TEST(RandomTest, DerivedSeedsDiffer) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (uint64_t index = 0; index < 100; ++index) seeds.insert(DeriveSeed(seed, index));
  }
  EXPECT_EQ(seeds.size(), 10'000u);
}

}  // namespace
}  // namespace pando
