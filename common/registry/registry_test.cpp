#include "common/registry/registry.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RegistryTest : public testing::Test {
 protected:
  RegistryTest() {
    char name[] = "/tmp/pando-registry-XXXXXX";
    if (mkdtemp(name) == nullptr) abort();
    parent_ = name;
    directory_ = parent_ + "/registry";
  }
  ~RegistryTest() override { std::filesystem::remove_all(parent_); }

  std::unique_ptr<Registry> Open() {
    auto registry = OpenRegistry(directory_);
    EXPECT_TRUE(registry.ok()) << registry.status();
    return *std::move(registry);
  }

  std::string parent_, directory_;
};

ServerLocation At(ServerId id, const std::string& address) { return {id, address}; }

TEST_F(RegistryTest, ListsWhatIsAnnouncedById) {
  auto registry = Open();
  EXPECT_THAT(*registry->List(), IsEmpty());
  auto b = registry->Announce(At(12, "/run/b.sock"));
  auto a = registry->Announce(At(3, "/run/with space.sock"));
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  // Another view of the same directory.
  EXPECT_THAT(*Open()->List(), ElementsAre(At(3, "/run/with space.sock"), At(12, "/run/b.sock")));
  a->reset();
  EXPECT_THAT(*registry->List(), ElementsAre(At(12, "/run/b.sock")));
  b->reset();
  EXPECT_THAT(*registry->List(), IsEmpty());
}

TEST_F(RegistryTest, ALiveServersIdIsTaken) {
  auto registry = Open();
  auto first = registry->Announce(At(1, "first"));
  ASSERT_TRUE(first.ok());
  auto second = registry->Announce(At(1, "second"));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("live memory server 1"));
  EXPECT_THAT(*registry->List(), ElementsAre(At(1, "first")));
  first->reset();
  second = registry->Announce(At(1, "second"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(*registry->List(), ElementsAre(At(1, "second")));
}

TEST_F(RegistryTest, EntriesOfKilledProcessesAreReplaced) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto registry = OpenRegistry(directory_);
    auto announced = (*registry)->Announce(At(7, "child"));
    const char byte = announced.ok() ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  auto registry = Open();
  EXPECT_THAT(*registry->List(), ElementsAre(At(7, "child")));
  EXPECT_EQ(registry->Announce(At(7, "me")).status().code(), absl::StatusCode::kAlreadyExists);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/server-7")) << "nobody cleaned up";
  EXPECT_THAT(*registry->List(), IsEmpty());
  auto mine = registry->Announce(At(7, "me"));
  ASSERT_TRUE(mine.ok()) << mine.status();
  EXPECT_THAT(*registry->List(), ElementsAre(At(7, "me")));
}

TEST_F(RegistryTest, ManyAnnounceOneWins) {
  auto registry = Open();
  std::atomic<int> winners{0}, losers{0};
  std::vector<std::unique_ptr<Announcement>> kept(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kept.size(); ++i) {
    threads.emplace_back([&, i] {
      auto announced = registry->Announce(At(5, "thread " + std::to_string(i)));
      if (announced.ok()) {
        kept[i] = *std::move(announced);
        ++winners;
      } else if (absl::IsAlreadyExists(announced.status())) {
        ++losers;
      }
      EXPECT_TRUE(registry->List().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  EXPECT_EQ(losers, 7);
}

TEST_F(RegistryTest, WaitsForServers) {
  auto registry = Open();
  auto first = registry->Announce(At(1, "a"));
  auto late = registry->WaitFor(2, 30);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("1 of 2 memory servers"));
  std::unique_ptr<Announcement> second;
  std::thread server([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    second = *Open()->Announce(At(2, "b"));
  });
  auto both = registry->WaitFor(2, 60'000);
  server.join();
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT(*both, ElementsAre(At(1, "a"), At(2, "b")));
  EXPECT_TRUE(registry->WaitFor(0, 0).ok());
}

TEST_F(RegistryTest, IsTheOwnersOnly) {
  auto registry = Open();
  auto announced = registry->Announce(At(1, "a"));
  struct stat info;
  ASSERT_EQ(stat(directory_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  for (const char* name : {"/server-1", "/server-1.lock"}) {
    ASSERT_EQ(stat((directory_ + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  EXPECT_EQ(OpenRegistry(directory_).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(RegistryTest, RefusesWhatItDoesNotKnow) {
  for (const char* registry : {"", "local:", "memcached:host", "http:"}) {
    EXPECT_EQ(OpenRegistry(registry).status().code(), absl::StatusCode::kInvalidArgument)
        << registry;
  }
  EXPECT_FALSE(OpenRegistry("/nowhere/to/be/found").ok());
  std::ofstream(parent_ + "/file") << "x";
  EXPECT_EQ(OpenRegistry(parent_ + "/file").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(OpenRegistry("local:" + directory_).ok());
  EXPECT_TRUE(OpenRegistry(directory_ + "/").ok());
  EXPECT_TRUE(OpenRegistry(parent_ + "/a:b").ok());
}

TEST_F(RegistryTest, RefusesBadAddresses) {
  auto registry = Open();
  for (const std::string& address : {std::string(), std::string("two\nlines"),
                                     std::string("zero\0byte", 9), std::string(2000, 'x')}) {
    EXPECT_EQ(registry->Announce(At(1, address)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(registry->Announce(At(1, std::string(1024, 'x'))).ok());
}

TEST_F(RegistryTest, ReportsDamagedEntriesAndIgnoresForeignFiles) {
  auto registry = Open();
  for (const char* name : {"notes.txt", "server-", "server-x", "server-99999", "server-4"}) {
    std::ofstream(directory_ + "/" + name) << "junk";
  }
  EXPECT_THAT(*registry->List(), IsEmpty());
  auto announced = registry->Announce(At(4, "a"));
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_THAT(*registry->List(), ElementsAre(At(4, "a")));
  for (const std::string content : {"", "junk", "pando-registry 1\n", "pando-registry 2\nx\n",
                                    "pando-registry 1\nx\ny\n", "pando-registry 1\n\n"}) {
    std::ofstream(directory_ + "/server-4") << content;
    const auto list = registry->List();
    EXPECT_EQ(list.status().code(), absl::StatusCode::kDataLoss) << content;
    EXPECT_THAT(std::string(list.status().message()), HasSubstr("server-4"));
  }
}

TEST_F(RegistryTest, SocketPathsFitOrAreRefused) {
  EXPECT_EQ(*Open()->SocketPath(3), directory_ + "/server-3.sock");
  directory_ = parent_ + "/" + std::string(90, 'd');
  const auto path = Open()->SocketPath(3);
  EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(path.status().message()), HasSubstr("at most 107"));
}

}  // namespace
}  // namespace pando
