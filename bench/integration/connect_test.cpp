// Clients connect to the memory servers that answer.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "bench/integration/members_test_util.h"
#include "common/base/bystander.h"
#include "common/base/unique_fd.h"

namespace pando {
namespace {

using SteadyClock = std::chrono::steady_clock;

TEST_F(MembersTest, ConnectsToThoseThatAnswer) {
  cluster_.Start(2);
  // An entry that is none, and one behind which nobody answers.
  const std::string directory = cluster_.registry();
  ClientOptions options = cluster_.ClientDefaults();
  options.memory_servers_min = 2;
  {
    std::ofstream(directory + "/server-2", std::ios::trunc) << "garbage";
    options.connect_timeout_ms = 100;
    const auto refused = Client::Connect(options);
    EXPECT_CODE(refused, Unavailable);
    EXPECT_NE(refused.status().message().find("server-2"), absl::string_view::npos)
        << refused.status();
  }
  options.memory_servers_min = 1;
  options.connect_timeout_ms = 2'000;
  auto client = Client::Connect(options);
  ASSERT_OK(client);
  EXPECT_EQ((*client)->Servers().size(), 1u);
  EXPECT_OK((*client)->CreateTree("t", {}));
}

// Nobody is announced: what cannot be is said without asking anybody.
TEST_F(MembersTest, OptionsAreLookedAtBeforeServersAre) {
  const auto refused = [this](auto set, absl::string_view name) {
    ClientOptions options = cluster_.ClientDefaults();
    options.connect_timeout_ms = 100;
    set(options);
    const auto client = Client::Connect(options);
    EXPECT_CODE(client, InvalidArgument);
    EXPECT_NE(client.status().message().find(name), absl::string_view::npos) << client.status();
  };
  refused([](ClientOptions& o) { o.connect_timeout_ms = 0; }, "timeouts");
  refused([](ClientOptions& o) { o.operation_timeout_ms = -1; }, "timeouts");
  refused([](ClientOptions& o) { o.coroutines_per_session = 0; }, "coroutines_per_session");
  refused([](ClientOptions& o) { o.service_threads = 0; }, "service_threads");
  refused([](ClientOptions& o) { o.fabric = "pigeon"; }, "pigeon");
}

// As stopped servers: the kernel takes the connection, nobody says anything.
TEST_F(MembersTest, SilentServersAreWaitedForTogether) {
  const std::string fabric = IntegrationCluster::default_fabric();
  auto registry = OpenRegistry(cluster_.registry());
  ASSERT_OK(registry);
  std::vector<UniqueFd> listeners;
  std::vector<std::unique_ptr<Announcement>> announcements;
  for (ServerId id = 50; id < 56; ++id) {
    std::string address = cluster_.registry() + "/silent-" + std::to_string(id);
    sockaddr_un local = {.sun_family = AF_UNIX, .sun_path = {}};
    address.copy(local.sun_path, sizeof(local.sun_path) - 1);
    sockaddr_in port = {};
    port.sin_family = AF_INET;
    port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool tcp = fabric == "verbs";
    auto* const name =
        tcp ? reinterpret_cast<sockaddr*>(&port) : reinterpret_cast<sockaddr*>(&local);
    socklen_t bytes = tcp ? sizeof(port) : sizeof(local);
    // As unix_socket.h and tcp_socket.h have them.
    listeners.emplace_back(socket(name->sa_family, tcp ? SOCK_STREAM : SOCK_SEQPACKET, 0));
    ASSERT_EQ(bind(listeners.back().get(), name, bytes), 0) << errno;
    ASSERT_EQ(listen(listeners.back().get(), 8), 0);
    if (tcp) {
      ASSERT_EQ(getsockname(listeners.back().get(), name, &bytes), 0);
      address = "127.0.0.1:" + std::to_string(ntohs(port.sin_port));
    }
    auto announcement =
        (*registry)->Announce({.id = id, .address = address, .fabric = fabric, .host = ""});
    ASSERT_OK(announcement);
    announcements.push_back(*std::move(announcement));
  }
  const Bystander bystander;
  const auto start = SteadyClock::now();
  auto client = Client::Connect(cluster_.ClientDefaults());
  ASSERT_OK(client);
  EXPECT_LT(SteadyClock::now() - start, bystander.Bound(std::chrono::seconds(3)));
  EXPECT_EQ((*client)->Servers().size(), 1u);
  auto tree = (*client)->CreateTree("t", {});
  ASSERT_OK(tree);
  auto session = (*client)->NewSession();
  ASSERT_OK(session);
  ASSERT_OK(Fill(**session, **tree, 0, 1'000));
  // A later client does not wait for them, nor does a new session, or the client's end.
  std::atomic<bool> stop{false};
  std::atomic<int64_t> longest_ms{0};
  std::thread beginner([&] {
    while (!stop) {
      const auto begun = SteadyClock::now();
      EXPECT_OK((*client)->NewSession());
      const auto took =
          std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - begun);
      longest_ms = std::max<int64_t>(longest_ms, took.count());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  for (size_t server = 2; server <= 3; ++server) {
    cluster_.Start(server == 2 ? 60 : 2);
    EXPECT_TRUE(Within(std::chrono::milliseconds(2'500),
                       [&] { return (*client)->Servers().size() == server; }));
  }
  stop = true;
  beginner.join();
  EXPECT_LT(std::chrono::milliseconds(longest_ms), bystander.Bound(std::chrono::milliseconds(700)));
  session->reset();
  tree->reset();
  const auto ends = SteadyClock::now();
  client->reset();
  EXPECT_LT(SteadyClock::now() - ends, bystander.Bound(std::chrono::milliseconds(2'500)));
}

// A server that was killed leaves its entry: nobody listens there, and how long does not matter.
TEST_F(MembersTest, AServerThatWasAwayForLongIsTakenUpAsSoon) {
  const std::string fabric = IntegrationCluster::default_fabric();
  auto registry = OpenRegistry(cluster_.registry());
  ASSERT_OK(registry);
  auto announcement = (*registry)->Announce(
      {.id = 2,
       .address = fabric == "verbs" ? "127.0.0.1:1" : cluster_.registry() + "/server-2.sock",
       .fabric = fabric,
       .host = ""});
  ASSERT_OK(announcement);
  std::this_thread::sleep_for(std::chrono::milliseconds(5'500));
  announcement->reset();
  cluster_.Start(2);
  EXPECT_TRUE(Within(std::chrono::seconds(2), [&] { return client_->Servers().size() == 2; }));
}

TEST_F(MembersTest, WaitsForTheCatalogAsLongAsForServers) {
  IntegrationCluster late({.memory_servers = 0});
  late.Start(2);
  ClientOptions options = late.ClientDefaults();
  options.memory_servers_min = 1;
  options.connect_timeout_ms =
      IntegrationCluster::is_slow() ? 5'000 : 1'000;  // a busy machine connects late
  const auto refused = Client::Connect(options);
  EXPECT_CODE(refused, Unavailable);
  EXPECT_NE(refused.status().message().find("catalog"), absl::string_view::npos)
      << refused.status();
  std::thread starts([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    late.Start(1);
  });
  options.connect_timeout_ms = 10'000;
  auto client = Client::Connect(options);
  starts.join();
  ASSERT_OK(client);
  EXPECT_OK((*client)->CreateTree("t", {}));
}

}  // namespace
}  // namespace pando
