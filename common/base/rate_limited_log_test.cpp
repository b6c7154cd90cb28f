#include "common/base/rate_limited_log.h"

#include <string>
#include <vector>

#include "common/base/log_hook.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;

class ManualClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  int64_t now_ns = 0;
};

class RateLimitedLogTest : public testing::Test {
 protected:
  void SetUp() override {
    SetLogHook([this](const LogLine& line) { lines_.emplace_back(line.message); });
  }
  void TearDown() override { SetLogHook({}); }

  ManualClock clock_;
  std::vector<std::string> lines_;
};

TEST_F(RateLimitedLogTest, SoManyASecondAndTheNextLineSaysHowManyWereLeftOut) {
  RateLimitedLog log(2, &clock_);
  for (int i = 0; i < 10'000; ++i) PANDO_LOG_LIMITED(log, WARNING) << "junk " << i;
  EXPECT_THAT(lines_, ElementsAre("junk 0", "junk 1"));
  clock_.now_ns = kSecondNs - 1;
  PANDO_LOG_LIMITED(log, WARNING) << "too early";
  clock_.now_ns = kSecondNs;
  PANDO_LOG_LIMITED(log, WARNING) << "junk again";
  PANDO_LOG_LIMITED(log, WARNING) << "and again";
  EXPECT_THAT(lines_, ElementsAre("junk 0", "junk 1", "[9999 lines like this left out] junk again",
                                  "and again"));
  EXPECT_EQ(log.left_out(), 9999u);
}

TEST_F(RateLimitedLogTest, CausesDoNotShareALimit) {
  RateLimitedLog junk(1, &clock_), full(1, &clock_);
  for (int i = 0; i < 3; ++i) {
    PANDO_LOG_LIMITED(junk, WARNING) << "junk";
    PANDO_LOG_LIMITED(full, WARNING) << "full";
  }
  EXPECT_THAT(lines_, ElementsAre("junk", "full"));
}

// A statement like any other: also below an if without braces.
TEST_F(RateLimitedLogTest, IsOneStatement) {
  RateLimitedLog log(1, &clock_);
  bool otherwise = false;
  if (lines_.empty())
    PANDO_LOG_LIMITED(log, INFO) << "yes";
  else
    otherwise = true;
  EXPECT_FALSE(otherwise);
  EXPECT_THAT(lines_, ElementsAre("yes"));
}

}  // namespace
}  // namespace pando
