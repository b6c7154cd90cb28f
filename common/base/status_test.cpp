#include "common/base/status.h"

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/rule.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(StatusTest, OutcomeUnknownIsAStatusOfItsOwn) {
  const absl::Status status = OutcomeUnknownError("put: the write-back was posted");
  EXPECT_TRUE(IsOutcomeUnknown(status));
  EXPECT_EQ(status.message(), "put: the write-back was posted");
  EXPECT_FALSE(IsOutcomeUnknown(absl::OkStatus()));
  EXPECT_FALSE(IsOutcomeUnknown(absl::DeadlineExceededError("x")));
  EXPECT_FALSE(IsOutcomeUnknown(absl::UnavailableError("x")));
}

TEST(StatusTest, AFailedConditionIsTold) {
  const absl::Status status = ConditionFailedError("another value");
  EXPECT_TRUE(IsConditionFailed(status));
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_TRUE(IsConditionFailed(Annotate(status, "replace")));
  EXPECT_FALSE(IsConditionFailed(absl::FailedPreconditionError("cut off")));
  EXPECT_FALSE(IsConditionFailed(absl::OkStatus()));
}

TEST(StatusTest, AnnotateKeepsCodeAndPayload) {
  absl::Status status = absl::UnavailableError("server 2 is gone");
  status.SetPayload("pando/server", absl::Cord("2"));
  const absl::Status annotated = Annotate(status, "open tree 'words'");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(annotated.message(), "open tree 'words': server 2 is gone");
  EXPECT_EQ(annotated.GetPayload("pando/server"), absl::Cord("2"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "open").ok());
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::StatusOr<int> Quarter(int value) {
  PANDO_ASSIGN_OR_RETURN(const int half, Half(value));
  PANDO_ASSIGN_OR_RETURN(const int quarter, Half(half));
  PANDO_RETURN_IF_ERROR(absl::OkStatus());
  return quarter;
}

TEST(StatusTest, MacrosReturnTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status(), absl::InvalidArgumentError("odd"));
  EXPECT_EQ(Quarter(5).status(), absl::InvalidArgumentError("odd"));
}

void FailingCheck() { PANDO_CHECK(1 == 2) << "what happened"; }
void FailingCheckOk() { PANDO_CHECK_OK(absl::DataLossError("bad line")) << "seen"; }

TEST(CheckTest, DiesWithTheMessage) {
  PANDO_CHECK(true) << "never said";
  PANDO_CHECK_OK(absl::OkStatus());
  EXPECT_DEATH(FailingCheck(), "what happened");
  EXPECT_DEATH(PANDO_CHECK_EQ(1, 2), "1 vs. 2");
  EXPECT_DEATH(FailingCheckOk(), "bad line.*seen");
}

TEST(ClockTest, GoesForward) {
  const int64_t first = RealClock().NowNs();
  EXPECT_GT(first, 0);
  EXPECT_GE(RealClock().NowNs(), first);
}

TEST(RuleTest, NamesAndDefault) {
  EXPECT_EQ(RuleByName("F1"), Rule::kF1);
  EXPECT_EQ(RuleByName("R2"), Rule::kR2);
  EXPECT_EQ(RuleByName("f1"), Rule::kNone);
  EXPECT_EQ(RuleByName(""), Rule::kNone);
  EXPECT_TRUE(RuleHolds(Rule::kF1));
#ifdef PANDO_BROKEN_VARIANTS
  BreakRule(Rule::kF1);
  EXPECT_FALSE(RuleHolds(Rule::kF1));
  EXPECT_TRUE(RuleHolds(Rule::kF2));
  BreakRule(Rule::kNone);
  EXPECT_TRUE(RuleHolds(Rule::kF1));
#endif
}

}  // namespace
}  // namespace pando
