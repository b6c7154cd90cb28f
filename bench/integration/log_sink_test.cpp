// The library's log lines as an application receives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "pando/log.h"

namespace pando {
namespace {

using testing::HasSubstr;

struct KeptRecord {
  LogSeverity severity;
  std::string file, message;
  int line;
};

class LogSinkTest : public testing::Test {
 protected:
  ~LogSinkTest() override { SetLogSink(nullptr); }

  void Keep(const LogRecord& record) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(
        {record.severity, std::string(record.file), std::string(record.message), record.line});
  }
  // The records so far that say this, a server's threads may add others.
  std::vector<KeptRecord> That(const std::string& says) {
    const std::lock_guard lock(mutex_);
    std::vector<KeptRecord> found;
    for (const KeptRecord& record : kept_) {
      if (record.message.find(says) != std::string::npos) found.push_back(record);
    }
    return found;
  }
  // A client works until it has noticed that server 1, where its only leaf is, is gone. It has
  // logged that when this returns; server 2 it may not have looked at any more.
  void LoseServers() {
    auto client = cluster_.NewClient();
    auto tree = client->CreateTree("t", {});
    auto session = client->NewSession();
    ASSERT_OK(tree);
    ASSERT_OK(session);
    ASSERT_OK((*session)->Put(**tree, "k", "v"));
    cluster_.StopAll();
    absl::Status status;
    while (status.ok()) status = (*session)->Get(**tree, "k").status();
    EXPECT_CODE(status, Unavailable);
  }

  IntegrationCluster cluster_;
  std::mutex mutex_;
  std::vector<KeptRecord> kept_;
};

TEST_F(LogSinkTest, GetsTheLossOfAMemoryServer) {
  SetLogSink([this](const LogRecord& record) { Keep(record); });
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ASSERT_NO_FATAL_FAILURE(LoseServers());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  const std::string to_stderr = testing::internal::GetCapturedStderr();
  EXPECT_THAT(to_stderr, testing::Not(HasSubstr("is gone")));
  const std::vector<KeptRecord> records = That("memory server 1 at ");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].severity, LogSeverity::kWarning);
  EXPECT_STREQ(LogSeverityName(records[0].severity), "WARNING");
  EXPECT_THAT(records[0].message, HasSubstr("is gone"));
  EXPECT_EQ(records[0].file, "link_client.h");
  EXPECT_GT(records[0].line, 0);
}

TEST_F(LogSinkTest, ClearedItGetsNothingAndGlogDoes) {
  SetLogSink([this](const LogRecord& record) { Keep(record); });
  SetLogSink(nullptr);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ASSERT_NO_FATAL_FAILURE(LoseServers());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("memory server 1 at "));
  EXPECT_TRUE(kept_.empty());
}

TEST_F(LogSinkTest, IsReplacedWhileClientsLoseTheirServers) {
  constexpr int kRounds = 5;
  const auto set_sink = [this] { SetLogSink([this](const LogRecord& record) { Keep(record); }); };
  set_sink();
  std::atomic<bool> stop{false};
  std::thread replacer([&] {
    while (!stop.load()) {
      set_sink();
      std::this_thread::yield();
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_NO_FATAL_FAILURE(LoseServers());
    cluster_.StartAll();
  }
  stop.store(true);
  replacer.join();
  EXPECT_EQ(That("memory server 1 at ").size(), size_t{kRounds})
      << "a line was lost, or came twice";
}

}  // namespace
}  // namespace pando
