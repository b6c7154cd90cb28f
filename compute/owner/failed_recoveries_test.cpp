#include "compute/owner/failed_recoveries.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

constexpr MemberId kOne = {.compute_server = 1, .incarnation = 7};
constexpr MemberId kOther = {.compute_server = 1, .incarnation = 8};

TEST(FailedRecoveries, AreKeptForAsLongAsFindingOutTook) {
  FailedRecoveries failed;
  EXPECT_TRUE(failed.Find(kOne, 0, 1).ok());
  failed.Note(kOne, absl::UnavailableError("gone"), 1'000, 1'300, 1);
  EXPECT_TRUE(absl::IsUnavailable(failed.Find(kOne, 1'300, 1)));
  EXPECT_TRUE(absl::IsUnavailable(failed.Find(kOne, 1'599, 1)));
  EXPECT_TRUE(failed.Find(kOne, 1'600, 1).ok());
  EXPECT_TRUE(failed.Find(kOther, 1'300, 1).ok());
}

TEST(FailedRecoveries, AreKeptForALooksPauseAtMost) {
  FailedRecoveries failed;
  constexpr int64_t kFoundNs = 10 * kSecondNs;
  failed.Note(kOne, absl::DataLossError("no base line"), 0, kFoundNs, 1);
  EXPECT_TRUE(absl::IsDataLoss(failed.Find(kOne, kFoundNs + FailedRecoveries::kKeptNsMax - 1, 1)));
  EXPECT_TRUE(failed.Find(kOne, kFoundNs + FailedRecoveries::kKeptNsMax, 1).ok());
}

TEST(FailedRecoveries, CountNoMoreOnceServersHaveComeOrSomebodyTriesAgain) {
  FailedRecoveries failed;
  failed.Note(kOne, absl::UnavailableError("gone"), 0, 100, 1);
  failed.Note(kOther, absl::UnavailableError("gone, too"), 0, 100, 1);
  EXPECT_TRUE(failed.Find(kOne, 150, 2).ok());
  failed.Forget(kOne);
  EXPECT_TRUE(failed.Find(kOne, 150, 1).ok());
  EXPECT_FALSE(failed.Find(kOther, 150, 1).ok());
}

}  // namespace
}  // namespace pando
