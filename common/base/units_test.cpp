#include "common/base/units.h"

#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(UnitsTest, ParsesWhatPeopleWrite) {
  EXPECT_EQ(*ParseBytes("0"), 0u);
  EXPECT_EQ(*ParseBytes("4096"), 4096u);
  EXPECT_EQ(*ParseBytes("64K"), 64 * kKiB);
  EXPECT_EQ(*ParseBytes(" 2 MB "), 2 * kMiB);
  EXPECT_EQ(*ParseBytes("1.5gib"), 3 * kGiB / 2);
  EXPECT_EQ(*ParseBytes("1TiB"), 1024 * kGiB);
  EXPECT_EQ(*ParseBytes("9223372036854775807"), (uint64_t{1} << 63) - 1);
}

TEST(UnitsTest, RefusesTheRest) {
  for (const char* text : {"", "K", "-1", "1X", "1KBB", "1.2.3K", "9223372036854775808", "1.5",
                           "99999999T", "1e9", "0x10", "4 K M"}) {
    EXPECT_EQ(ParseBytes(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(UnitsTest, FormatsBytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(64 * kKiB), "64.0 KiB");
  EXPECT_EQ(FormatBytes(kMiB - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(3 * kGiB / 2), "1.5 GiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16.0 EiB");
}

TEST(UnitsTest, FormatsCounts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(950), "950");
  EXPECT_EQ(FormatCount(1.5), "1.50");
  EXPECT_EQ(FormatCount(12'345), "12.3 k");
  EXPECT_EQ(FormatCount(999'999), "1.00 M");
  EXPECT_EQ(FormatCount(4'560'000), "4.56 M");
}

}  // namespace
}  // namespace pando
