#include "common/program/file_limit.h"

#include <sys/resource.h>

#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(FileLimitTest, IsRaisedToTheHardLimitAndNoFurther) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low = {64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(GetFileLimit().now, 64u);
  EXPECT_EQ(RaiseFileLimit(), before.rlim_max);
  EXPECT_EQ(GetFileLimit().now, before.rlim_max);
  EXPECT_EQ(GetFileLimit().most, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace pando
