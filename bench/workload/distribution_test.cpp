#include "bench/workload/distribution.h"

#include <cmath>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace pando::bench {
namespace {

// The share of each rank must be rank^-theta / zeta, within what 4 standard deviations of sampling
// allow.
void ExpectZipfian(const std::vector<uint64_t>& counts, double theta, uint64_t samples) {
  double zeta = 0;
  for (size_t i = 0; i < counts.size(); ++i) zeta += std::pow(i + 1, -theta);
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = static_cast<double>(samples) * std::pow(i + 1, -theta) / zeta;
    EXPECT_NEAR(static_cast<double>(counts[i]), expected, 5 * std::sqrt(expected) + 1)
        << "rank " << i << ", theta " << theta;
  }
}

TEST(ZipfianRankTest, IsExactForAnyTheta) {
  for (double theta : {0.01, 0.3, 0.5, 0.9, 0.99, 0.999}) {
    for (uint64_t n : {1, 2, 3, 50}) {
      Random random(n);
      const ZipfianRank ranks(n, theta);
      std::vector<uint64_t> counts(n);
      constexpr uint64_t kSamples = 200'000;
      for (uint64_t i = 0; i < kSamples; ++i) ++counts.at(ranks.Next(&random));
      ExpectZipfian(counts, theta, kSamples);
    }
  }
}

TEST(ZipfianRankTest, HugeRangesStayInRange) {
  Random random(3);
  const ZipfianRank ranks(uint64_t{1} << 40, 0.99);
  uint64_t first = 0;
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t rank = ranks.Next(&random);
    ASSERT_LT(rank, uint64_t{1} << 40);
    first += rank == 0 ? 1 : 0;
  }
  EXPECT_GT(first, 1'000u);
}

TEST(ScrambleTest, IsABijection) {
  for (uint64_t n : {1, 2, 3, 7, 64, 1'000, 65'537}) {
    const Scramble scramble(n);
    std::vector<bool> seen(n);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t image = scramble(i);
      ASSERT_LT(image, n);
      EXPECT_FALSE(seen[image]);
      seen[image] = true;
    }
  }
}

TEST(ScrambleTest, SpreadsNeighbours) {
  const Scramble scramble(1'000'000);
  double distance = 0;
  for (uint64_t i = 0; i + 1 < 1'000; ++i) {
    distance += std::abs(static_cast<double>(scramble(i)) - static_cast<double>(scramble(i + 1)));
  }
  EXPECT_NEAR(distance / 999, 1'000'000.0 / 3, 50'000);
}

TEST(MixBitsTest, IsABijectionOfSmallWords) {
  for (int bits : {1, 2, 3, 8, 13, 16}) {
    std::set<uint64_t> images;
    for (uint64_t i = 0; i < uint64_t{1} << bits; ++i) images.insert(MixBits(i, bits, 5));
    EXPECT_EQ(images.size(), size_t{1} << bits);
    EXPECT_LT(*images.rbegin(), uint64_t{1} << bits);
  }
  EXPECT_NE(MixBits(1, 64, 0), MixBits(2, 64, 0));
}

std::vector<uint64_t> Draw(const DistributionOptions& options, uint64_t n, int samples) {
  Random random(17);
  const auto distribution = Distribution::Create(options, n);
  std::vector<uint64_t> counts(n);
  for (int i = 0; i < samples; ++i) ++counts.at(distribution->Next(&random));
  return counts;
}

TEST(DistributionTest, UniformIsFlat) {
  for (uint64_t count : Draw({.name = "uniform"}, 100, 100'000)) EXPECT_NEAR(count, 1'000, 160);
}

TEST(DistributionTest, ZipfianIsScrambledAndLosesNothing) {
  std::vector<uint64_t> counts = Draw({.name = "zipfian", .theta = 0.9}, 100, 400'000);
  EXPECT_NE(std::max_element(counts.begin(), counts.end()), counts.begin());
  std::sort(counts.rbegin(), counts.rend());
  double zeta = 0;
  for (int i = 1; i <= 100; ++i) zeta += std::pow(i, -0.9);
  EXPECT_NEAR(counts[0], 400'000 / zeta, 1'500);
  EXPECT_GT(counts[99], 0u);
}

TEST(DistributionTest, LatestPrefersTheEndAndFollowsIt) {
  Random random(5);
  const auto latest = Distribution::Create({.name = "latest"}, 1'000);
  uint64_t newest = 0;
  for (int i = 0; i < 10'000; ++i) newest += latest->Next(&random) == 999 ? 1 : 0;
  EXPECT_GT(newest, 1'000u);
  latest->Grow(2'000);
  newest = 0;
  for (int i = 0; i < 10'000; ++i) newest += latest->Next(&random) == 1'999 ? 1 : 0;
  EXPECT_GT(newest, 1'000u);
  latest->Grow(10);  // never shrinks
  EXPECT_LT(latest->Next(&random), 2'000u);
}

TEST(DistributionTest, HotspotSplitsAsAsked) {
  const std::vector<uint64_t> counts =
      Draw({.name = "hotspot", .hotspot_items = 0.1, .hotspot_operations = 0.9}, 1'000, 1'000'000);
  int hot = 0;
  for (uint64_t count : counts) hot += count > 4'000 ? 1 : 0;
  EXPECT_EQ(hot, 100);
  for (uint64_t count : Draw({.name = "hotspot", .hotspot_items = 1}, 10, 10'000)) {
    EXPECT_NEAR(count, 1'000, 160);
  }
  EXPECT_EQ(Draw({.name = "hotspot"}, 1, 10)[0], 10u);
}

TEST(DistributionTest, RefusesNonsense) {
  EXPECT_TRUE(Distribution::Validate({}).ok());
  EXPECT_FALSE(Distribution::Validate({.name = "gaussian"}).ok());
  EXPECT_FALSE(Distribution::Validate({.name = "zipfian", .theta = 0}).ok());
  EXPECT_FALSE(Distribution::Validate({.name = "zipfian", .theta = 1}).ok());
  EXPECT_FALSE(Distribution::Validate({.name = "latest", .theta = std::nan("")}).ok());
  EXPECT_FALSE(Distribution::Validate({.name = "hotspot", .hotspot_items = 0}).ok());
  EXPECT_FALSE(Distribution::Validate({.name = "hotspot", .hotspot_operations = 1.5}).ok());
}

}  // namespace
}  // namespace pando::bench
