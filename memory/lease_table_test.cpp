#include "memory/lease_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pando::memory {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kTableLeaseNs = 1000;

// Steps as often as the table asks for, up to and including `until_ns`.
std::vector<PeerId> StepUntil(LeaseTable* leases, int64_t until_ns) {
  std::vector<PeerId> all;
  while (leases->NextStepNs() <= until_ns) {
    for (const PeerId peer : leases->Step(leases->NextStepNs())) all.push_back(peer);
  }
  return all;
}

TEST(LeaseTableTest, SilentPeersRunOutOnceAndOthersDoNot) {
  LeaseTable leases(kTableLeaseNs);
  leases.Renew(1, 0);
  leases.Renew(2, 0);
  EXPECT_THAT(StepUntil(&leases, 900), IsEmpty());
  leases.Renew(2, 900);
  EXPECT_THAT(StepUntil(&leases, 1500), ElementsAre(1));
  EXPECT_THAT(StepUntil(&leases, 1750), IsEmpty());
  EXPECT_THAT(StepUntil(&leases, 2500), ElementsAre(2));
  EXPECT_EQ(leases.NextStepNs(), kNeverNs);
}

TEST(LeaseTableTest, AGapInTheOwnTimerStartsAllLeasesAgain) {
  LeaseTable leases(kTableLeaseNs);
  leases.Renew(1, 0);
  EXPECT_THAT(leases.Step(5000), IsEmpty());
  EXPECT_THAT(StepUntil(&leases, 5900), IsEmpty());
  EXPECT_THAT(StepUntil(&leases, 6500), ElementsAre(1));
}

TEST(LeaseTableTest, TheForgottenHaveNone) {
  LeaseTable leases(kTableLeaseNs);
  leases.Renew(1, 0);
  leases.Forget(1);
  EXPECT_EQ(leases.NextStepNs(), kNeverNs);
}

TEST(LeaseTableTest, WithoutLeasesNobodyRunsOut) {
  LeaseTable leases(0);
  leases.Renew(1, 0);
  EXPECT_EQ(leases.NextStepNs(), kNeverNs);
  EXPECT_THAT(leases.Step(1'000'000), IsEmpty());
}

}  // namespace
}  // namespace pando::memory
