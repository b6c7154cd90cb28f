#include "bench/nic/nic_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace pando::bench {
namespace {

// How far the model may be from what was published.
constexpr double kTolerance = 0.15;

class ProfileTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ProfileTest, IsCloseToWhatWasPublished) {
  const auto profile = LoadNicProfile(GetParam());
  ASSERT_TRUE(profile.ok()) << profile.status();
  for (const NicProfile::Published& load : profile->published) {
    const double simulated = ValueOf(RunNicBench(*profile, load), load);
    EXPECT_LE(std::abs(simulated / load.value - 1), kTolerance)
        << DescribeLoad(load) << ": published " << load.value << " " << load.unit << ", simulated "
        << simulated << " (" << load.source << ")";
  }
}

INSTANTIATE_TEST_SUITE_P(Nic, ProfileTest,
                         ::testing::Values("connectx5-100g", "connectx6-100g", "softroce"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(NicBenchTest, BandwidthLimitsLongReads) {
  const auto profile = LoadNicProfile("connectx5-100g");
  ASSERT_TRUE(profile.ok());
  NicProfile::Published load = {.verb = "read", .threads = 24, .batch = 16};
  const double small = RunNicBench(*profile, load).mops;
  load.bytes = 4096;
  const double large = RunNicBench(*profile, load).mops;
  EXPECT_LT(large, small);
  // 100 Gb/s are 12.5 GB/s, and headers take 2 %.
  EXPECT_NEAR(large * 4096, 12'200, 400);
}

TEST(NicBenchTest, FewAddressesAreSlowInHostMemoryAndLessSoOnChip) {
  const auto profile = LoadNicProfile("connectx5-100g");
  ASSERT_TRUE(profile.ok());
  NicProfile::Published load = {.verb = "cas", .threads = 24, .batch = 8};
  const auto rate = [&](uint64_t addresses, bool on_chip) {
    load.addresses = addresses;
    load.on_chip = on_chip;
    return RunNicBench(*profile, load).mops;
  };
  EXPECT_GT(rate(1, true), 2.5 * rate(1, false));
  EXPECT_GT(rate(16, false), 4 * rate(1, false));
  EXPECT_LT(rate(16, false), 17 * rate(1, false));
  EXPECT_GT(rate(4096, true), rate(4096, false));
}

TEST(NicBenchTest, ABatchHasADoorbellAChainAndAWindowOneAList) {
  const auto profile = LoadNicProfile("connectx5-100g");
  ASSERT_TRUE(profile.ok());
  NicProfile::Published load = {.verb = "write", .batch = 64};
  const NicResult batch = RunNicBench(*profile, load);
  EXPECT_EQ(batch.doorbells, batch.verbs);
  load.window = true;
  const NicResult window = RunNicBench(*profile, load);
  EXPECT_LT(window.doorbells, window.verbs / 2);
  EXPECT_GT(window.mops, 2 * batch.mops);
  // With one in flight there is nothing to share.
  load = {.verb = "write"};
  const NicResult alone = RunNicBench(*profile, load);
  load.window = true;
  EXPECT_NEAR(RunNicBench(*profile, load).mean_us, alone.mean_us, 0.001);
}

TEST(NicBenchTest, SameLoadSameNumbers) {
  const auto profile = LoadNicProfile("connectx6-100g");
  ASSERT_TRUE(profile.ok());
  const NicProfile::Published load = {.verb = "cas", .threads = 8, .batch = 4, .addresses = 3};
  const NicResult a = RunNicBench(*profile, load), b = RunNicBench(*profile, load);
  EXPECT_EQ(a.mops, b.mops);
  EXPECT_EQ(a.mean_us, b.mean_us);
  EXPECT_EQ(a.verbs, b.verbs);
}

TEST(NicBenchTest, AnUnknownProfileIsRefusedWithWhatThereIs) {
  const auto profile = LoadNicProfile("connectx9");
  EXPECT_TRUE(absl::IsNotFound(profile.status()));
  EXPECT_THAT(std::string(profile.status().message()),
              ::testing::HasSubstr("connectx5-100g connectx6-100g softroce"));
}

}  // namespace
}  // namespace pando::bench
