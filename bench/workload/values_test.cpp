#include "bench/workload/values.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace pando::bench {
namespace {

TEST(ValuesTest, NoTwoWritersEverWriteTheSame) {
  std::set<std::string> seen;
  std::string value;
  for (uint64_t writer = 0; writer < 7; ++writer) {
    Values values(3, writer, 7);
    for (int i = 0; i < 1'000; ++i) {
      values.Next(&value);
      EXPECT_EQ(value.size(), 3u);
      EXPECT_TRUE(seen.insert(value).second);
    }
    EXPECT_EQ(values.written(), 1'000u);
  }
}

TEST(ValuesTest, CapacityIsTheFirstRepetition) {
  EXPECT_EQ(Values::Capacity(0, 1), 1u);
  EXPECT_EQ(Values::Capacity(1, 1), 64u);
  EXPECT_EQ(Values::Capacity(2, 10), 409u);
  EXPECT_GT(Values::Capacity(255, 1'000), uint64_t{1} << 50);
  std::set<std::string> seen;
  for (uint64_t writer = 0; writer < 10; ++writer) {
    const Values values(2, writer, 10);
    for (uint64_t i = 0; i < Values::Capacity(2, 10); ++i) {
      std::string value;
      values.Make(i, &value);
      EXPECT_TRUE(seen.insert(value).second);
    }
  }
}

TEST(ValuesTest, WhatIsSkippedIsNotWritten) {
  std::set<std::string> before;
  std::string value;
  uint64_t used = 0;
  for (uint64_t writer = 0; writer < 3; ++writer) {
    Values values(3, writer, 3);
    for (int i = 0; i < 100; ++i) {
      values.Next(&value);
      before.insert(value);
      used = std::max(used, *Values::NumberOf(value) + 1);
    }
  }
  EXPECT_EQ(used, 300u);
  for (uint64_t writer = 0; writer < 5; ++writer) {
    Values values(3, writer, 5);
    values.Skip(used);
    for (int i = 0; i < 200; ++i) {
      values.Next(&value);
      EXPECT_TRUE(before.insert(value).second) << value;
    }
  }
  EXPECT_EQ(Values::Capacity(2, 10, 96), 400u);
  EXPECT_EQ(Values::Capacity(2, 10, 4'096), 0u);
  EXPECT_EQ(Values::Capacity(255, 10, UINT64_MAX), 0u);
}

TEST(ValuesTest, OnlyWhatSomebodyMakesHasANumber) {
  for (const uint64_t number : {uint64_t{0}, uint64_t{12'345}, UINT64_MAX}) {
    std::string value;
    Values(20, 0, 1).Make(number, &value);
    EXPECT_EQ(Values::NumberOf(value), number);
  }
  EXPECT_EQ(Values::NumberOf(""), 0u);
  EXPECT_EQ(Values::NumberOf("a b"), std::nullopt);
  EXPECT_EQ(Values::NumberOf(std::string(1, '\0')), std::nullopt);
  EXPECT_EQ(Values::NumberOf("G0000000000"), std::nullopt) << "over 64 bits";
}

TEST(ValuesTest, AnyLengthIsKept) {
  std::string value;
  for (uint32_t bytes : {0u, 1u, 8u, 100u, 255u}) {
    Values(bytes, 0, 1).Make(12'345, &value);
    EXPECT_EQ(value.size(), bytes);
  }
}

}  // namespace
}  // namespace pando::bench
