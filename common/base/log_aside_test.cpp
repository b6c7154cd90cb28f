#include "common/base/log_aside.h"

#include <future>
#include <string>
#include <vector>

#include "common/base/log_hook.h"
#include "common/base/quiet_thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;

class LogAsideTest : public testing::Test {
 protected:
  ~LogAsideTest() override { SetLogHook(nullptr); }
};

TEST_F(LogAsideTest, ASinkThatTakesItsTimeHoldsNobodyUp) {
  std::promise<void> goes_on;
  std::shared_future<void> may_go_on = goes_on.get_future().share();
  std::vector<std::string> lines;
  SetLogHook([&](const LogLine& line) {
    may_go_on.wait();
    EXPECT_EQ(line.file, "log_aside_test.cpp");
    lines.emplace_back(line.message);
  });
  {
    LogAside log;
    log.Warn(__FILE__, __LINE__, "one");
    log.Warn(__FILE__, __LINE__, "two");
    log.Warn(__FILE__, __LINE__, "three");
    goes_on.set_value();
  }
  EXPECT_THAT(lines, ElementsAre("one", "two", "three"));
}

TEST_F(LogAsideTest, WhatIsTooMuchIsCounted) {
  std::promise<void> goes_on;
  std::shared_future<void> may_go_on = goes_on.get_future().share();
  std::vector<std::string> lines;
  SetLogHook([&](const LogLine& line) {
    may_go_on.wait();
    lines.emplace_back(line.message);
  });
  {
    LogAside log;
    for (size_t i = 0; i < LogAside::kLinesMax + 10; ++i) log.Warn(__FILE__, __LINE__, "a line");
    goes_on.set_value();
  }
  // One of them may be in the sink's hands, and no more in those that wait.
  EXPECT_GE(lines.size(), LogAside::kLinesMax + 1);
  EXPECT_NE(lines.back().find("more lines like it were left out"), std::string::npos)
      << lines.back();
}

TEST_F(LogAsideTest, WithoutAThreadItSaysTheLineItself) {
  std::vector<std::string> lines;
  SetLogHook([&](const LogLine& line) {
    EXPECT_EQ(line.file, "log_aside_test.cpp");
    lines.emplace_back(line.message);
  });
  LimitQuietThreads(0);
  LogAside log;
  log.Warn(__FILE__, __LINE__, "one");
  LimitQuietThreads(-1);
  EXPECT_THAT(lines, ElementsAre("one"));
}

}  // namespace
}  // namespace pando
