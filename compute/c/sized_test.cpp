// Structs of older and newer headers.
#include "compute/c/sized.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace pando::c {
namespace {

// A struct as it was, as it is, and as it will be.
struct Older {
  size_t size;
  int64_t a;
};
struct Present {
  size_t size;
  int64_t a, b;
};
struct Newer {
  size_t size;
  int64_t a, b, c;
};
constexpr Present kDefaults = {sizeof(Present), 1, 2};

template <typename Version>
absl::StatusOr<Present> Read(const Version& given) {
  return ReadSized(reinterpret_cast<const Present*>(&given), kDefaults, "options");
}

TEST(SizedTest, WhatOlderProgramsDoNotHaveIsAsByDefault) {
  const auto options = Read(Older{sizeof(Older), 7});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->size, sizeof(Present));
  EXPECT_EQ(options->a, 7);
  EXPECT_EQ(options->b, 2);
}

TEST(SizedTest, NewerProgramsMustNotSetWhatNobodyHereKnows) {
  const auto unset = Read(Newer{sizeof(Newer), 7, 8, 0});
  ASSERT_TRUE(unset.ok()) << unset.status();
  EXPECT_EQ(unset->a, 7);
  EXPECT_EQ(unset->b, 8);
  const auto set = Read(Newer{sizeof(Newer), 7, 8, 9});
  EXPECT_TRUE(absl::IsInvalidArgument(set.status())) << set.status();
}

TEST(SizedTest, NullIsTheDefaults) {
  const auto options = ReadSized<Present>(nullptr, kDefaults, "options");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->a, 1);
}

TEST(SizedTest, SizesThatCannotBeAreRefused) {
  for (const size_t size : {size_t{0}, size_t{4}, size_t{12}, size_t{23}, size_t{4104}, SIZE_MAX}) {
    const auto options = Read(Newer{size, 7, 8, 0});
    EXPECT_TRUE(absl::IsInvalidArgument(options.status())) << size;
    Newer to{size, 7, 8, 9};
    auto* const present = reinterpret_cast<Present*>(&to);
    EXPECT_FALSE(WriteSized(kDefaults, present, "info").ok()) << size;
    EXPECT_FALSE(CheckSized(present, "info").ok()) << size;
    EXPECT_EQ(to.a, 7);
  }
}

TEST(SizedTest, NoMoreIsWrittenThanThereIsRoomFor) {
  Present to{sizeof(Older), 7, 8};
  ASSERT_TRUE(WriteSized(kDefaults, &to, "info").ok());
  EXPECT_EQ(to.size, sizeof(Older)) << "its owner's";
  EXPECT_EQ(to.a, 1);
  EXPECT_EQ(to.b, 8);
  Newer longer{sizeof(Newer), 7, 8, 9};
  ASSERT_TRUE(WriteSized(kDefaults, reinterpret_cast<Present*>(&longer), "info").ok());
  EXPECT_EQ(longer.b, 2);
  EXPECT_EQ(longer.c, 0) << "nobody here knows it";
  EXPECT_FALSE(WriteSized<Present>(kDefaults, nullptr, "info").ok());
}

TEST(SizedTest, NumbersThatDoNotFitAreRefused) {
  int number = 5;
  EXPECT_TRUE(Narrow(int64_t{-1}, "n", &number).ok());
  EXPECT_EQ(number, -1);
  EXPECT_FALSE(Narrow(int64_t{1} << 31, "n", &number).ok());
  uint32_t unsigned_number = 5;
  EXPECT_FALSE(Narrow(uint64_t{1} << 32, "n", &unsigned_number).ok());
  EXPECT_EQ(unsigned_number, 5u);
  bool flag = false;
  EXPECT_TRUE(ReadFlag(1, "f", &flag).ok());
  EXPECT_TRUE(flag);
  EXPECT_FALSE(ReadFlag(2, "f", &flag).ok());
  EXPECT_FALSE(ReadFlag(-1, "f", &flag).ok());
}

}  // namespace
}  // namespace pando::c
