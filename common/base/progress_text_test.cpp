#include "common/base/progress_text.h"

#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(ProgressTextTest, SaysHowFarHowFastAndHowLong) {
  EXPECT_EQ(ProgressText("loaded", 120'000, 24, 100, 2),
            "loaded 120000 keys (24 %), 60.0 k a second, 6 s left");
  EXPECT_EQ(ProgressText("dumped", 1000, 1000, 0, 1), "dumped 1000 keys, 1.00 k a second");
  EXPECT_EQ(ProgressText("loaded", 0, 0, 10, 0), "loaded 0 keys (0 %)");
  EXPECT_EQ(ProgressText("loaded", 10, 10, 10, 10), "loaded 10 keys (100 %), 1 a second");
  // More than was estimated.
  EXPECT_EQ(ProgressText("dumped", 12, 12, 10, 1), "dumped 12 keys (100 %), 12 a second");
  EXPECT_EQ(ProgressText("loaded", 600, 1, 7, 600),
            "loaded 600 keys (14 %), 1 a second, 60 min left");
  EXPECT_EQ(ProgressText("loaded", 3600, 1, 11, 3600),
            "loaded 3600 keys (9 %), 1 a second, 10 h left");
}

}  // namespace
}  // namespace pando
