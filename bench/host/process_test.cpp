#include "bench/host/process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/host/channel.h"
#include "bench/host/host_info.h"
#include "bench/host/json_file.h"
#include "bench/host/paths.h"
#include "common/base/clock.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

bool Runs(pid_t pid) { return kill(pid, 0) == 0; }

Process Shell(const std::string& script, Process::Options options = {}) {
  options.arguments = {"/bin/sh", "-c", script};
  return *Process::Spawn(options);
}

TEST(ProcessTest, TellsHowItEnded) {
  Process good = Shell("exit 0"), bad = Shell("exit 3"), killed = Shell("kill -9 $$");
  EXPECT_TRUE(good.WaitFor(10'000));
  EXPECT_TRUE(good.ended_well());
  EXPECT_TRUE(bad.WaitFor(10'000));
  EXPECT_EQ(*bad.ending(), "exited with 3");
  EXPECT_TRUE(killed.WaitFor(10'000));
  EXPECT_EQ(*killed.ending(), "was killed by signal 9 (Killed)");
  EXPECT_FALSE(killed.ended_well());
}

TEST(ProcessTest, AMissingProgramIsAStatus) {
  EXPECT_EQ(Process::Spawn({.arguments = {"/nowhere/program"}}).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(ProcessTest, DestructionKills) {
  pid_t pid;
  {
    Process sleeper = Shell("exec sleep 100");
    pid = sleeper.pid();
    EXPECT_TRUE(Runs(pid));
    EXPECT_FALSE(sleeper.WaitFor(20));
  }
  EXPECT_FALSE(Runs(pid));
}

// As on a full disk.
TEST(ProcessTest, WhoSaysNothingMayNotHaveBeenAbleTo) {
  const TemporaryFolder folder = *TemporaryFolder::Create();
  const auto why = [&](const std::string& script) {
    const std::string log = folder.path() / "log";
    std::filesystem::remove(log);
    Process process = Shell(script, {.log_file = log});
    EXPECT_TRUE(process.WaitFor(10'000));
    return WhyEnded(process);
  };
  EXPECT_EQ(why("echo reason; exit 3"), "exited with 3\nreason\n");
  EXPECT_NE(why("exit 1").find("TMPDIR"), std::string::npos);
  EXPECT_EQ(why("kill -9 $$").find("TMPDIR"), std::string::npos);
}

TEST(JsonFileTest, WhatCannotBeWrittenIsSaid) {
  const absl::Status full = WriteJsonFile("/dev/full", {{"text", "\xff"}});
  EXPECT_EQ(full.message(), "cannot write /dev/full: No space left on device");
}

TEST(ProcessTest, StopAsksFirst) {
  const TemporaryFolder folder = *TemporaryFolder::Create();
  const std::string log = folder.path() / "log";
  std::vector<Process> processes;
  processes.push_back(Shell("trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.01; done",
                            {.log_file = log}));
  while (Tail(log).find("up") == std::string::npos) usleep(1'000);
  Stop(&processes, 10'000);
  EXPECT_TRUE(processes.empty());
  EXPECT_EQ(Tail(log), "up\nasked\n");
  EXPECT_EQ(Tail(log, 6), "asked\n");
}

TEST(ProcessTest, StopInsists) {
  std::vector<Process> processes;
  processes.push_back(Shell("trap '' TERM; while :; do sleep 0.01; done"));
  const pid_t pid = processes[0].pid();
  usleep(50'000);
  Stop(&processes, 100);
  EXPECT_FALSE(Runs(pid));
}

// A parent that is killed takes its children with it.
TEST(ProcessTest, AChildDoesNotOutliveItsParent) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t parent = fork();
  if (parent == 0) {
    const Process child = Shell("exec sleep 100");
    const pid_t pid = child.pid();
    if (write(fds[1], &pid, sizeof(pid)) == sizeof(pid)) pause();
    _exit(1);
  }
  pid_t child = 0;
  ASSERT_EQ(read(fds[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  EXPECT_TRUE(Runs(child));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);  // it ends, and it is ours now
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  close(fds[0]);
  close(fds[1]);
}

TEST(ProcessTest, TheChannelArrives) {
  auto [mine, theirs] = *Channel::CreatePair();
  Process::Options options;
  options.channel_fd = theirs.fd();
  // A shell cannot send packets, but what it writes in one go arrives as one.
  Process child = Shell("printf '{\"hello\":1}' >&3", options);
  theirs.Close();
  const auto message = mine.Receive(10'000);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ((**message)["hello"], 1);
  EXPECT_TRUE(child.WaitFor(10'000));
  EXPECT_EQ(mine.Receive(10'000).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ChannelTest, KeepsMessagesApart) {
  auto [one, other] = *Channel::CreatePair();
  EXPECT_FALSE((*other.Receive(0)).has_value());
  ASSERT_TRUE(one.Send({{"n", 1}}).ok());
  ASSERT_TRUE(one.Send({{"n", 2}, {"text", "\xff not UTF-8"}}).ok());
  EXPECT_EQ((**other.Receive(0))["n"], 1);
  EXPECT_EQ((**other.Receive(0))["n"], 2);
  EXPECT_FALSE(one.Send({{"long", std::string(1'000'000, 'x')}}).ok());
  one.Close();
  EXPECT_EQ(other.Send({{"n", 3}}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(other.Receive(-1).status().code(), absl::StatusCode::kUnavailable);
}

// Folders lie in one of the test's own: a test that makes one elsewhere may be removing meanwhile
// what a test expects to be gone already.
class PathsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* base = getenv("TMPDIR")) before_ = base;
    ASSERT_EQ(setenv("TMPDIR", base_.path().c_str(), 1), 0);
  }
  void TearDown() override {
    if (before_) {
      setenv("TMPDIR", before_->c_str(), 1);
    } else {
      unsetenv("TMPDIR");
    }
  }

 private:
  const TemporaryFolder base_ = *TemporaryFolder::Create();
  std::optional<std::string> before_;
};

TEST_F(PathsTest, TheFolderGoesWithItsContent) {
  std::filesystem::path path;
  {
    TemporaryFolder folder = *TemporaryFolder::Create();
    path = folder.path();
    EXPECT_LT(path.string().size(), 60u);
    std::filesystem::create_directory(path / "deeper");
    std::ofstream(path / "deeper" / "file") << "text";
    TemporaryFolder moved = std::move(folder);
    EXPECT_TRUE(std::filesystem::exists(path / "deeper" / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::exists(ProgramFolder() / ProgramFile().filename()));
}

// Else a memory server would find it out, of a registry that the user has not named.
TEST_F(PathsTest, APathTooLongForSocketsIsRefused) {
  const std::string base = getenv("TMPDIR");
  // A socket takes 107 bytes.
  const size_t most = 107 - std::string("/pando-run-XXXXXX/registry/server-1024.sock").size();
  for (const size_t bytes : {most, most + 1}) {
    const std::string longer = base + "/" + std::string(bytes - base.size() - 1, 'x');
    std::filesystem::create_directory(longer);
    setenv("TMPDIR", longer.c_str(), 1);
    const std::string said(TemporaryFolder::Create().status().message());
    EXPECT_EQ(said.find("TMPDIR=" + longer), bytes > most ? 0 : std::string::npos) << said;
  }
}

TEST_F(PathsTest, WhatAKilledOwnerLeftIsRemovedByTheNext) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t owner = fork();
  if (owner == 0) {
    const TemporaryFolder folder = *TemporaryFolder::Create();
    const std::string name = folder.path();
    if (write(fds[1], name.data(), name.size()) > 0) pause();
    _exit(1);
  }
  char name[256] = {};
  ASSERT_GT(read(fds[0], name, sizeof(name) - 1), 0);
  const TemporaryFolder mine = *TemporaryFolder::Create();
  EXPECT_TRUE(std::filesystem::exists(name));  // its owner lives
  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  const TemporaryFolder next = *TemporaryFolder::Create();
  EXPECT_FALSE(std::filesystem::exists(name));
  EXPECT_TRUE(std::filesystem::exists(mine.path()));
  close(fds[0]);
  close(fds[1]);
}

// Each removes leftovers before it makes its own: none takes another's new folder for one.
TEST_F(PathsTest, ManyMakeFoldersAtOnce) {
  std::vector<pid_t> owners;
  for (int i = 0; i < 4; ++i) {
    owners.push_back(fork());
    if (owners.back() != 0) continue;
    for (int j = 0; j < 200; ++j) {
      const auto folder = TemporaryFolder::Create();
      if (!folder.ok() || !std::ofstream(folder->path() / "file").is_open()) _exit(1);
    }
    _exit(0);
  }
  for (const pid_t owner : owners) {
    int status = -1;
    EXPECT_EQ(waitpid(owner, &status, 0), owner);
    EXPECT_EQ(status, 0);
  }
}

TEST(HostInfoTest, EverythingIsFilledIn) {
  const HostInfo info = GetHostInfo();
  EXPECT_FALSE(info.commit.empty());
  EXPECT_NE(info.compiler.find('.'), std::string::npos);
  EXPECT_TRUE(info.kernel.starts_with("Linux"));
  EXPECT_FALSE(info.cpu.empty());
  EXPECT_GT(info.cpus, 0);
  EXPECT_GT(info.memory_gib, 0);
}

}  // namespace
}  // namespace pando::bench
