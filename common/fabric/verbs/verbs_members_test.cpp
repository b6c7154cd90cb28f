// Servers that do not answer when a client connects, and those that come later, beside what the
// suite says of them. Needs an RDMA device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/fabric/server_index.h"
#include "common/fabric/verbs/tcp_socket.h"
#include "common/fabric/verbs/verbs_holdings.h"
#include "common/fabric/verbs/verbs_test_cluster.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class VerbsMembersTest : public VerbsDeviceTest {
 protected:
  std::unique_ptr<VerbsServerThread> Start(ServerId id, VerbsServerOptions options = {}) {
    options.server_id = id;
    options.main_bytes = 1 << 20;
    return std::make_unique<VerbsServerThread>(options, &handler_);
  }
  static uint64_t Word(VerbsServerThread& server, uint64_t offset = 0) {
    return reinterpret_cast<const uint64_t*>(server.server().memory().main.data())[offset / 8];
  }
  static absl::Status Add(Endpoint& endpoint, ServerId server) {
    Chain chain(server);
    chain.FetchAdd(MemorySpace::kMain, 0, 1);
    endpoint.Post(&chain);
    while (!chain.done()) {
      if (endpoint.Poll() == 0) endpoint.Wait(endpoint.clock().NowNs() + kSecondNs);
    }
    return chain.status();
  }
  // As a server that is stopped: the kernel takes the connection, nobody says anything.
  static TcpListener Silent() {
    auto listener = ListenTcp({"127.0.0.1", "0"});
    PANDO_CHECK_OK(listener.status());
    return *std::move(listener);
  }

  EchoHandler handler_;
};

TEST_F(VerbsMembersTest, ConnectsToThoseThatAnswerAndSaysWhichDoNot) {
  constexpr int64_t kTimeoutMs = 700;
  constexpr ServerId kFirstSilent = 10, kSilent = 5;
  auto server = Start(1), other = Start(2);
  std::vector<TcpListener> silent;
  std::vector<ServerLocation> locations = {server->location()};
  for (ServerId i = 0; i < kSilent; ++i) {
    silent.push_back(Silent());
    locations.push_back({static_cast<ServerId>(kFirstSilent + i), silent.back().bound.ToString()});
  }
  locations.push_back({20, "127.0.0.1:1"});              // nobody listens
  locations.push_back({21, other->location().address});  // calls itself otherwise
  locations.push_back({22, "/no/port"});
  locations.push_back(other->location());

  std::vector<absl::Status> missing;
  const int64_t start_ns = RealClock().NowNs();
  auto fabric = ConnectVerbs(locations, {.connect_timeout_ms = kTimeoutMs, .missing = &missing});
  const int64_t took_ns = RealClock().NowNs() - start_ns;
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  EXPECT_LT(took_ns, 2 * kTimeoutMs * kMillisecondNs) << "each is waited for at the same time";
  EXPECT_THAT((*fabric)->servers(), ElementsAre(1, 2));
  ASSERT_EQ(missing.size(), size_t{kSilent + 3});
  for (size_t i = 0; i < missing.size(); ++i) {
    const ServerLocation& location = locations[1 + i];
    EXPECT_THAT(std::string(missing[i].message()),
                HasSubstr("server " + std::to_string(location.id) + " at " + location.address));
    EXPECT_TRUE(i >= kSilent || absl::IsUnavailable(missing[i])) << missing[i];
  }
  auto endpoint = *(*fabric)->Connect(1, 1);
  EXPECT_TRUE(Add(*endpoint, 1).ok());
  EXPECT_TRUE(Add(*endpoint, 2).ok());
  EXPECT_TRUE(IsNotConnected(Add(*endpoint, kFirstSilent)));

  // One must answer; and all, where nobody asks which do not.
  locations.erase(locations.begin());
  locations.pop_back();
  missing.clear();
  const auto none = ConnectVerbs(locations, {.connect_timeout_ms = 100, .missing = &missing});
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(missing.size(), locations.size());
  locations.push_back(server->location());
  const auto all = ConnectVerbs(locations, {.connect_timeout_ms = 100});
  EXPECT_TRUE(absl::IsUnavailable(all.status())) << all.status();
}

TEST_F(VerbsMembersTest, ASilentServerIsNotAddedAndHoldsUpNobody) {
  auto server = Start(1);
  auto fabric = *ConnectVerbs({server->location()}, {.connect_timeout_ms = 100});
  auto endpoint = *fabric->Connect(1, 1);
  TcpListener silent = Silent();
  std::thread adding([&] {
    const auto added = fabric->AddServer({2, silent.bound.ToString()});
    EXPECT_TRUE(absl::IsUnavailable(added.status())) << added.status();
    EXPECT_THAT(std::string(added.status().message()), HasSubstr("server 2"));
  });
  const int64_t until_ns = RealClock().NowNs() + 300 * kMillisecondNs;
  while (RealClock().NowNs() < until_ns) EXPECT_TRUE(Add(*endpoint, 1).ok());
  adding.join();
  EXPECT_THAT(fabric->servers(), ElementsAre(1));
  // Nothing was counted: the next one is the first.
  auto other = Start(2);
  const auto added = fabric->AddServer(other->location());
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(*added, 1u);
}

// More servers than the completion queue had room for, all with chains at the same time; and what
// an endpoint holds does not grow with the lives that it has seen.
TEST_F(VerbsMembersTest, EndpointsGrowAndDoNotGrowForEver) {
  constexpr ServerId kServers = 9;
  constexpr int kChains = 40;
  std::vector<std::unique_ptr<VerbsServerThread>> servers;
  servers.push_back(Start(1));
  auto fabric = *ConnectVerbs({servers[0]->location()});
  auto endpoint = *fabric->Connect(1, 1);
  const auto use_all = [&] {
    std::vector<std::unique_ptr<Chain>> chains;
    endpoint->set_overlap(true);
    for (int i = 0; i < kChains; ++i) {
      for (const ServerId server : fabric->servers()) {
        chains.push_back(std::make_unique<Chain>(server));
        chains.back()->FetchAdd(MemorySpace::kMain, 0, 1);
        endpoint->Post(chains.back().get());
      }
    }
    endpoint->set_overlap(false);
    for (const auto& chain : chains) {
      while (!chain->done()) {
        if (endpoint->Poll() == 0) endpoint->Wait(endpoint->clock().NowNs() + kSecondNs);
      }
      EXPECT_TRUE(chain->ok()) << chain->status();
    }
  };
  use_all();
  for (ServerId id = 2; id <= kServers; ++id) {
    servers.push_back(Start(id));
    const auto added = fabric->AddServer(servers.back()->location());
    ASSERT_TRUE(added.ok()) << added.status();
    endpoint->AdoptServers(*added);
    use_all();
  }
  EXPECT_EQ(Word(*servers[0]), uint64_t{kServers * kChains});
  EXPECT_EQ(Word(*servers.back()), uint64_t{kChains});

  const std::string address = servers.back()->location().address;
  Holdings first;
  for (int life = 0; life < 20; ++life) {
    servers.back().reset();
    while (fabric->IsConnected(kServers)) std::this_thread::yield();
    servers.back() = Start(kServers, {.listen = address});
    const auto added = fabric->AddServer(servers.back()->location());
    ASSERT_TRUE(added.ok()) << added.status();
    endpoint->AdoptServers(*added);
    use_all();
    EXPECT_EQ(Word(*servers.back()), uint64_t{kChains}) << "what is left of the life before";
    const Holdings held = Holdings::Now();
    if (life == 2) first = held;
    EXPECT_TRUE(life <= 2 || held == first) << life;
  }
}

}  // namespace
}  // namespace pando
