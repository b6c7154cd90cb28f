// Trees, clients and memory servers come and go.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "bench/integration/integration_cluster.h"
#include "common/base/bystander.h"
#include "common/base/quiet_thread.h"
#include "pando/executor.h"
#include "pando/losses.h"

namespace pando {
namespace {

// Polls: what servers do after a rest, or when they notice.
bool Eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

uint64_t UsedBytes(Client& client) {
  uint64_t used_bytes = 0;
  for (const ServerStatus& server : client.Servers()) used_bytes += server.used_bytes;
  return used_bytes;
}

class LifecycleTest : public testing::Test {
 protected:
  void Fill(Client& client, const Tree& tree, uint64_t count) {
    auto session = client.NewSession();
    ASSERT_OK(session);
    for (uint64_t n = 0; n < count; ++n)
      ASSERT_OK((*session)->Put(tree, NumberedKey(n), std::to_string(n)));
  }
  IntegrationCluster cluster_;
  std::unique_ptr<Client> client_ = cluster_.NewClient();
};

TEST_F(LifecycleTest, TreesHaveNames) {
  EXPECT_CODE(client_->OpenTree("words"), NotFound);
  EXPECT_CODE(client_->DropTree("words"), NotFound);
  auto words = client_->CreateTree("words", {.key_bytes_max = 64, .value_bytes_max = 4});
  ASSERT_OK(words);
  EXPECT_EQ((*words)->name(), "words");
  EXPECT_EQ((*words)->key_bytes_max(), 64u);
  EXPECT_EQ((*words)->value_bytes_max(), 4u);
  auto other = cluster_.NewClient();
  auto opened = other->OpenTree("words");
  ASSERT_OK(opened);
  EXPECT_EQ((*opened)->node_bytes(), (*words)->node_bytes());
  EXPECT_CODE(other->OpenTree("word"), NotFound);
  EXPECT_CODE(other->OpenTree("wordss"), NotFound);
  const auto trees = client_->ListTrees();
  ASSERT_OK(trees);
  ASSERT_EQ(trees->size(), 1u);
  EXPECT_EQ((*trees)[0].name, "words");
  EXPECT_EQ((*trees)[0].key_bytes_max, 64u);
}

TEST_F(LifecycleTest, AnExistingTreeKeepsItsOptions) {
  auto tree = client_->CreateTree("t", {.key_bytes_max = 20, .value_bytes_max = 10});
  ASSERT_OK(tree);
  Fill(*client_, **tree, 10);
  for (const TreeOptions& options :
       {TreeOptions{.key_bytes_max = 21, .value_bytes_max = 10},
        TreeOptions{.key_bytes_max = 20, .value_bytes_max = 11},
        TreeOptions{.key_bytes_max = 20, .value_bytes_max = 10, .node_bytes = 4096}}) {
    EXPECT_CODE(client_->CreateTree("t", options), FailedPrecondition);
    EXPECT_CODE(cluster_.NewClient()->CreateTree("t", options), FailedPrecondition);
  }
  auto again = client_->CreateTree("t", {.key_bytes_max = 20, .value_bytes_max = 10});
  ASSERT_OK(again);
  auto session = client_->NewSession();
  ASSERT_OK(session);
  EXPECT_EQ((*session)->Get(**again, NumberedKey(7)).value_or("lost"), "7");
}

TEST_F(LifecycleTest, BadOptionsAndNames) {
  for (const TreeOptions& options :
       {TreeOptions{.key_bytes_max = 0}, TreeOptions{.key_bytes_max = 256},
        TreeOptions{.value_bytes_max = 65'537},
        TreeOptions{.value_bytes_max = 1'000, .inline_value_bytes_max = 255},
        TreeOptions{.node_bytes = 100}, TreeOptions{.node_bytes = 1 << 20},
        TreeOptions{.node_bytes = 1025}}) {
    EXPECT_CODE(client_->CreateTree("t", options), InvalidArgument);
  }
  EXPECT_CODE(client_->CreateTree("", {}), InvalidArgument);
  EXPECT_CODE(client_->CreateTree(std::string(1'000, 'n'), {}), InvalidArgument);
  EXPECT_FALSE(client_->OpenTree("").ok());
  EXPECT_TRUE(client_->ListTrees()->empty());

  ClientOptions options = cluster_.ClientDefaults();
  options.fabric = "carrier pigeon";
  EXPECT_CODE(Client::Connect(options), InvalidArgument);
  options = cluster_.ClientDefaults();
  options.coroutines_per_session = 0;
  EXPECT_CODE(Client::Connect(options), InvalidArgument);
  options = cluster_.ClientDefaults();
  options.registry = "";
  EXPECT_CODE(Client::Connect(options), InvalidArgument);
  options = cluster_.ClientDefaults();
  options.memory_servers_min = 3;
  options.connect_timeout_ms = 50;
  EXPECT_CODE(Client::Connect(options), Unavailable);
  options = cluster_.ClientDefaults();
  options.registry += "/empty";
  options.connect_timeout_ms = 50;
  EXPECT_CODE(Client::Connect(options), Unavailable);
}

TEST_F(LifecycleTest, TimeoutsMayBeLongerThanTheClockCounts) {
  ClientOptions options = cluster_.ClientDefaults();
  options.connect_timeout_ms = options.operation_timeout_ms = INT64_MAX;
  const auto client = Client::Connect(options);
  ASSERT_OK(client);
  const auto tree = (*client)->CreateTree("patient", {});
  ASSERT_OK(tree);
  const auto session = (*client)->NewSession();
  ASSERT_OK(session);
  ASSERT_OK((*session)->Put(**tree, "k", "v"));
  EXPECT_EQ((*session)->Get(**tree, "k", {.timeout_ms = INT64_MAX}).value_or("none"), "v");
  const auto checked = (*session)->Check(**tree, {.recheck_ms = INT64_MAX});
  ASSERT_OK(checked);
  EXPECT_TRUE(checked->ok());
  const auto owned = (*client)->CreateTree("owned", {.mode = TreeOptions::Mode::kOwned});
  ASSERT_OK(owned);
  ASSERT_OK((*session)->Put(**owned, "k", "v"));
  std::vector<LossInfo> losses;
  ASSERT_OK(AcceptLoss(**client, {.timeout_ms = INT64_MAX}, &losses));
  ASSERT_OK((*client)->Leave(INT64_MAX));
}

// Neither the calls of others before it nor the parts that it has make a call longer.
TEST_F(LifecycleTest, CallsThatAServerDoesNotAnswerEndAtTheirDeadlines) {
  ClientOptions options = cluster_.ClientDefaults();
  options.connect_timeout_ms = 2'000;
  const auto client = cluster_.NewClient(options);
  const Bystander bystander;
  {
    const auto silence = cluster_.Silence(1);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        const auto start = std::chrono::steady_clock::now();
        EXPECT_CODE(t == 0 ? client->DropTree("t") : client->ListTrees().status(),
                    DeadlineExceeded);
        EXPECT_LT(std::chrono::steady_clock::now() - start,
                  bystander.Bound(std::chrono::milliseconds(3'000)))
            << t;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_OK(client->ListTrees());
}

// Closing a tree waits for a server that is silent, and others meanwhile for that.
class ClosedInSilenceTest : public LifecycleTest {
 protected:
  static constexpr std::chrono::milliseconds kTimeout{2'000}, kLater{500};

  void SetUp() override {
    ClientOptions options = cluster_.ClientDefaults();
    options.connect_timeout_ms = kTimeout.count();
    client_ = cluster_.NewClient(options);
    for (const char* const name : {"first", "second", "third"}) {
      auto tree = client_->CreateTree(name, {});
      ASSERT_OK(tree);
      trees_.push_back(*std::move(tree));
    }
    silence_ = cluster_.Silence(2);
  }
  void TearDown() override {
    silence_.unlock();
    for (std::thread& thread : threads_) thread.join();
    trees_.clear();
  }
  // In a thread of their own, one after the other.
  void Close(size_t begin, size_t end) {
    threads_.emplace_back([this, begin, end] {
      for (size_t i = begin; i < end; ++i) trees_[i].reset();
    });
  }
  // Of the third tree, which has nothing on the silent server.
  absl::Status TreeStatus() { return client_->TreeStatus(*trees_[2]); }

  std::vector<std::unique_ptr<Tree>> trees_;
  std::unique_lock<std::mutex> silence_;
  std::vector<std::thread> threads_;
};

TEST_F(ClosedInSilenceTest, OthersGetTheirTurnsBetweenTwoTrees) {
  Close(0, 2);
  std::this_thread::sleep_for(kLater);
  std::thread asks([this] { EXPECT_OK(TreeStatus()); });
  std::this_thread::sleep_for(kLater / 5);
  const std::vector<ServerStatus> servers = client_->Servers();
  asks.join();
  ASSERT_EQ(servers.size(), 2u);
  EXPECT_TRUE(servers[0].available);
  EXPECT_GT(servers[0].region_bytes, 0u);
  EXPECT_FALSE(servers[1].available);
}

// What nobody was asked about is not said of a server.
TEST_F(ClosedInSilenceTest, WhoGetsNoTurnSaysSo) {
  Close(0, 1);
  Close(1, 2);
  std::this_thread::sleep_for(kLater);
  std::thread asks([this] { EXPECT_CODE(TreeStatus(), DeadlineExceeded); });
  const std::vector<ServerStatus> servers = client_->Servers();
  asks.join();
  ASSERT_EQ(servers.size(), 2u);
  for (size_t i = 0; i < servers.size(); ++i) {
    EXPECT_EQ(servers[i].id, i + 1);
    EXPECT_FALSE(servers[i].available);
  }
}

// Whichever thread is the first that the system does not have (`ulimit -u`).
TEST_F(LifecycleTest, ThreadsThatTheSystemDoesNotHaveAreAStatus) {
  bool worked = false;
  int refused = 0;
  for (int threads = 0; threads < 30 && !worked; ++threads) {
    SCOPED_TRACE(threads);
    LimitQuietThreads(threads);
    worked = [&] {
      // Over verbs a queue pair that has no thread to connect it is tried again, to the deadline.
      const auto told = [&](const absl::Status& status) {
        const bool names_it = absl::StrContains(status.message(), "no thread for");
        EXPECT_TRUE(names_it || absl::IsDeadlineExceeded(status)) << status;
        ++refused;
        return false;
      };
      const auto client = Client::Connect(cluster_.ClientDefaults());
      if (!client.ok()) return told(client.status());
      const auto tree = (*client)->CreateTree("owned", {.mode = TreeOptions::Mode::kOwned});
      if (!tree.ok()) return told(tree.status());
      const auto executor = Executor::Create(client->get(), {});
      if (!executor.ok()) return told(executor.status());
      const OperationResult put = (*executor)->Execute(
          **tree, {.kind = Operation::Kind::kPut, .key = "k", .value = std::to_string(threads)});
      return put.status.ok() || told(put.status);
    }();
    LimitQuietThreads(-1);
    // What was refused leaves nothing behind that others would wait for.
    const auto other = cluster_.NewClient();
    const auto tree = other->CreateTree("owned", {.mode = TreeOptions::Mode::kOwned});
    ASSERT_OK(tree);
    const auto session = other->NewSession();
    ASSERT_OK(session);
    ASSERT_OK((*session)->Put(**tree, "other", "v"));
  }
  EXPECT_TRUE(worked);
  EXPECT_GE(refused, 5) << "of the watcher, the heartbeat, and the threads of an owner";
}

TEST_F(LifecycleTest, OpenHandlesOutliveTheDrop) {
  auto tree = client_->CreateTree("t", {});
  ASSERT_OK(tree);
  ASSERT_NO_FATAL_FAILURE(Fill(*client_, **tree, 1'000));
  auto other = cluster_.NewClient();
  auto other_tree = other->OpenTree("t");
  ASSERT_OK(other_tree);
  ASSERT_OK(other->DropTree("t"));
  EXPECT_CODE(client_->OpenTree("t"), NotFound);
  EXPECT_TRUE(client_->ListTrees()->empty());
  // The name is free at once, also for another shape.
  auto successor = client_->CreateTree("t", {.key_bytes_max = 30});
  ASSERT_OK(successor);

  auto session = client_->NewSession();
  auto other_session = other->NewSession();
  ASSERT_OK(session);
  ASSERT_OK(other_session);
  EXPECT_CODE((*session)->Get(**successor, NumberedKey(7)), NotFound);
  ASSERT_OK((*session)->Put(**successor, NumberedKey(7), "young"));
  for (uint64_t n = 0; n < 1'000; ++n) {
    ASSERT_EQ((*other_session)->Get(**other_tree, NumberedKey(n)).value_or("lost"),
              std::to_string(n));
  }
  ASSERT_OK((*session)->Update(**tree, NumberedKey(7), "old"));
  EXPECT_EQ((*other_session)->Get(**other_tree, NumberedKey(7)).value_or("lost"), "old");
  EXPECT_EQ((*session)->Get(**successor, NumberedKey(7)).value_or("lost"), "young");
}

TEST_F(LifecycleTest, ADroppedTreesMemoryComesBackWithTheLastHandle) {
  auto other = cluster_.NewClient();
  const uint64_t before_bytes = UsedBytes(*client_);
  auto tree = client_->CreateTree("t", {});
  ASSERT_OK(tree);
  ASSERT_NO_FATAL_FAILURE(Fill(*client_, **tree, 20'000));
  auto other_tree = other->OpenTree("t");
  ASSERT_OK(other_tree);
  const uint64_t full_bytes = UsedBytes(*client_);
  EXPECT_GT(full_bytes, before_bytes + 500'000);
  ASSERT_OK(client_->DropTree("t"));
  tree->reset();
  // Longer than freed memory rests: the other handle holds it.
  std::this_thread::sleep_for(std::chrono::milliseconds(1'500));
  EXPECT_GT(UsedBytes(*client_), before_bytes + 500'000);
  {
    auto session = other->NewSession();
    ASSERT_OK(session);
    EXPECT_EQ((*session)->Get(**other_tree, NumberedKey(19'999)).value_or("lost"), "19999");
  }
  other_tree->reset();
  EXPECT_TRUE(Eventually([&] { return UsedBytes(*client_) <= before_bytes; }))
      << UsedBytes(*client_) << " of " << full_bytes << ", before: " << before_bytes;
}

TEST_F(LifecycleTest, ALeavingClientGivesItsHandlesBack) {
  const uint64_t before_bytes = UsedBytes(*client_);
  {
    auto other = cluster_.NewClient();
    auto tree = other->CreateTree("t", {});
    ASSERT_OK(tree);
    ASSERT_NO_FATAL_FAILURE(Fill(*other, **tree, 5'000));
    ASSERT_OK(client_->DropTree("t"));
  }
  EXPECT_TRUE(Eventually([&] { return UsedBytes(*client_) <= before_bytes; }));
}

TEST_F(LifecycleTest, TreesAreCreatedAndDroppedOverAndOver) {
  auto session = client_->NewSession();
  ASSERT_OK(session);
  for (int i = 0; i < 600; ++i) {  // more than there are root records
    auto tree = cluster_.CreateTreeWhenFree(*client_, "t");
    ASSERT_OK(tree);
    EXPECT_CODE((*session)->Get(**tree, "k"), NotFound) << i;
    ASSERT_OK((*session)->Put(**tree, "k", std::to_string(i)));
    ASSERT_EQ((*session)->Get(**tree, "k").value_or("lost"), std::to_string(i));
    ASSERT_OK(client_->DropTree("t"));
  }
}

TEST_F(LifecycleTest, HandlesOfOneTreeAreOpenedAndClosedByManyThreads) {
  auto tree = client_->CreateTree("t", {});
  ASSERT_OK(tree);
  ASSERT_NO_FATAL_FAILURE(Fill(*client_, **tree, 200));
  tree->reset();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto session = client_->NewSession();
      ASSERT_OK(session);
      for (int i = 0; i < 50; ++i) {
        auto mine = client_->OpenTree("t");
        ASSERT_OK(mine);
        ASSERT_EQ((*session)->Get(**mine, NumberedKey(7)).value_or("lost"), "7");
        ASSERT_OK((*session)->Put(**mine, NumberedKey(1'000 + static_cast<uint64_t>(i)), "x"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LifecycleTest, ClientsLeaveAndComeBack) {
  uint16_t last_id = client_->compute_server_id();
  for (int i = 0; i < 5; ++i) {
    auto client = cluster_.NewClient();
    EXPECT_NE(client->compute_server_id(), last_id);
    last_id = client->compute_server_id();
    auto tree = client->CreateTree("t", {});
    auto session = client->NewSession();
    ASSERT_OK(tree);
    ASSERT_OK(session);
    if (i > 0) {
      EXPECT_EQ((*session)->Get(**tree, "k").value_or("lost"), std::to_string(i - 1));
    }
    ASSERT_OK((*session)->Put(**tree, "k", std::to_string(i)));
  }
}

// All hear of it before the client has given the silent one up.
TEST_F(LifecycleTest, AServerThatDoesNotAnswerDoesNotKeepOthersFromHearingThatAClientLeaves) {
  ClientOptions options = cluster_.ClientDefaults();
  options.connect_timeout_ms = 15'000;
  auto leaves = cluster_.NewClient(options);
  options.connect_timeout_ms = 1'000;
  const auto observer = cluster_.NewClient(options);
  auto silence = cluster_.Silence(1);
  std::atomic<bool> is_closed = false;
  std::thread closes([&] {
    leaves.reset();
    is_closed = true;
  });
  bool is_heard = false;
  while (!is_heard && !is_closed) {
    const auto server_2 = observer->Servers().back();
    for (const auto& [name, count] : server_2.counters) {
      is_heard = is_heard || (name == "leaves" && count == 1 && !is_closed);
    }
  }
  EXPECT_TRUE(is_heard);
  silence.unlock();
  closes.join();
}

TEST_F(LifecycleTest, MemoryServersStopAndStart) {
  for (int round = 0; round < 3; ++round) {
    auto tree = client_->CreateTree("t", {});
    auto session = client_->NewSession();
    ASSERT_OK(tree);
    ASSERT_OK(session);
    EXPECT_CODE((*session)->Get(**tree, NumberedKey(1)), NotFound)
        << "what a server held went with it";
    ASSERT_OK((*session)->Put(**tree, NumberedKey(1), "v"));

    cluster_.StopAll();
    const auto stopped = std::chrono::steady_clock::now();
    // The memory is there until the client has noticed: its watcher is a thread of its own.
    while ((*session)->Get(**tree, NumberedKey(1)).ok() &&
           std::chrono::steady_clock::now() - stopped < std::chrono::seconds(5)) {
    }
    EXPECT_CODE((*session)->Get(**tree, NumberedKey(1)), Unavailable);
    EXPECT_FALSE((*session)->Put(**tree, NumberedKey(1), "w").ok());
    EXPECT_LT(std::chrono::steady_clock::now() - stopped, std::chrono::seconds(5));
    for (const ServerStatus& server : client_->Servers()) EXPECT_FALSE(server.available);
    session->reset();
    tree->reset();
    client_.reset();
    cluster_.StartAll();
    client_ = cluster_.NewClient();
  }
}

}  // namespace
}  // namespace pando
