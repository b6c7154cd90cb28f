#include "common/registry/entry.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::HasSubstr;

RegistryEntry Example() {
  RegistryEntry entry;
  entry.location = {.id = 65535, .address = "[fe80::1]:7000", .fabric = "verbs"};
  entry.incarnation = UINT64_MAX;
  entry.host = {"a host", "8a6dbb8a-0dcb-4e3c-a5a3-3c7d3f2d8f44", 4026531836};
  entry.process = {4711, 99};
  return entry;
}

TEST(RegistryEntryTest, EntriesSurviveTheWay) {
  const auto again = ParseEntry(EncodeEntry(Example()));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, Example());
}

TEST(RegistryEntryTest, IndexesSurviveTheWay) {
  for (const std::vector<ServerId>& ids :
       {std::vector<ServerId>{}, std::vector<ServerId>{0}, std::vector<ServerId>{1, 2, 65535}}) {
    const auto again = ParseIndex(EncodeIndex(ids));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, ids);
  }
}

TEST(RegistryEntryTest, EachPartAndEachDamagedByteIsRefused) {
  const std::string entry = EncodeEntry(Example()), index = EncodeIndex({1, 2, 3});
  for (size_t bytes = 0; bytes < entry.size(); ++bytes) {
    EXPECT_EQ(ParseEntry(entry.substr(0, bytes)).status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(ParseEntry(entry + "x").status().code(), absl::StatusCode::kDataLoss);
  for (size_t i = 0; i < entry.size(); ++i) {
    std::string damaged = entry;
    damaged[i] ^= 4;
    EXPECT_FALSE(ParseEntry(damaged).ok()) << i;
  }
  for (size_t i = 0; i < index.size(); ++i) {
    std::string damaged = index;
    damaged[i] ^= 4;
    EXPECT_FALSE(ParseIndex(damaged).ok()) << i;
  }
  EXPECT_EQ(ParseEntry(index).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseIndex(entry).status().code(), absl::StatusCode::kDataLoss);
}

TEST(RegistryEntryTest, AnotherVersionIsNamed) {
  std::string entry = EncodeEntry(Example());
  entry[4] = 7;
  const absl::Status status = ParseEntry(entry).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 7"));
}

TEST(ProcessIdentityTest, TellsLivingFromDead) {
  EXPECT_NE(ThisProcess().start_ticks, 0u);
  EXPECT_FALSE(HasEnded(ThisProcess()));
  EXPECT_FALSE(ThisHost().boot_id.empty());
  EXPECT_TRUE(ThisHost().SameProcesses(ThisHost()));

  int to_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char byte;
    _exit(read(to_child[0], &byte, 1) == 1 ? 0 : 1);
  }
  ProcessIdentity identity = {.pid = child};
  EXPECT_FALSE(HasEnded(identity));
  // The same process id, but another process: one that began earlier.
  identity.start_ticks = 1;
  EXPECT_TRUE(HasEnded(identity));
  identity.start_ticks = 0;
  ASSERT_EQ(write(to_child[1], "x", 1), 1);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(HasEnded(identity)) << "ended, and its parent has not taken note";
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(HasEnded(identity));
  close(to_child[0]);
  close(to_child[1]);
}

}  // namespace
}  // namespace pando
