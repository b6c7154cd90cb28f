#include "compute/client/upsert_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/base/status.h"

namespace pando {
namespace {

constexpr auto kMine = static_cast<UpsertFunction>(1024);

class UpsertTableTest : public testing::Test {
 protected:
  absl::StatusOr<std::string> Call(UpsertFunction function, std::optional<std::string> present,
                                   const std::string& operand) {
    const UpsertCallback* const callback = table_.Find(function);
    if (callback == nullptr) return absl::InternalError("no function");
    if (!present.has_value()) return (*callback)("key", std::nullopt, operand);
    return (*callback)("key", *present, operand);
  }
  std::optional<int64_t> OfNumbers(UpsertFunction function, int64_t present, int64_t operand) {
    const auto value = Call(function, Int64Value(present), Int64Value(operand));
    return value.ok() ? ParseInt64Value(*value) : std::nullopt;
  }

  UpsertTable table_;
};

TEST_F(UpsertTableTest, NumbersAreEightBytesLittleEndian) {
  EXPECT_EQ(Int64Value(258), std::string("\x02\x01\0\0\0\0\0\0", 8));
  EXPECT_EQ(Int64Value(-1), std::string(8, '\xff'));
  EXPECT_EQ(ParseInt64Value(Int64Value(INT64_MIN)), INT64_MIN);
  EXPECT_EQ(ParseInt64Value("1234567"), std::nullopt);
}

TEST_F(UpsertTableTest, AddsTakesTheLesserAndTheGreaterOfSignedNumbers) {
  EXPECT_EQ(OfNumbers(UpsertFunction::kAdd, 40, 2), 42);
  EXPECT_EQ(OfNumbers(UpsertFunction::kAdd, 1, -3), -2);
  EXPECT_EQ(OfNumbers(UpsertFunction::kAdd, INT64_MAX, 1), INT64_MIN) << "sums wrap around";
  EXPECT_EQ(OfNumbers(UpsertFunction::kMin, -1, 1), -1);
  EXPECT_EQ(OfNumbers(UpsertFunction::kMax, -1, 1), 1);
}

TEST_F(UpsertTableTest, AnAbsentKeyGetsTheOperand) {
  for (const auto function : {UpsertFunction::kAdd, UpsertFunction::kMin, UpsertFunction::kMax}) {
    EXPECT_EQ(*Call(function, std::nullopt, Int64Value(-7)), Int64Value(-7));
  }
  EXPECT_EQ(*Call(UpsertFunction::kAppend, std::nullopt, "x"), "x");
  EXPECT_EQ(*Call(UpsertFunction::kAppend, "ab", "x"), "abx");
}

TEST_F(UpsertTableTest, WhatIsNoNumberIsRefused) {
  EXPECT_TRUE(IsConditionFailed(Call(UpsertFunction::kAdd, "seven", Int64Value(1)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckOperand(UpsertFunction::kAdd, "seven", 8)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckOperand(UpsertFunction::kMin, Int64Value(1), 7)));
  EXPECT_TRUE(CheckOperand(UpsertFunction::kMax, Int64Value(1), 8).ok());
  EXPECT_TRUE(CheckOperand(UpsertFunction::kAppend, "", 0).ok());
}

TEST_F(UpsertTableTest, ProgramsRegisterTheirOwnOnce) {
  const UpsertCallback function = [](std::string_view key, std::optional<std::string_view> present,
                                     std::string_view operand) {
    return std::string(key) + "/" + std::string(present.value_or("-")) + "/" + std::string(operand);
  };
  EXPECT_EQ(table_.Find(kMine), nullptr);
  EXPECT_TRUE(table_.Register(1024, function).ok());
  EXPECT_EQ(*Call(kMine, std::nullopt, "x"), "key/-/x");
  EXPECT_EQ(*Call(kMine, "", "x"), "key//x") << "an empty value is there";
  EXPECT_TRUE(absl::IsAlreadyExists(table_.Register(1024, function)));
  EXPECT_TRUE(absl::IsInvalidArgument(table_.Register(1023, function)));
  EXPECT_TRUE(absl::IsInvalidArgument(table_.Register(1025, nullptr)));
}

TEST_F(UpsertTableTest, NothingButAnAnswerComesOutOfAFunction) {
  const auto fails = [&](uint32_t number, const UpsertCallback& function) {
    EXPECT_TRUE(table_.Register(number, function).ok());
    return Call(static_cast<UpsertFunction>(number), "present", "x").status();
  };
  const absl::Status thrown =
      fails(2000, [](auto...) -> absl::StatusOr<std::string> { throw std::runtime_error("oh"); });
  EXPECT_TRUE(IsConditionFailed(thrown)) << thrown;
  EXPECT_EQ(thrown.message(), "upsert function 2000: threw: oh");
  EXPECT_TRUE(
      IsConditionFailed(fails(2001, [](auto...) -> absl::StatusOr<std::string> { throw 17; })));
  // Not with its code: the operation's outcome is known, and it is no deadline of Pando's.
  const absl::Status refused = fails(2002, [](auto...) -> absl::StatusOr<std::string> {
    return absl::DeadlineExceededError("no time");
  });
  EXPECT_TRUE(IsConditionFailed(refused)) << refused;
}

}  // namespace
}  // namespace pando
