#include "common/base/log_hook.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LogHookTest : public testing::Test {
 protected:
  ~LogHookTest() override { SetLogHook(nullptr); }
};

TEST_F(LogHookTest, GetsTheLineInPlaceOfGlog) {
  struct Kept {
    int severity, line;
    std::string file, message;
    std::chrono::system_clock::time_point time;
  };
  std::vector<Kept> kept;
  SetLogHook([&](const LogLine& line) {
    kept.push_back(
        {line.severity, line.line, std::string(line.file), std::string(line.message), line.time});
  });
  testing::internal::CaptureStderr();
  const auto before = std::chrono::system_clock::now();
  PANDO_LOG(INFO) << "one " << 1;
  const int line_of_second = __LINE__ + 1;
  PANDO_LOG(WARNING) << "two";
  PANDO_LOG(ERROR) << "";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0].message, "one 1");
  EXPECT_EQ(kept[1].message, "two");
  EXPECT_EQ(kept[2].message, "");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(kept[i].severity, i);
  EXPECT_EQ(kept[1].file, "log_hook_test.cpp");
  EXPECT_EQ(kept[1].line, line_of_second);
  EXPECT_GE(kept[1].time, before);
  EXPECT_LE(kept[1].time, std::chrono::system_clock::now());
}

TEST_F(LogHookTest, WithoutOneGlogGetsTheLine) {
  int lines = 0;
  SetLogHook([&](const LogLine&) { ++lines; });
  SetLogHook(nullptr);
  testing::internal::CaptureStderr();
  PANDO_LOG(WARNING) << "to glog";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("to glog"));
  EXPECT_EQ(lines, 0);
}

TEST_F(LogHookTest, WhatAHookLogsGoesToGlog) {
  std::vector<std::string> kept;
  SetLogHook([&](const LogLine& line) {
    kept.emplace_back(line.message);
    PANDO_LOG(WARNING) << "from inside";
  });
  testing::internal::CaptureStderr();
  PANDO_LOG(WARNING) << "from outside";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("from inside"));
  EXPECT_THAT(kept, ElementsAre("from outside"));
}

TEST_F(LogHookTest, AFailedCheckGoesToBoth) {
  // The hook's words come on standard error here, because the process that dies is another one.
  SetLogHook([](const LogLine& line) { fprintf(stderr, "hook: %d\n", line.severity); });
  EXPECT_DEATH(PANDO_CHECK(1 == 2) << "why", "hook: 3\n(.|\n)*Check failed: 1 == 2 why");
  EXPECT_DEATH(PANDO_CHECK_EQ(1, 2), "hook: 3\n(.|\n)*Check failed: 1 == 2 .1 vs. 2");
}

TEST_F(LogHookTest, MayNotBeSetByItself) {
  EXPECT_DEATH(
      {
        SetLogHook([](const LogLine&) { SetLogHook(nullptr); });
        PANDO_LOG(INFO) << "x";
      },
      "a log sink may not set the log sink");
}

// Run it under ThreadSanitizer: `mine` is plain memory of each hook.
TEST_F(LogHookTest, IsReplacedWhileThreadsLog) {
  constexpr int kThreads = 4, kReplacements = 100;
  std::atomic<bool> stop{false};
  std::atomic<int> received{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&stop, t] {
      while (!stop.load()) {
        PANDO_LOG(INFO) << "thread " << t;
        std::this_thread::yield();
      }
    });
  }
  SetLogHook([&received](const LogLine&) { ++received; });
  for (int i = 0; i < kReplacements || received.load() == 0; ++i) {
    std::string mine;
    bool gone = false;
    SetLogHook([&](const LogLine& line) {
      EXPECT_FALSE(gone);
      mine = line.message;
      ++received;
    });
    std::this_thread::yield();
    SetLogHook([&received](const LogLine&) { ++received; });
    // It is neither running nor called again.
    gone = true;
    if (!mine.empty()) {
      EXPECT_THAT(mine, HasSubstr("thread "));
    }
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace pando
