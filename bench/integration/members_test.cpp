// Memory servers come, go and come back while clients work (rules C0, R7, R8).
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
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/bystander.h"
#include "common/base/sanitizer.h"
#include "common/base/unique_fd.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"

namespace pando {
namespace {

using Clock = std::chrono::steady_clock;

// Sanitizers take their time.
bool Within(std::chrono::milliseconds time, const std::function<bool()>& condition) {
  const Bystander bystander;
  const auto start = Clock::now();
  while (!condition()) {
    if (Clock::now() - start > bystander.Bound((kSanitized ? 5 : 1) * time)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class MembersTest : public testing::Test {
 protected:
  MembersTest() : client_(cluster_.NewClient()), session_(*client_->NewSession()) {}

  absl::Status Fill(Session& session, const Tree& tree, uint64_t first, uint64_t end) {
    for (uint64_t n = first; n < end; ++n) {
      const absl::Status put = session.Put(tree, NumberedKey(n), std::to_string(n));
      if (!put.ok()) return put;
    }
    return absl::OkStatus();
  }
  // All keys below `end`, read one by one and by a scan.
  void ExpectWhole(Session& session, const Tree& tree, uint64_t end) {
    for (uint64_t n = 0; n < end; ++n) {
      ASSERT_EQ(session.Get(tree, NumberedKey(n)).value_or("lost"), std::to_string(n)) << n;
    }
    std::vector<KeyValue> rows;
    ASSERT_OK(session.Scan(tree, "", end + 1, &rows));
    EXPECT_EQ(rows.size(), end);
  }
  static uint64_t NodesOut(Client& client, uint16_t server) {
    for (const ServerStatus& status : client.Servers()) {
      if (status.id == server && status.available) return status.used_bytes;
    }
    return 0;
  }

  // Few records fill much memory.
  static constexpr TreeOptions kWide = {.value_bytes_max = 200};
  IntegrationCluster cluster_{{.memory_servers = 1, .main_bytes = uint64_t{8} << 20}};
  std::unique_ptr<Client> client_;
  std::unique_ptr<Session> session_;
};

TEST_F(MembersTest, TreesGrowOntoAServerThatComesForThoseWhoWereThereBefore) {
  auto tree = client_->CreateTree("t", kWide);
  ASSERT_OK(tree);
  ASSERT_OK(Fill(*session_, **tree, 0, 1'000));
  auto other = cluster_.NewClient();
  auto other_tree = other->OpenTree("t");
  ASSERT_OK(other_tree);
  auto other_session = other->NewSession();
  ASSERT_OK(other_session);

  cluster_.Start(2);
  auto late = cluster_.NewClient();
  auto late_tree = late->OpenTree("t");
  ASSERT_OK(late_tree) << "it has nothing there: nothing is lost";
  auto late_session = late->NewSession();
  ASSERT_OK(late_session);
  // More than the first server holds: both go on, on the second.
  uint64_t count = 1'000;
  for (; NodesOut(*late, 2) < (uint64_t{2} << 20); count += 500) {
    ASSERT_OK(Fill(**late_session, **late_tree, count, count + 250));
    ASSERT_OK(Fill(*session_, **tree, count + 250, count + 500));
    ASSERT_LT(count, 60'000u);
  }
  ExpectWhole(**other_session, **other_tree, count);
  EXPECT_OK(other->TreeStatus(**other_tree));
  const auto report = (*other_session)->Check(**other_tree, {});
  ASSERT_OK(report);
  EXPECT_TRUE(report->ok()) << report->problems.front();
}

TEST_F(MembersTest, AServerIsTakenUpWithinTwoSeconds) {
  auto tree = client_->CreateTree("t", {});
  ASSERT_OK(tree);
  for (int server = 2; server <= 4; ++server) {
    cluster_.Start(server);
    EXPECT_TRUE(Within(std::chrono::seconds(2), [&] {
      return client_->Servers().size() == static_cast<size_t>(server);
    })) << server;
  }
  EXPECT_OK(client_->TreeStatus(**tree));
}

TEST_F(MembersTest, WhatIsLostIsSaidAndWhatIsNotIsNot) {
  auto first = client_->CreateTree("first", kWide);
  ASSERT_OK(first);
  ASSERT_OK(Fill(*session_, **first, 0, 300));
  cluster_.Start(2);
  ASSERT_TRUE(Within(std::chrono::seconds(2), [&] { return client_->Servers().size() == 2; }));
  // The second server has more free: this one goes there.
  auto second = client_->CreateTree("second", kWide);
  ASSERT_OK(second);
  ASSERT_OK(Fill(*session_, **second, 0, 3'000));
  ASSERT_GT(NodesOut(*client_, 2), 0u);

  cluster_.Stop(2);
  // The memory is there until the client has noticed.
  ASSERT_TRUE(Within(std::chrono::seconds(2),
                     [&] { return absl::IsUnavailable(client_->TreeStatus(**second)); }));
  EXPECT_OK(client_->TreeStatus(**first));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*session_, **first, 300));
  auto between = cluster_.NewClient([&] {
    ClientOptions options = cluster_.ClientDefaults();
    options.memory_servers_min = 1;
    return options;
  }());
  auto first_between = between->OpenTree("first");
  ASSERT_OK(first_between);
  EXPECT_OK(between->TreeStatus(**first_between));

  cluster_.Start(2);
  ASSERT_TRUE(Within(std::chrono::seconds(2), [&] {
    return absl::IsDataLoss(client_->TreeStatus(**second));
  })) << client_->TreeStatus(**second);
  EXPECT_CODE(session_->Get(**second, NumberedKey(1)), DataLoss);
  EXPECT_CODE(session_->Put(**second, NumberedKey(1), "x"), DataLoss);
  EXPECT_CODE(client_->OpenTree("second"), DataLoss);
  EXPECT_CODE(cluster_.NewClient()->OpenTree("second"), DataLoss);
  EXPECT_OK(client_->TreeStatus(**first));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*session_, **first, 300));

  // The advice, without connecting anew.
  ASSERT_OK(client_->DropTree("second"));
  auto again = client_->CreateTree("second", kWide);
  ASSERT_OK(again);
  ASSERT_OK(Fill(*session_, **again, 0, 3'000));
  EXPECT_GT(NodesOut(*client_, 2), 0u) << "it is used again";
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*session_, **again, 3'000));
  ASSERT_OK(Fill(*session_, **first, 300, 4'000));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*session_, **first, 4'000));
  EXPECT_CODE(session_->Get(**second, NumberedKey(1)), DataLoss) << "the old handle";
}

// Others know of a server's next life before this client does: what it asks then must not be
// answered with "lost", and advice that would lose the tree.
TEST_F(MembersTest, WhatGrewOntoAServersNextLifeIsNotTakenForLost) {
  cluster_.Start(2);
  ASSERT_TRUE(Within(std::chrono::seconds(2), [&] { return client_->Servers().size() == 2; }));
  for (int round = 0; round < 4; ++round) {
    const std::string name = "t" + std::to_string(round);
    auto tree = client_->CreateTree(name, {});
    ASSERT_OK(tree);
    cluster_.Stop(2);
    cluster_.Start(2);
    auto other = cluster_.NewClient();
    auto other_tree = other->OpenTree(name);
    ASSERT_OK(other_tree);
    auto unseen = other->CreateTree(name + "unseen", {});
    ASSERT_OK(unseen);
    auto other_session = other->NewSession();
    ASSERT_OK(other_session);
    uint64_t count = 0;
    for (; NodesOut(*other, 2) == 0; count += 500) {
      ASSERT_OK(Fill(**other_session, **other_tree, count, count + 500));
      ASSERT_OK(Fill(**other_session, **unseen, count, count + 500));
    }
    EXPECT_OK(client_->TreeStatus(**tree)) << round;
    EXPECT_OK(client_->OpenTree(name + "unseen")) << round;
    ASSERT_NO_FATAL_FAILURE(ExpectWhole(*session_, **tree, count));
  }
}

TEST_F(MembersTest, AServerThatHasJustComeIsFoundWhenATreeIsAskedFor) {
  for (int server = 2; server <= 4; ++server) {
    const std::string name = "t" + std::to_string(server);
    auto tree = client_->CreateTree(name, {});
    ASSERT_OK(tree);
    cluster_.Start(server);
    auto other = cluster_.NewClient();
    auto other_tree = other->OpenTree(name);
    ASSERT_OK(other_tree);
    auto other_session = other->NewSession();
    ASSERT_OK(other_session);
    for (uint64_t n = 0; NodesOut(*other, static_cast<uint16_t>(server)) == 0; n += 500) {
      ASSERT_OK(Fill(**other_session, **other_tree, n, n + 500));
    }
    const Bystander bystander;
    const auto begun = Clock::now();
    EXPECT_OK(client_->TreeStatus(**tree)) << server;
    EXPECT_LT(Clock::now() - begun, bystander.Bound(std::chrono::seconds(1)))
        << "nobody waits for whom he holds up";
  }
}

TEST_F(MembersTest, ATreeIsSweptThoughAServerThatItHasNothingOnIsDead) {
  auto tree = client_->CreateTree("t", {});
  ASSERT_OK(tree);
  ASSERT_OK(Fill(*session_, **tree, 0, 100));
  cluster_.Start(2);
  ASSERT_TRUE(Within(std::chrono::seconds(2), [&] { return client_->Servers().size() == 2; }));
  cluster_.Stop(2);
  ASSERT_TRUE(Within(std::chrono::seconds(2), [&] { return !client_->Servers()[1].available; }));
  SweepResult swept;
  EXPECT_OK(session_->Sweep(**tree, &swept));
}

// Who could not open a tree does not keep its memory from others.
TEST_F(MembersTest, ATreeThatIsLostIsGivenBackThoughOthersTriedToOpenIt) {
  cluster_.Start(2);
  ASSERT_TRUE(Within(std::chrono::seconds(2), [&] { return client_->Servers().size() == 2; }));
  auto tree = client_->CreateTree("t", kWide);
  ASSERT_OK(tree);
  ASSERT_OK(Fill(*session_, **tree, 0, 3'000));
  ASSERT_GT(NodesOut(*client_, 2), 0u);
  cluster_.Stop(2);
  cluster_.Start(2);
  auto other = cluster_.NewClient();
  EXPECT_CODE(other->OpenTree("t"), DataLoss);
  ASSERT_TRUE(Within(std::chrono::seconds(2),
                     [&] { return absl::IsDataLoss(client_->TreeStatus(**tree)); }));
  ASSERT_OK(client_->DropTree("t"));
  tree->reset();
  session_.reset();
  client_.reset();  // who may have something in flight to the tree (rule R6)
  EXPECT_EQ(NodesOut(*other, 1), 0u);
}

TEST_F(MembersTest, ACatalogThatComesBackEmptyIsToldByItsTreesAndTakesNewOnes) {
  auto tree = client_->CreateTree("t", {});
  ASSERT_OK(tree);
  ASSERT_OK(Fill(*session_, **tree, 0, 100));
  cluster_.Stop(1);
  cluster_.Start(1);
  ASSERT_TRUE(Within(std::chrono::seconds(2), [&] {
    return absl::IsDataLoss(session_->Get(**tree, NumberedKey(1)).status());
  })) << session_->Get(**tree, NumberedKey(1)).status();
  EXPECT_CODE(client_->OpenTree("t"), NotFound);
  auto again = client_->CreateTree("t", {});
  ASSERT_OK(again);
  ASSERT_OK(Fill(*session_, **again, 0, 5'000));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*session_, **again, 5'000));
  auto other = cluster_.NewClient();
  EXPECT_NE(other->compute_server_id(), client_->compute_server_id());
  auto other_tree = other->OpenTree("t");
  ASSERT_OK(other_tree);
  auto other_session = other->NewSession();
  ASSERT_OK(other_session);
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(**other_session, **other_tree, 5'000));
}

// The one that needs the catalog to be introduced comes first.
TEST_F(MembersTest, ServersThatComeBackTogetherAreTakenUpInAnyOrder) {
  cluster_.Start(2);
  ASSERT_TRUE(Within(std::chrono::seconds(2), [&] { return client_->Servers().size() == 2; }));
  auto tree = client_->CreateTree("t", {});
  ASSERT_OK(tree);
  cluster_.Stop(1);
  cluster_.Stop(2);
  ASSERT_TRUE(Within(std::chrono::seconds(2),
                     [&] { return absl::IsUnavailable(client_->TreeStatus(**tree)); }));
  cluster_.Start(2);
  // Several attempts.
  std::this_thread::sleep_for(std::chrono::milliseconds(3'500));
  cluster_.Start(1);
  ASSERT_TRUE(Within(std::chrono::seconds(3), [&] {
    const std::vector<ServerStatus> servers = client_->Servers();
    return std::all_of(servers.begin(), servers.end(),
                       [](const ServerStatus& server) { return server.available; });
  }));
  EXPECT_FALSE(client_->fenced());
  EXPECT_CODE(session_->Get(**tree, NumberedKey(1)), DataLoss);
  auto again = client_->CreateTree("again", {});
  ASSERT_OK(again);
  ASSERT_OK(Fill(*session_, **again, 0, 2'000));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*session_, **again, 2'000));
}

TEST_F(MembersTest, ServersComeAndGoUnderLoad) {
  // A tree that is on the first server alone, as it was made before there were others.
  auto kept = client_->CreateTree("kept", {});
  ASSERT_OK(kept);
  ASSERT_OK(Fill(*session_, **kept, 0, 2'000));
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> writes{0};
  std::vector<std::thread> threads;
  std::vector<absl::Status> failures(2);
  for (size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&, t] {
      auto session = client_->NewSession();
      for (uint64_t n = 0; !stop && failures[t].ok(); ++n) {
        failures[t] = (*session)->Put(**kept, NumberedKey(n % 2'000), std::to_string(n % 2'000));
        ++writes;
      }
    });
  }
  const char* const rounds_flag = getenv("PANDO_TEST_ROUNDS");
  const int rounds = rounds_flag != nullptr ? atoi(rounds_flag) : 4;
  for (int round = 0; round < rounds; ++round) {
    const int server = 2 + round % 3;
    cluster_.Start(server);
    ASSERT_TRUE(Within(std::chrono::seconds(10), [&] {
      for (const ServerStatus& status : client_->Servers()) {
        if (status.id == server && status.available) return true;
      }
      return false;
    })) << round;
    // One that goes there, used by two clients while its server dies.
    const std::string name = "t" + std::to_string(round);
    auto tree = client_->CreateTree(name, kWide);
    ASSERT_OK(tree);
    ASSERT_OK(Fill(*session_, **tree, 0, 1'000)) << round;
    auto other = cluster_.NewClient();
    auto other_tree = other->OpenTree(name);
    ASSERT_OK(other_tree);
    // What it needs may be on the server that stays.
    std::atomic<bool> told{false};
    std::thread user([&] {
      auto session = other->NewSession();
      while ((*session)->Put(**other_tree, NumberedKey(1), "x").ok() && !told) {
      }
    });
    cluster_.Stop(server);
    if (round % 2 == 0) cluster_.Start(server);
    EXPECT_TRUE(Within(std::chrono::seconds(2), [&] {
      const absl::Status status = client_->TreeStatus(**tree);
      return absl::IsUnavailable(status) || absl::IsDataLoss(status);
    })) << round;
    EXPECT_FALSE(session_->Check(**tree, {}).ok()) << round;
    told = true;
    user.join();
    EXPECT_OK(client_->TreeStatus(**kept)) << round;
    tree->reset();
    other_tree->reset();
    ASSERT_OK(client_->DropTree(name)) << round;
    if (round % 2 == 0) cluster_.Stop(server);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& failure : failures) EXPECT_OK(failure);
  EXPECT_GT(writes, 0u);
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(*session_, **kept, 2'000));
}

// --- Connecting.

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
  const auto start = Clock::now();
  auto client = Client::Connect(cluster_.ClientDefaults());
  ASSERT_OK(client);
  EXPECT_LT(Clock::now() - start, bystander.Bound(std::chrono::seconds(3)));
  EXPECT_EQ((*client)->Servers().size(), 1u);
  auto tree = (*client)->CreateTree("t", {});
  ASSERT_OK(tree);
  auto session = (*client)->NewSession();
  ASSERT_OK(session);
  ASSERT_OK(Fill(**session, **tree, 0, 1'000));
  // Who comes later is not behind them, nor is a session that begins, or the client's end.
  std::atomic<bool> stop{false};
  std::atomic<int64_t> longest_ms{0};
  std::thread beginner([&] {
    while (!stop) {
      const auto begun = Clock::now();
      EXPECT_OK((*client)->NewSession());
      const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
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
  const auto ends = Clock::now();
  client->reset();
  EXPECT_LT(Clock::now() - ends, bystander.Bound(std::chrono::milliseconds(2'500)));
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

// --- Identities (rule C0).

TEST_F(MembersTest, NoIdIsGivenOutTwiceHoweverOftenTheCatalogStarts) {
  std::set<uint32_t> incarnations;
  const auto join = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const auto client = cluster_.NewClient();
      const uint32_t incarnation = ImplOf(*client).environment().control.incarnation();
      ASSERT_TRUE(incarnations.insert(incarnation).second) << incarnation;
    }
  };
  const char* const joins_flag = getenv("PANDO_TEST_JOINS");
  const int usual = IntegrationCluster::is_slow() ? 50 : 500;
  const int joins = joins_flag != nullptr ? atoi(joins_flag) : usual;
  for (int life = 0; life < 3; ++life) {
    ASSERT_NO_FATAL_FAILURE(join(joins));
    const uint32_t highest = *incarnations.rbegin();
    cluster_.Stop(1);  // it writes nothing on its way out
    cluster_.Start(1);
    auto client = cluster_.NewClient();
    EXPECT_GT(ImplOf(*client).environment().control.incarnation(), highest);
    auto tree = client->CreateTree("t", {});
    ASSERT_OK(tree);
    auto session = client->NewSession();
    ASSERT_OK(session);
    ASSERT_OK(Fill(**session, **tree, 0, 1'000));
  }
}

}  // namespace
}  // namespace pando
