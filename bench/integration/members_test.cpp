// Memory servers come, go and come back while clients work (rules C0, R7, R8).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "bench/integration/members_test_util.h"
#include "common/base/bystander.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"

namespace pando {
namespace {

using SteadyClock = std::chrono::steady_clock;

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

  // The advice, without a new connection.
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
    const auto begun = SteadyClock::now();
    EXPECT_OK(client_->TreeStatus(**tree)) << server;
    EXPECT_LT(SteadyClock::now() - begun, bystander.Bound(std::chrono::seconds(1)))
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

// A client that could not open a tree does not keep its memory from others.
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

// Once dropped, where a tree has nodes is known to nobody: any server's next life ends it. That
// says nothing of its keys.
TEST_F(MembersTest, ADroppedTreeThatIsOpenSaysOfNoKeyThatItIsAbsent) {
  cluster_.Start(2);
  ASSERT_TRUE(Within(std::chrono::seconds(2), [&] { return client_->Servers().size() == 2; }));
  auto tree = client_->CreateTree("t", {.value_bytes_max = 4'000});
  ASSERT_OK(tree);
  ASSERT_OK(Fill(*session_, **tree, 0, 10));
  ASSERT_OK(cluster_.NewClient()->DropTree("t"));
  EXPECT_CODE(client_->TreeStatus(**tree), NotFound);
  EXPECT_OK(session_->Get(**tree, NumberedKey(1))) << "it works until then";
  cluster_.Stop(2);
  cluster_.Start(2);
  ASSERT_TRUE(
      Within(std::chrono::seconds(3), [&] { return !session_->Get(**tree, NumberedKey(1)).ok(); }));
  EXPECT_CODE(session_->Get(**tree, NumberedKey(1)), FailedPrecondition);
  EXPECT_CODE(session_->Update(**tree, NumberedKey(1), "x"), FailedPrecondition);
  EXPECT_CODE(session_->Erase(**tree, NumberedKey(1)), FailedPrecondition);
  std::vector<KeyValue> rows;
  EXPECT_CODE(session_->Scan(**tree, "", 1, &rows), FailedPrecondition);
  EXPECT_CODE(session_->MultiGet(**tree, {NumberedKey(1)}).front(), FailedPrecondition);
  EXPECT_CODE(client_->TreeStatus(**tree), NotFound) << "here the tree is asked for";
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

// Stopped (SIGSTOP) for longer than its client waits: the client gives that up, and comes again.
TEST_F(MembersTest, AServerThatIsStoppedInTheMiddleOfAnIntroductionIsTakenUpOnceItGoesOn) {
  session_.reset();
  client_.reset();
  ClientOptions options = cluster_.ClientDefaults();
  options.memory_servers_min = 1;
  options.connect_timeout_ms = 1'000;
  auto client = cluster_.NewClient(options);
  auto tree = client->CreateTree("t", kWide);
  ASSERT_OK(tree);
  auto session = client->NewSession();
  ASSERT_OK(session);
  int server = 1;
  for (const ControlOpcode opcode : {ControlOpcode::kAttach, ControlOpcode::kAttachTree}) {
    for (const bool done : {false, true}) {
      const auto halt = std::make_shared<Halt>(opcode, done);
      cluster_.Start(++server, halt);
      const bool reached = halt->AwaitReached(std::chrono::seconds(30));
      // It has given up, and been refused at least once since.
      std::this_thread::sleep_for(std::chrono::milliseconds(3'000));
      halt->GoOn();
      ASSERT_TRUE(reached);
      EXPECT_TRUE(Within(std::chrono::seconds(20), [&] {
        return client->Servers().size() == static_cast<size_t>(server);
      })) << server;
      EXPECT_FALSE(client->fenced());
      for (const ServerStatus& status : client->Servers()) {
        for (const auto& [name, value] : status.counters) {
          EXPECT_FALSE(name == "deaths" && value > 0) << "on server " << status.id;
        }
      }
    }
  }
  ASSERT_OK(Fill(**session, **tree, 0, 20'000));
  ASSERT_NO_FATAL_FAILURE(ExpectWhole(**session, **tree, 20'000));
  for (int added = 2; added <= server; ++added) EXPECT_GT(NodesOut(*client, added), 0u);
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
