#include "compute/tool/exit_code.h"

#include <map>
#include <set>

#include "gtest/gtest.h"

namespace pando::tool {
namespace {

TEST(ExitCodeTest, EveryStatusCodeHasItsExitCode) {
  using enum absl::StatusCode;
  const std::map<absl::StatusCode, int> expected = {{kOk, 0},
                                                    {kNotFound, 1},
                                                    {kAlreadyExists, 1},
                                                    {kFailedPrecondition, 1},
                                                    {kInvalidArgument, 2},
                                                    {kOutOfRange, 2},
                                                    {kUnavailable, 69},
                                                    {kDeadlineExceeded, 69},
                                                    {kResourceExhausted, 69},
                                                    {kPermissionDenied, 69},
                                                    {kUnauthenticated, 69},
                                                    {kUnimplemented, 69},
                                                    {kCancelled, 69},
                                                    {kAborted, 69},
                                                    {kUnknown, 69},
                                                    {kInternal, 70},
                                                    {kDataLoss, 74}};
  // All that there are: 0 to 16.
  for (int code = 0; code <= 16; ++code) {
    const auto status = static_cast<absl::StatusCode>(code);
    ASSERT_TRUE(expected.contains(status)) << absl::StatusCodeToString(status);
    EXPECT_EQ(ExitCodeOf(status), expected.at(status)) << absl::StatusCodeToString(status);
  }
  EXPECT_EQ(ExitCodeOf(static_cast<absl::StatusCode>(99)), 70);
}

TEST(ExitCodeTest, EachCodeHasAText) {
  std::set<int> codes;
  for (int code = 0; code <= 16; ++code) codes.insert(ExitCodeOf(absl::StatusCode(code)));
  for (const auto& [code, text] : kExitCodeTexts) {
    EXPECT_EQ(codes.erase(code), 1u) << code;
    EXPECT_STRNE(text, "");
  }
  EXPECT_TRUE(codes.empty());
}

}  // namespace
}  // namespace pando::tool
