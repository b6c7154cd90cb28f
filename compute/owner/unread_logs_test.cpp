#include "compute/owner/unread_logs.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

constexpr MemberId kOne = {.compute_server = 1, .incarnation = 7};
constexpr MemberId kOther = {.compute_server = 1, .incarnation = 8};

TEST(UnreadLogs, AreKeptForAsLongAsFindingOutTook) {
  UnreadLogs logs;
  EXPECT_TRUE(logs.Find(kOne, 0, 1).ok());
  logs.Note(kOne, absl::UnavailableError("gone"), 1'000, 1'300, 1);
  EXPECT_TRUE(absl::IsUnavailable(logs.Find(kOne, 1'300, 1)));
  EXPECT_TRUE(absl::IsUnavailable(logs.Find(kOne, 1'599, 1)));
  EXPECT_TRUE(logs.Find(kOne, 1'600, 1).ok());
  EXPECT_TRUE(logs.Find(kOther, 1'300, 1).ok());
}

TEST(UnreadLogs, AreKeptForALooksPauseAtMost) {
  UnreadLogs logs;
  constexpr int64_t kFoundNs = 10 * kSecondNs;
  logs.Note(kOne, absl::DataLossError("no base line"), 0, kFoundNs, 1);
  EXPECT_TRUE(absl::IsDataLoss(logs.Find(kOne, kFoundNs + UnreadLogs::kKeptNsMax - 1, 1)));
  EXPECT_TRUE(logs.Find(kOne, kFoundNs + UnreadLogs::kKeptNsMax, 1).ok());
}

TEST(UnreadLogs, CountNoMoreOnceServersHaveComeOrSomebodyTriesAgain) {
  UnreadLogs logs;
  logs.Note(kOne, absl::UnavailableError("gone"), 0, 100, 1);
  logs.Note(kOther, absl::UnavailableError("gone, too"), 0, 100, 1);
  EXPECT_TRUE(logs.Find(kOne, 150, 2).ok());
  logs.Forget(kOne);
  EXPECT_TRUE(logs.Find(kOne, 150, 1).ok());
  EXPECT_FALSE(logs.Find(kOther, 150, 1).ok());
}

}  // namespace
}  // namespace pando
