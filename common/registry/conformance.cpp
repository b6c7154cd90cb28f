#include "common/registry/conformance.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "gmock/gmock.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

}  // namespace

std::unique_ptr<Registry> RegistryConformance::Open() const {
  auto registry = OpenRegistry(name());
  EXPECT_TRUE(registry.ok()) << registry.status();
  return *std::move(registry);
}

std::string ConformanceName(const testing::TestParamInfo<ConformanceRegistry>& info) {
  return info.param.name;
}

TEST_P(RegistryConformance, ListsWhatIsAnnouncedById) {
  auto registry = Open();
  EXPECT_THAT(*registry->List(), IsEmpty());
  auto b = registry->Announce(At(12, "/run/b.sock"));
  auto a = registry->Announce(At(3, "/run/with space.sock"));
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_TRUE((*a)->status().ok());
  // Another view of the same place.
  EXPECT_THAT(*Open()->List(), ElementsAre(At(3, "/run/with space.sock"), At(12, "/run/b.sock")));
  a->reset();
  EXPECT_THAT(*registry->List(), ElementsAre(At(12, "/run/b.sock")));
  b->reset();
  EXPECT_THAT(*registry->List(), IsEmpty());
}

TEST_P(RegistryConformance, KeepsFabricAndAnyId) {
  auto registry = Open();
  const ServerLocation first = {.id = 0, .address = "10.0.0.1:7000", .fabric = "verbs"};
  const ServerLocation last = {.id = 65535, .address = std::string(1024, 'x'), .fabric = "shm"};
  auto a = registry->Announce(first), b = registry->Announce(last);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  const auto all = registry->List();
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(*all, ElementsAre(first, last));
  const absl::Status reachable = CheckReachable(*all, "shm");
  EXPECT_EQ(reachable.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(reachable.message()), HasSubstr("--fabric=verbs"));
  EXPECT_TRUE(CheckReachable({last}, "shm").ok());
}

TEST_P(RegistryConformance, ALiveServersIdIsTaken) {
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

TEST_P(RegistryConformance, ManyLivesOfOneServer) {
  auto registry = Open();
  for (int i = 0; i < 50; ++i) {
    const std::string address = "life " + std::to_string(i);
    auto announced = Open()->Announce(At(9, address));
    ASSERT_TRUE(announced.ok()) << announced.status();
    EXPECT_THAT(*registry->List(), ElementsAre(At(9, address)));
  }
  EXPECT_THAT(*registry->List(), IsEmpty());
}

TEST_P(RegistryConformance, EntriesOfKilledProcessesAreReplaced) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto registry = OpenRegistry(name());
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
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_THAT(*registry->List(), IsEmpty()) << "nobody cleaned up, its parent has not taken note";
  auto mine = registry->Announce(At(7, "me"));
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  ASSERT_TRUE(mine.ok()) << mine.status();
  EXPECT_THAT(*registry->List(), ElementsAre(At(7, "me")));
}

TEST_P(RegistryConformance, ManyAnnounceOneWins) {
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

TEST_P(RegistryConformance, ManyJoinAtOnceAllAreListed) {
  constexpr size_t kServers = 24;
  std::vector<std::unique_ptr<Announcement>> kept(kServers);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kServers; ++i) {
    threads.emplace_back([&, i] {
      auto announced = Open()->Announce(At(static_cast<ServerId>(i * 100), "there"));
      ASSERT_TRUE(announced.ok()) << announced.status();
      kept[i] = *std::move(announced);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto all = Open()->List();
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), kServers);
  for (size_t i = 0; i < kServers; ++i) EXPECT_EQ((*all)[i].id, i * 100);
}

TEST_P(RegistryConformance, WaitsForServers) {
  auto registry = Open();
  auto first = registry->Announce(At(1, "a"));
  auto late = registry->WaitFor(2, 30);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("1 of 2 memory servers"));
  EXPECT_THAT(std::string(late.status().message()), HasSubstr(registry->name()));
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

TEST_P(RegistryConformance, ClustersDoNotSeeEachOther) {
  auto here = Open();
  auto there = OpenRegistry(place_->Name("there"));
  ASSERT_TRUE(there.ok()) << there.status();
  auto a = here->Announce(At(1, "here")), b = (*there)->Announce(At(1, "there"));
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_THAT(*here->List(), ElementsAre(At(1, "here")));
  EXPECT_THAT(*(*there)->List(), ElementsAre(At(1, "there")));
  EXPECT_NE(*here->SocketPath(1), *(*there)->SocketPath(1));
}

TEST_P(RegistryConformance, RefusesWhatCannotBeWrittenDown) {
  auto registry = Open();
  for (const std::string& bad : {std::string(), std::string("two\nlines"),
                                 std::string("zero\0byte", 9), std::string(2000, 'x')}) {
    EXPECT_EQ(registry->Announce(At(1, bad)).status().code(), absl::StatusCode::kInvalidArgument);
    const ServerLocation location = {.id = 1, .address = "there", .fabric = bad};
    EXPECT_EQ(registry->Announce(location).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(*registry->List(), IsEmpty());
}

TEST_P(RegistryConformance, SocketsAreInAPrivatePlace) {
  auto registry = Open();
  const auto path = registry->SocketPath(3);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_LE(path->size(), kSocketPathBytesMax);
  EXPECT_EQ(*Open()->SocketPath(3), *path);
  EXPECT_NE(*registry->SocketPath(4), *path);
  struct stat info;
  ASSERT_EQ(stat(path->substr(0, path->rfind('/')).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  // Servers of one host share an identity key there.
  EXPECT_EQ(registry->IdentityKeyPath("shm")->substr(0, path->rfind('/') + 1),
            path->substr(0, path->rfind('/') + 1));
  EXPECT_EQ(*Open()->IdentityKeyPath("shm"), *registry->IdentityKeyPath("shm"));
}

}  // namespace pando
