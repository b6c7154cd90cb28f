#include "memory/serving_leases.h"

#include "gtest/gtest.h"

namespace pando::memory {
namespace {

constexpr int64_t kLeaseNs = 100, kStartNs = 1000;

TEST(ServingLeasesTest, RunFromTheLastPingAndFromTheServersStart) {
  ServingLeases leases(kLeaseNs, kStartNs);
  const ClientId anna = {1, 1};
  EXPECT_EQ(leases.OverNs(anna), kStartNs + kLeaseNs) << "an earlier life may have granted one";
  leases.Renew(anna, kStartNs + 50);
  EXPECT_EQ(leases.OverNs(anna), kStartNs + 150);
  leases.Renew(anna, kStartNs + 90);
  EXPECT_EQ(leases.OverNs(anna), kStartNs + 190);
  EXPECT_EQ(leases.OverNs({1, 2}), kStartNs + kLeaseNs) << "another life";
}

TEST(ServingLeasesTest, RememberOnlyThoseThatRun) {
  ServingLeases leases(kLeaseNs, kStartNs);
  for (uint32_t i = 1; i <= 1000; ++i) leases.Renew({1, i}, kStartNs + 10 * i);
  EXPECT_LE(leases.size(), 11u);
  EXPECT_EQ(leases.OverNs({1, 1000}), kStartNs + 10'000 + kLeaseNs);
}

TEST(ServingLeasesTest, NoneAreNobodys) {
  ServingLeases leases(0, kStartNs);
  leases.Renew({1, 1}, kStartNs);
  EXPECT_LT(leases.OverNs({1, 1}), 0);
  EXPECT_EQ(leases.size(), 0u);
}

}  // namespace
}  // namespace pando::memory
