// The suite's tests of servers that come, go and come back while endpoints work (rules R7, R8): for
// backends whose servers are not fixed.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/fabric/conformance.h"
#include "common/fabric/server_index.h"
#include "gmock/gmock.h"

namespace pando {

using testing::ElementsAre;
using testing::HasSubstr;

ServerLocation FabricConformance::StartServer(ServerId server, uint32_t packet_bytes) {
  auto handler = std::make_unique<EchoHandler>();
  const ServerLocation location = cluster_->StartServer(
      server, handler.get(), packet_bytes == 0 ? options_.packet_bytes : packet_bytes);
  // That of the life before has been used until then.
  handlers_[server] = std::move(handler);
  return location;
}

absl::Status FabricConformance::Add(Endpoint& endpoint, ServerId server, uint64_t offset) {
  Chain chain(server);
  chain.FetchAdd(MemorySpace::kMain, offset, 1);
  Run(endpoint, chain);
  return chain.status();
}

absl::Status FabricConformance::Call(Endpoint& endpoint, ServerId server) {
  PendingCall call;
  call.server = server;
  call.request = "hello";
  endpoint.Call(&call);
  Finish(endpoint, call);
  return call.status;
}

TEST_P(FabricConformance, AServerThatComesIsReachedFromWhenItIsTakenUp) {
  auto endpoint = Connect(0), elsewhere = Connect(1);
  const ServerLocation location = StartServer(3);
  Fabric& fabric = cluster_->fabric(0);
  EXPECT_FALSE(fabric.IsConnected(3));
  EXPECT_EQ(fabric.SpaceBytes(3, MemorySpace::kMain), 0u);
  const auto added = fabric.AddServer(location);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(*added, 1u);
  EXPECT_TRUE(fabric.IsConnected(3));
  EXPECT_EQ(fabric.SpaceBytes(3, MemorySpace::kMain), options_.main_bytes);
  EXPECT_THAT(fabric.servers(), ElementsAre(1, 2, 3));

  endpoint->AdoptServers(0);
  for (Endpoint* const stranger : {endpoint.get(), elsewhere.get()}) {
    for (const absl::Status& status : {Add(*stranger, 3), Call(*stranger, 3)}) {
      EXPECT_TRUE(absl::IsUnavailable(status) && IsNotConnected(status)) << status;
    }
  }
  endpoint->AdoptServers(*added);
  EXPECT_TRUE(Add(*endpoint, 3).ok());
  EXPECT_TRUE(Call(*endpoint, 3).ok());
  auto later = Connect(0);
  EXPECT_TRUE(Add(*later, 3).ok());
  EXPECT_EQ(Word(MemorySpace::kMain, 0, 3), 2u);
  EXPECT_EQ(Word(MemorySpace::kMain, 0, 1), 0u);
  EXPECT_TRUE(absl::IsUnavailable(Add(*elsewhere, 3)));
  EXPECT_THAT(cluster_->fabric(1).servers(), ElementsAre(1, 2));

  const auto twice = fabric.AddServer(location);
  EXPECT_TRUE(absl::IsUnavailable(twice.status())) << twice.status();
  EXPECT_THAT(std::string(twice.status().message()), HasSubstr("server 3"));
  EXPECT_TRUE(Add(*endpoint, 3).ok());
}

// Rule R8: what is posted by those who have not taken the other life up reaches nothing there.
TEST_P(FabricConformance, AnotherLifeIsReachedOnlyByThoseWhoHaveTakenItUp) {
  auto first = Connect(0), last = Connect(0);
  ASSERT_TRUE(Add(*first, 2).ok());
  ASSERT_TRUE(Add(*last, 2).ok());
  Fabric& fabric = cluster_->fabric(0);
  for (uint32_t life = 1; life <= 5; ++life) {
    cluster_->StopServer(2);
    RunUntilUnavailable(*first, 2);
    RunUntilUnavailable(*last, 2);
    const ServerLocation location = StartServer(2);
    EXPECT_FALSE(fabric.IsConnected(2));
    const auto added = fabric.AddServer(location);
    ASSERT_TRUE(added.ok()) << added.status();
    EXPECT_EQ(*added, life);
    for (Endpoint* const endpoint : {first.get(), last.get()}) {
      ExpectStaysUnavailable(*endpoint, 2);
      EXPECT_TRUE(absl::IsUnavailable(Call(*endpoint, 2)));
    }
    EXPECT_EQ(Word(MemorySpace::kMain, 0, 2), 0u);
    first->AdoptServers(*added);
    first->AdoptServers(*added - 1);  // never back
    EXPECT_TRUE(Add(*first, 2).ok());
    EXPECT_TRUE(Call(*first, 2).ok());
    ExpectStaysUnavailable(*last, 2);
    EXPECT_TRUE(Add(*Connect(0), 2).ok());
    EXPECT_EQ(Word(MemorySpace::kMain, 0, 2), 2u);
    EXPECT_TRUE(Add(*first, 1, 64).ok());
    EXPECT_TRUE(Add(*last, 1, 64).ok());
    EXPECT_THAT(fabric.servers(), ElementsAre(1, 2));
  }
  last->AdoptServers(5);
  EXPECT_TRUE(Add(*last, 2).ok());
  EXPECT_EQ(Word(MemorySpace::kMain, 0, 2), 3u);
  EXPECT_EQ(Word(MemorySpace::kMain, 64, 1), 10u);
}

// Each chain is done once, by its own life.
TEST_P(FabricConformance, ChainsAreInFlightWhileAnotherLifeIsTakenUp) {
  constexpr uint64_t kChains = 20;
  for (int life = 1; life <= 6; ++life) {
    auto endpoint = Connect(0);
    const auto post = [&](std::vector<std::unique_ptr<Chain>>* chains, int* done) {
      for (uint64_t i = 0; i < kChains; ++i) {
        chains->push_back(std::make_unique<Chain>(ServerId{2}));
        chains->back()->FetchAdd(MemorySpace::kMain, 0, 1);
        chains->back()->set_on_done([](Chain*, void* count) { ++*static_cast<int*>(count); }, done);
        endpoint->Post(chains->back().get());
      }
    };
    // In odd lives a queue pair is being made for them, where there are any.
    if (life % 2 == 0) {
      ASSERT_TRUE(Add(*endpoint, 2, 64).ok());
    }
    std::vector<std::unique_ptr<Chain>> before, after;
    int before_done = 0, after_done = 0;
    endpoint->set_overlap(true);
    post(&before, &before_done);
    endpoint->set_overlap(false);
    cluster_->StopServer(2);
    Fabric& fabric = cluster_->fabric(0);
    // The endpoint is not polled meanwhile: it has not noticed yet.
    while (fabric.IsConnected(2)) std::this_thread::yield();
    const ServerLocation location = StartServer(2);
    const auto added = fabric.AddServer(location);
    ASSERT_TRUE(added.ok()) << added.status();
    endpoint->AdoptServers(*added);
    post(&after, &after_done);
    for (const auto& chain : before) {
      Finish(*endpoint, *chain);
      EXPECT_TRUE(chain->ok() || absl::IsUnavailable(chain->status())) << chain->status();
    }
    for (const auto& chain : after) {
      Finish(*endpoint, *chain);
      EXPECT_TRUE(chain->ok()) << chain->status();
    }
    EXPECT_EQ(before_done, static_cast<int>(kChains));
    EXPECT_EQ(after_done, static_cast<int>(kChains));
    EXPECT_EQ(endpoint->in_flight(), 0u);
    EXPECT_EQ(Word(MemorySpace::kMain, 0, 2), kChains);
  }
}

TEST_P(FabricConformance, ServersComeAndGoWhileOthersAreUsed) {
  constexpr int kThreads = 3, kLives = 10;
  std::atomic<uint32_t> added{0};
  std::atomic<bool> stop{false};
  std::vector<uint64_t> counts(kThreads);
  std::atomic<uint64_t> there{0};  // chains to servers that come and go
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto endpoint = Connect(0);
      for (uint64_t i = 0; !stop; ++i) {
        if (i % 5 == 4) endpoint->AdoptServers(added);
        EXPECT_TRUE(Add(*endpoint, 1).ok());
        ++counts[static_cast<size_t>(t)];
        for (const ServerId server : {ServerId{2}, ServerId{3}}) {
          const absl::Status status = Add(*endpoint, server);
          EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
          there += status.ok();
        }
        if (i % 20 == 19) endpoint = Connect(0);
      }
    });
  }
  Fabric& fabric = cluster_->fabric(0);
  for (int life = 0; life < kLives; ++life) {
    const auto server = static_cast<ServerId>(3 - life % 2);
    if (life > 0) cluster_->StopServer(server);
    while (life > 0 && fabric.IsConnected(server)) std::this_thread::yield();
    const auto count = fabric.AddServer(StartServer(server));
    EXPECT_TRUE(count.ok()) << count.status();
    if (!count.ok()) break;
    added = *count;
    const uint64_t before = there;
    while (there < before + 10) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  uint64_t all = 0;
  for (const uint64_t count : counts) all += count;
  EXPECT_EQ(Word(MemorySpace::kMain, 0, 1), all);
}

TEST_P(FabricConformance, AServerThatCanDoLessIsRefused) {
  auto endpoint = Connect(0);
  const auto added = cluster_->fabric(0).AddServer(StartServer(3, options_.packet_bytes / 2));
  EXPECT_TRUE(absl::IsFailedPrecondition(added.status())) << added.status();
  EXPECT_THAT(std::string(added.status().message()), HasSubstr("server 3"));
  EXPECT_FALSE(cluster_->fabric(0).IsConnected(3));
  EXPECT_TRUE(Add(*endpoint, 1).ok());
}

TEST_P(FabricConformance, AServerThatIsDisconnectedMayBeAddedAgain) {
  auto endpoint = Connect(0), elsewhere = Connect(1);
  Fabric& fabric = cluster_->fabric(0);
  const ServerLocation location = StartServer(3);
  for (uint32_t life = 1; life <= 3; ++life) {
    const auto added = fabric.AddServer(location);
    ASSERT_TRUE(added.ok()) << added.status();
    endpoint->AdoptServers(*added);
    EXPECT_TRUE(Add(*endpoint, 3).ok());
    fabric.Disconnect(3);
    EXPECT_FALSE(fabric.IsConnected(3));
    ExpectStaysUnavailable(*endpoint, 3);
  }
  EXPECT_EQ(Word(MemorySpace::kMain, 0, 3), 3u);
  fabric.Disconnect(9);
  EXPECT_TRUE(Add(*endpoint, 1).ok());
  EXPECT_TRUE(Add(*elsewhere, 1).ok());
}

}  // namespace pando
