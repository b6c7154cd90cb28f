// A log says all that its process did, however the process ends.
#include "bench/chaos/operation_log.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/history/history_io.h"
#include "bench/host/paths.h"
#include "common/base/check.h"
#include "gtest/gtest.h"

namespace pando::chaos {
namespace {

using history::Operation;
using history::OperationKind;

struct Entry {
  bool returned;
  absl::StatusCode status;
  std::string line;
};

class OperationLogTest : public testing::Test {
 protected:
  OperationLogTest() : folder_(bench::TemporaryFolder::Create().value()) {}

  std::string file() const { return folder_.path() / "log"; }
  static Operation MakeOperation(OperationKind kind) {
    Operation operation;
    operation.client = 3;
    operation.kind = kind;
    operation.key = "key";
    operation.value = "value";
    operation.call_ns = 10;
    return operation;
  }
  std::vector<Entry> Read() {
    std::vector<Entry> entries;
    PANDO_CHECK_OK(ReadOperationLog(file(), [&](const LoggedOperation& operation) {
      entries.push_back({operation.returned, operation.status, std::string(operation.operation)});
    }));
    return entries;
  }

  bench::TemporaryFolder folder_;
};

TEST_F(OperationLogTest, WhatReturnedAndWhatDidNot) {
  {
    const auto log = OperationLog::Create(file()).value();
    const Operation put = MakeOperation(OperationKind::kPut),
                    get = MakeOperation(OperationKind::kGet);
    PANDO_CHECK_OK(log->Called(0, put));
    PANDO_CHECK_OK(log->Called(1, get));
    PANDO_CHECK_OK(log->Called(2, put));
    PANDO_CHECK_OK(log->Returned(0, absl::OkStatus(), 20, put));
    PANDO_CHECK_OK(log->Returned(1, absl::NotFoundError(""), 30, get));
  }
  const std::vector<Entry> entries = Read();
  ASSERT_EQ(entries.size(), 3u);
  Operation put = MakeOperation(OperationKind::kPut), get = MakeOperation(OperationKind::kGet);
  EXPECT_FALSE(entries[2].returned);
  EXPECT_EQ(entries[2].line, history::FormatOperation(put));
  put.return_ns = 20;
  get.return_ns = 30;
  EXPECT_EQ(entries[0].line, history::FormatOperation(put));
  EXPECT_EQ(entries[1].line, history::FormatOperation(get));
  EXPECT_EQ(entries[1].status, absl::StatusCode::kNotFound);
}

TEST_F(OperationLogTest, ErrorsSayNothingUnlessTheOutcomeIsUnknown) {
  {
    const auto log = OperationLog::Create(file()).value();
    const Operation put = MakeOperation(OperationKind::kPut),
                    get = MakeOperation(OperationKind::kGet);
    PANDO_CHECK_OK(log->Called(0, put));
    PANDO_CHECK_OK(log->Returned(0, absl::DeadlineExceededError(""), 20, put));
    PANDO_CHECK_OK(log->Called(1, put));
    PANDO_CHECK_OK(log->Returned(1, absl::UnknownError(""), 20, put));
    PANDO_CHECK_OK(log->Returned(2, absl::UnknownError(""), 20, get));
  }
  const std::vector<Entry> entries = Read();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].line, "");
  EXPECT_EQ(entries[0].status, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(entries[1].line, history::FormatOperation(MakeOperation(OperationKind::kPut)));
  EXPECT_EQ(entries[2].line, "");
}

TEST_F(OperationLogTest, ALineThatWasCutShortSaysNothing) {
  const std::string line = history::FormatOperation(MakeOperation(OperationKind::kPut));
  std::ofstream(file()) << "c 0 " << line << "\nr 0 10 20 0 " << line.substr(0, 20);
  const std::vector<Entry> entries = Read();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_FALSE(entries[0].returned);
  EXPECT_EQ(entries[0].line, line);
}

TEST_F(OperationLogTest, NotALog) {
  std::ofstream(file()) << "c 0 {}\nwhat is this\n";
  EXPECT_TRUE(absl::IsDataLoss(ReadOperationLog(file(), [](const LoggedOperation&) {})));
  EXPECT_TRUE(absl::IsNotFound(ReadOperationLog(file() + "2", [](const LoggedOperation&) {})));
}

// What a killed process told somebody about after it had logged it is in the log.
TEST_F(OperationLogTest, AKillLosesNothing) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto log = OperationLog::Create(file());
    for (uint64_t number = 0; log.ok(); ++number) {
      if (!(*log)->Called(number, MakeOperation(OperationKind::kPut)).ok()) break;
      if (write(pipe_fds[1], &number, sizeof(number)) != sizeof(number)) break;
    }
    _exit(1);
  }
  close(pipe_fds[1]);
  uint64_t last = 0, number = 0;
  for (int i = 0; i < 3'000 && read(pipe_fds[0], &number, sizeof(number)) > 0; ++i) last = number;
  kill(child, SIGKILL);
  while (read(pipe_fds[0], &number, sizeof(number)) > 0) last = number;
  close(pipe_fds[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_GE(last, 2'999u);
  EXPECT_GE(Read().size(), last + 1);
}

}  // namespace
}  // namespace pando::chaos
