#include "compute/tool/input.h"

#include <fstream>

#include "common/base/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::tool {
namespace {

using testing::HasSubstr;

TEST(InputTest, ReadsWhatHasNoSize) {
  const auto status = ReadInput("/proc/self/status");
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_THAT(*status, HasSubstr("Pid:"));
}

TEST(InputTest, SaysWhatCannotBeRead) {
  const auto directory = ReadInput("/");
  EXPECT_TRUE(absl::IsInvalidArgument(directory.status()));
  EXPECT_THAT(std::string(directory.status().message()), HasSubstr("is a directory"));
  const auto nowhere = ReadInput("/no-such-file");
  EXPECT_TRUE(absl::IsInvalidArgument(nowhere.status()));
  EXPECT_THAT(std::string(nowhere.status().message()), HasSubstr("cannot open"));
}

TEST(InputTest, ValuesAreWordsDigitsOrFiles) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/value";
  const std::string bytes("\0\xff\n", 3);
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(ValueOf("word", false).value(), "word");
  EXPECT_EQ(ValueOf("", false).value(), "");
  EXPECT_EQ(ValueOf("00ff", true).value(), std::string("\0\xff", 2));
  EXPECT_EQ(ValueOf("@" + path, false).value(), bytes);
  EXPECT_EQ(ValueOf("@" + path, true).value(), bytes);
  EXPECT_EQ(ValueOf("@@home", false).value(), "@home");
  EXPECT_EQ(ValueOf("@@", false).value(), "@");
  EXPECT_TRUE(absl::IsInvalidArgument(ValueOf("@", false).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ValueOf("0", true).status()));
  EXPECT_EQ(KeyOf("@home", false).value(), "@home");
  std::ofstream(path, std::ios::binary) << std::string(65'537, 'x');
  EXPECT_THAT(std::string(ValueOf("@" + path, false).status().message()),
              HasSubstr("has more than 65536 bytes"));
  std::ofstream(path, std::ios::binary) << std::string(65'536, 'x');
  EXPECT_EQ(ValueOf("@" + path, false).value(), std::string(65'536, 'x'));
}

}  // namespace
}  // namespace pando::tool
