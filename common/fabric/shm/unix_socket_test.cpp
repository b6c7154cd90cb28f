// Who gets a socket's path when several want it, and which descriptors are used.
#include "common/fabric/shm/unix_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/temporary_directory.h"
#include "common/fabric/shm/shm_geometry.h"
#include "common/fabric/shm/shm_region.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::HasSubstr;

class UnixSocketTest : public testing::Test {
 protected:
  bool SomebodyAnswers() { return ConnectTo(path_, RealClock().NowNs()).ok(); }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/socket";
};

// Each finds nobody at the dead socket and removes it; without a lock the slower one removes the
// live socket of the faster. They meet within microseconds: each waits for the other without
// sleeping, and one of them a little longer, differently long in each round.
TEST_F(UnixSocketTest, OfTwoServersOverADeadSocketOneStartsAndKeepsIt) {
  constexpr int kServers = 2, kRounds = 2000;
  { auto dead = ListenAt(path_); }
  ASSERT_TRUE(std::filesystem::exists(path_)) << "a dead server's file stays";
  std::atomic<int> arrived{0};
  auto meet = [&arrived, meeting = 0]() mutable {
    const int all = ++meeting * kServers;
    for (++arrived; arrived < all;) std::this_thread::yield();
  };
  std::atomic<int> started{0}, answered{0}, surprises{0};
  std::vector<std::thread> servers;
  for (int i = 0; i < kServers; ++i) {
    servers.emplace_back([&, meet, i]() mutable {
      Random random(i);
      for (int round = 0; round < kRounds; ++round) {
        meet();
        const int64_t begin_ns = RealClock().NowNs() + static_cast<int64_t>(random.Uniform(20'000));
        while (RealClock().NowNs() < begin_ns) {
        }
        auto listener = ListenAt(path_);
        if (listener.ok()) ++started;
        if (!listener.ok() && !absl::IsAlreadyExists(listener.status())) ++surprises;
        meet();
        if (listener.ok() && SomebodyAnswers()) ++answered;
        meet();  // then it dies, and leaves its file
      }
    });
  }
  for (std::thread& server : servers) server.join();
  EXPECT_EQ(started, kRounds);
  EXPECT_EQ(answered, kRounds);
  EXPECT_EQ(surprises, 0);
}

// Who has opened the lock's file before it went, and locks it then, would have the path beside
// whoever has made another.
TEST_F(UnixSocketTest, ThePathIsOnesAloneAlsoWhereTheLocksFileGoes) {
  constexpr int kServers = 3, kRounds = 4000;
  std::atomic<int> started{0}, listening{0}, together{0}, unheard{0}, surprises{0};
  std::vector<std::thread> servers;
  for (int i = 0; i < kServers; ++i) {
    servers.emplace_back([&] {
      while (started < kRounds) {
        auto listener = ListenAt(path_);
        if (!listener.ok()) {
          if (!absl::IsAlreadyExists(listener.status())) ++surprises;
          continue;
        }
        ++started;
        if (++listening > 1) ++together;
        const SocketFile file(path_, std::move(listener->lock), LockFile::kGoes);
        if (!SomebodyAnswers()) ++unheard;
        --listening;
      }
    });
  }
  for (std::thread& server : servers) server.join();
  EXPECT_EQ(together, 0);
  EXPECT_EQ(unheard, 0);
  EXPECT_EQ(surprises, 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(UnixSocketTest, TheLockIsItsOwnersAndNoLinkIsFollowed) {
  {
    const auto listener = ListenAt(path_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    struct stat info;
    ASSERT_EQ(stat((path_ + ".lock").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    const auto second = ListenAt(path_);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(path_));
  }
  EXPECT_TRUE(ListenAt(path_).ok());
  const std::string precious = directory_.path() + "/precious";
  std::ofstream(precious) << "x";
  ASSERT_EQ(unlink((path_ + ".lock").c_str()), 0);
  ASSERT_EQ(symlink(precious.c_str(), (path_ + ".lock").c_str()), 0);
  EXPECT_EQ(ListenAt(path_).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(std::filesystem::file_size(precious), 1u);
}

// A server of an earlier release holds no lock.
TEST_F(UnixSocketTest, ALiveSocketIsKeptAlsoWithoutALock) {
  const auto listener = ListenAt(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  ASSERT_EQ(unlink((path_ + ".lock").c_str()), 0);
  EXPECT_EQ(ListenAt(path_).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(SomebodyAnswers());
}

// How many of the descriptors that a link needs, in a process without standard ones, are standard.
// -1: something else went wrong.
int StandardOnesOfALink(const std::string& path) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) close(fd);
  const auto listener = ListenAt(path);
  const auto client = ConnectTo(path, RealClock().NowNs());
  if (!listener.ok() || !client.ok()) return -1;
  const UniqueFd served = AboveStandard(UniqueFd(accept(listener->socket.get(), nullptr, nullptr)));
  const auto peer = IdentifyPeer(client->get());
  ShmGeometry geometry;
  geometry.main_bytes = geometry.lock_bytes = 4096;
  const auto region = ShmRegion::Create(geometry, /*huge_pages=*/false, /*numa_node=*/-1);
  if (!served || !peer.ok() || !region.ok()) return -1;
  if (SendMessage(served.get(), "x", region->fd()) != SendResult::kSent) return -1;
  std::array<std::byte, 8> buffer;
  size_t bytes = 0;
  UniqueFd received;
  if (ReceiveMessage(client->get(), buffer, &bytes, &received) != ReceiveResult::kMessage) {
    return -1;
  }
  int standard = 0;
  for (const int fd : {listener->socket.get(), listener->lock.get(), client->get(), served.get(),
                       peer->pidfd.get(), region->fd(), received.get()}) {
    if (fd < 0) return -1;
    if (fd <= STDERR_FILENO) ++standard;
  }
  // Nor does one of them stay behind there.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) ++standard;
  }
  return standard;
}

// What is printed there would go into a memory server's region.
TEST_F(UnixSocketTest, NothingGetsAStandardDescriptorThatIsClosed) {
  EXPECT_EXIT(std::_Exit(StandardOnesOfALink(path_) == 0 ? 42 : 43), testing::ExitedWithCode(42),
              "");
}

}  // namespace
}  // namespace pando
