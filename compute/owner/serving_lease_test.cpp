#include "compute/owner/serving_lease.h"

#include "compute/owner/set_clock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

constexpr int64_t kLeaseNs = 400 * kMillisecondNs;

TEST(ServingLeaseTest, CountsThreeQuartersFromTheFirstSend) {
  SetClock clock;
  ServingLease lease(kLeaseNs, &clock);
  EXPECT_TRUE(lease.has_lease());
  EXPECT_FALSE(lease.Held());
  const int64_t sent_ns = clock.now_ns;
  clock.now_ns += 10 * kMillisecondNs;
  lease.Renew(sent_ns);
  EXPECT_TRUE(lease.Held());
  clock.now_ns = sent_ns + kLeaseNs / 4 * 3 - 1;
  EXPECT_TRUE(lease.Held());
  ++clock.now_ns;
  EXPECT_FALSE(lease.Held());
  // One that was sent before the last one and answered after it.
  lease.Renew(clock.now_ns);
  lease.Renew(sent_ns);
  EXPECT_TRUE(lease.Held());
  lease.End();
  EXPECT_FALSE(lease.Held());
  lease.Renew(clock.now_ns);
  EXPECT_FALSE(lease.Held()) << "it has ended";
}

// A counter that was set back, by a machine that was suspended, comes by the same time again.
TEST(ServingLeaseTest, WhatIsOverIsHeldAgainOnlyOnceRenewed) {
  SetClock clock;
  ServingLease lease(kLeaseNs, &clock);
  lease.Renew(clock.now_ns);
  clock.now_ns += kLeaseNs;
  EXPECT_FALSE(lease.Held());
  clock.now_ns -= kLeaseNs;
  EXPECT_FALSE(lease.Held());
  lease.Renew(clock.now_ns + 1);
  EXPECT_TRUE(lease.Held());
}

TEST(ServingLeaseTest, WithoutLeasesIsAlwaysHeld) {
  ServingLease lease(0, &BoottimeClock());
  EXPECT_FALSE(lease.has_lease());
  EXPECT_TRUE(lease.Held());
}

// By the machine's clock, where the processor's counter stands for it.
TEST(ServingLeaseTest, IsNotHeldLongerByTheMachinesClock) {
  ServingLease lease(kLeaseNs / 4, &BoottimeClock());
  const int64_t until_ns = lease.NowNs() + kLeaseNs / 16 * 3;
  lease.Renew(lease.NowNs());
  ASSERT_TRUE(lease.Held());
  int64_t last_held_ns = 0;
  while (true) {
    const int64_t now_ns = lease.NowNs();
    if (!lease.Held()) break;
    last_held_ns = now_ns;
  }
  EXPECT_LT(last_held_ns, until_ns + kMillisecondNs);
  lease.Renew(lease.NowNs());
  EXPECT_TRUE(lease.Held());
  lease.End();
  EXPECT_FALSE(lease.Held());
}

}  // namespace
}  // namespace pando
