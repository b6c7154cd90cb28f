// The death of servers and clients, as those who live see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include "common/base/bystander.h"
#include "common/base/clock.h"
#include "common/base/log_hook.h"
#include "common/base/temporary_directory.h"
#include "common/fabric/shm/shm_fabric.h"
#include "common/fabric/shm/shm_test_cluster.h"
#include "common/fabric/shm/shm_test_helper.h"

namespace pando {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ShmDeathTest : public testing::Test {
 protected:
  // Ends a server process while one thread waits and another works; both notice, soon.
  void EndWith(int signal) {
    const Bystander bystander;
    const std::string path = directory_.path() + "/socket";
    HelperProcess server({"serve", path});
    ASSERT_TRUE(server.ready());
    auto fabric = ConnectShm({{1, path}});
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    std::atomic<int64_t> waiter_woke_ns{0}, worker_failed_ns{0};
    std::atomic<int> running{0};
    std::thread waiter([&] {
      auto endpoint = *(*fabric)->Connect(1, 1);
      ++running;
      Chain chain(1);
      do {
        endpoint->Wait(RealClock().NowNs() + 60 * kSecondNs);
        chain.Reset(1);
        chain.FetchAdd(MemorySpace::kMain, 0, 1);
        endpoint->Post(&chain);
      } while (chain.ok());
      waiter_woke_ns = RealClock().NowNs();
      EXPECT_EQ(chain.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(chain.status().message()),
                  AllOf(HasSubstr("server 1"), HasSubstr("FAA")));
    });
    std::thread worker([&] {
      auto endpoint = *(*fabric)->Connect(1, 1);
      const LocalBuffer buffer = *endpoint->AllocateBuffer(1024);
      ++running;
      Chain chain(1);
      do {
        chain.Reset(1);
        chain.Write(MemorySpace::kMain, 0, buffer);
        chain.Read(MemorySpace::kMain, 0, buffer);
        endpoint->Post(&chain);
      } while (chain.ok());
      worker_failed_ns = RealClock().NowNs();
      EXPECT_EQ(chain.status().code(), absl::StatusCode::kUnavailable);
    });
    while (running < 2) std::this_thread::yield();
    usleep(20'000);
    const int64_t killed_ns = RealClock().NowNs();
    server.Kill(signal);
    waiter.join();
    worker.join();
    EXPECT_LT(waiter_woke_ns - killed_ns, bystander.Bound(kSecondNs));
    EXPECT_LT(worker_failed_ns - killed_ns, bystander.Bound(kSecondNs));
    EXPECT_GE(waiter_woke_ns - killed_ns, 0);
  }

  TemporaryDirectory directory_;
};

TEST_F(ShmDeathTest, KilledServersAreNoticed) { EndWith(SIGKILL); }
TEST_F(ShmDeathTest, StoppedServersAreNoticed) { EndWith(SIGTERM); }

TEST_F(ShmDeathTest, ANewServerTakesADeadOnesPlace) {
  const std::string path = directory_.path() + "/socket";
  for (int i = 0; i < 3; ++i) {
    HelperProcess server({"serve", path});
    ASSERT_TRUE(server.ready());
    auto fabric = ConnectShm({{1, path}});
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    auto endpoint = *(*fabric)->Connect(1, 1);
    Chain chain(1);
    chain.FetchAdd(MemorySpace::kMain, 0, 1);
    endpoint->Post(&chain);
    EXPECT_TRUE(chain.ok()) << chain.status();
    EXPECT_EQ(chain.verb(0).old_value, 0u) << "its memory is its own";
  }
}

TEST_F(ShmDeathTest, AStoppedServerHoldsUpOnlyItsCalls) {
  const std::string path = directory_.path() + "/socket";
  HelperProcess server({"serve", path});
  ASSERT_TRUE(server.ready());
  auto fabric = ConnectShm({{1, path}}, {.connect_timeout_ms = 200});
  auto endpoint = *(*fabric)->Connect(1, 1);
  server.Signal(SIGSTOP);
  EXPECT_EQ((*fabric)->Connect(1, 1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ConnectShm({{1, path}}, {.connect_timeout_ms = 100}).status().code(),
            absl::StatusCode::kUnavailable);
  Chain chain(1);
  chain.FetchAdd(MemorySpace::kMain, 0, 1);
  endpoint->Post(&chain);
  EXPECT_TRUE(chain.ok()) << chain.status();
  server.Signal(SIGCONT);
  EXPECT_TRUE((*fabric)->Connect(1, 1).ok());
}

// The watcher has to go on while an application's log takes its time with a death.
TEST_F(ShmDeathTest, ALogThatIsStuckHoldsUpNobody) {
  const std::string first = directory_.path() + "/first", second = directory_.path() + "/second";
  HelperProcess living({"serve", first}), dying({"serve_second", second});
  ASSERT_TRUE(living.ready() && dying.ready());
  std::promise<void> goes_on;
  std::shared_future<void> may_go_on = goes_on.get_future().share();
  SetLogHook([&](const LogLine&) { may_go_on.wait(); });
  {
    auto fabric = ConnectShm({{1, first}, {2, second}});
    EXPECT_TRUE(fabric.ok()) << fabric.status();
    dying.Kill(SIGKILL);
    const int64_t until_ns = RealClock().NowNs() + 10 * kSecondNs;
    while (fabric.ok() && (*fabric)->IsConnected(2) && RealClock().NowNs() < until_ns) {
      usleep(1'000);
    }
    EXPECT_TRUE(fabric.ok() && (*fabric)->Connect(1, 1).ok());
    goes_on.set_value();
  }
  SetLogHook(nullptr);
}

TEST_F(ShmDeathTest, ADeadClientsSlotsAreFree) {
  ShmServerOptions options;
  options.socket_path = directory_.path() + "/socket";
  options.main_bytes = 1 << 20;
  options.endpoints_max = 2;
  EchoHandler handler;
  ShmServerThread thread(options, &handler);
  for (size_t i = 1; i <= 3; ++i) {
    HelperProcess first({"hold", options.socket_path}), second({"hold", options.socket_path});
    ASSERT_TRUE(first.ready() && second.ready());
    auto fabric = ConnectShm({thread.location()});
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    EXPECT_EQ((*fabric)->Connect(1, 1).status().code(), absl::StatusCode::kResourceExhausted);
    first.Kill(SIGKILL);
    for (int n = 0; n < 1000 && !(*fabric)->Connect(1, 1).ok(); ++n) usleep(1'000);
    EXPECT_TRUE((*fabric)->Connect(1, 1).ok());
  }
}

}  // namespace
}  // namespace pando
