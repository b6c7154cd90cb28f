// The heartbeat where it has a thread of its own; the simulator has it among its events.
#include "compute/client/heartbeat.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "bench/integration/integration_cluster.h"
#include "common/base/epoch.h"
#include "compute/client/open_fabric.h"

namespace pando {
namespace {

using std::chrono::milliseconds;

class HeartbeatTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto registry = OpenRegistry(cluster_.registry());
    ASSERT_TRUE(registry.ok());
    const auto servers = (*registry)->WaitFor(2, 10'000);
    ASSERT_TRUE(servers.ok()) << servers.status();
    auto fabric = OpenFabric(*servers, cluster_.ClientDefaults());
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    fabric_ = *std::move(fabric);
  }
  std::unique_ptr<Heartbeat> Start(Heartbeat::AskAnew ask_anew = nullptr) {
    auto session = std::make_unique<SessionContext>(*fabric_->Connect(0, 0), &epochs_, 2, 1);
    auto heartbeat =
        std::make_unique<Heartbeat>(std::move(session), &control_, false, std::move(ask_anew));
    PANDO_CHECK_OK(heartbeat->Start());
    for (const ServerId server : fabric_->servers()) {
      heartbeat->Add({server, 30 * kMillisecondNs});
    }
    return heartbeat;
  }

  IntegrationCluster cluster_;
  EpochDomain epochs_;
  ControlChannel control_;
  std::shared_ptr<Fabric> fabric_;
};

TEST_F(HeartbeatTest, GoesOnUntilItIsStopped) {
  const auto client = cluster_.NewClient();
  const auto calls = [&] { return client->Servers()[1].counters.front().second; };
  auto heartbeat = Start();
  const uint64_t before = calls();
  while (calls() < before + 20) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(heartbeat->fenced());
  heartbeat.reset();
}

// It is not the thread that a program's signal interrupts.
TEST_F(HeartbeatTest, TakesNoSignalsOfTheProgram) {
  const auto heartbeat = Start();
  int found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "pando-heartbeat") continue;
    ++found;
    std::ifstream status(task.path() / "status");
    while (std::getline(status, line) && !line.starts_with("SigBlk:")) continue;
    const uint64_t blocked = std::stoull(line.substr(line.find(':') + 1), nullptr, 16);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
      EXPECT_NE(blocked & (uint64_t{1} << (signal - 1)), 0u) << signal;
    }
  }
  EXPECT_EQ(found, 1);
}

TEST_F(HeartbeatTest, NoticesThatAServerDoesNotKnowItAnyMore) {
  control_.SetIdentity(77, 12'345);
  const auto heartbeat = Start();
  while (!heartbeat->fenced()) std::this_thread::sleep_for(milliseconds(1));
}

TEST_F(HeartbeatTest, ADeadServerDoesNotHoldItsEndUp) {
  const auto heartbeat = Start();
  cluster_.StopAll();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(heartbeat->fenced()) << "nobody has said so";
}

TEST_F(HeartbeatTest, AServerThatTookItForDeadIsBelieved) {
  // Nobody answers, then lock words are still being cleared, then it is dead there.
  std::atomic<int> asked{0};
  const auto heartbeat = Start([&](ServerId) -> absl::StatusOr<ClientLiveness> {
    const int before = asked++;
    if (before < 2) return absl::UnavailableError("nobody there");
    return before < 4 ? ClientLiveness::kJoined : ClientLiveness::kDead;
  });
  cluster_.StopAll();
  while (!heartbeat->fenced()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_GE(asked, 5);
}

TEST_F(HeartbeatTest, AnotherLifeOfAServerIsAskedOnceAndFencesNobody) {
  std::atomic<int> asked[3] = {};
  const auto heartbeat = Start([&](ServerId server) -> absl::StatusOr<ClientLiveness> {
    ++asked[server];
    // The other one never answers, so that it goes on being asked.
    if (server == 1) return ClientLiveness::kUnknown;
    return absl::UnavailableError("nobody there");
  });
  cluster_.StopAll();
  while (asked[1] == 0 || asked[2] < 4) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(asked[1], 1);
  EXPECT_FALSE(heartbeat->fenced());
}

// However often a server starts again: its coroutine goes on, with the lease of the new life, and
// what an earlier life's loss led to says nothing about this one.
TEST_F(HeartbeatTest, EachLifeOfAServerIsPinged) {
  const auto client = cluster_.NewClient();
  const auto calls = [&] { return client->Servers()[1].counters.front().second; };
  std::atomic<int> asked{0};
  auto session = std::make_unique<SessionContext>(*fabric_->Connect(0, 0), &epochs_, 2, 1);
  Heartbeat heartbeat(std::move(session), &control_, false, [&](ServerId) {
    ++asked;
    return ClientLiveness::kUnknown;
  });
  PANDO_CHECK_OK(heartbeat.Start());
  for (const int64_t lease_ns : {3600 * kSecondNs, 1800 * kSecondNs, 30 * kMillisecondNs}) {
    for (const ServerId server : fabric_->servers()) heartbeat.Add({server, lease_ns});
  }
  const uint64_t before = calls();
  while (calls() < before + 20) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(asked, 0);
  cluster_.StopAll();
  for (int lives = 1; lives <= 3; ++lives) {
    while (asked < 2 * lives) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(asked, 2 * lives) << "each server once a life";
    for (const ServerId server : fabric_->servers()) heartbeat.Add({server, 30 * kMillisecondNs});
  }
  EXPECT_FALSE(heartbeat.fenced());
}

}  // namespace
}  // namespace pando
