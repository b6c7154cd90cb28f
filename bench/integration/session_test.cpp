// Sessions through the public API: many operations at once, scans, statuses of bad arguments.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/random.h"
#include "common/sched/stack_room.h"
#include "pando/executor.h"
#include "pando/log.h"

namespace pando {
namespace {

class SessionTest : public testing::Test {
 protected:
  void SetUp() override {
    client_ = cluster_.NewClient();
    auto tree = client_->CreateTree("t", {.key_bytes_max = 16, .value_bytes_max = 16});
    ASSERT_OK(tree);
    tree_ = *std::move(tree);
    session_ = NewSession();
  }
  std::unique_ptr<Session> NewSession() {
    auto session = client_->NewSession();
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  static std::string Key(uint64_t n) { return "key" + std::to_string(1'000'000 + n); }

  IntegrationCluster cluster_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, ManyAtOnceKeepTheirOrder) {
  std::vector<KeyValue> entries;
  std::vector<std::string> keys;
  for (uint64_t n = 0; n < 5'000; ++n) {
    entries.push_back({Key(n * 7919 % 5'000), std::to_string(n)});
    keys.push_back(entries.back().key);
  }
  entries.push_back({"", "bad"});
  keys.push_back("");
  keys.push_back("not there");
  const std::vector<absl::Status> put = session_->MultiPut(*tree_, entries);
  ASSERT_EQ(put.size(), 5'001u);
  for (size_t i = 0; i < 5'000; ++i) ASSERT_OK(put[i]);
  EXPECT_CODE(put.back(), InvalidArgument);
  const auto got = session_->MultiGet(*tree_, keys);
  ASSERT_EQ(got.size(), 5'002u);
  for (size_t i = 0; i < 5'000; ++i) {
    ASSERT_OK(got[i]);
    ASSERT_EQ(*got[i], entries[i].value);
  }
  EXPECT_CODE(got[5'000], InvalidArgument);
  EXPECT_CODE(got[5'001], NotFound);
  EXPECT_TRUE(session_->MultiGet(*tree_, {}).empty());
  EXPECT_TRUE(session_->MultiPut(*tree_, {}).empty());
}

TEST_F(SessionTest, ManyAtOnceInsideATask) {
  std::vector<KeyValue> entries;
  std::vector<std::string> keys;
  for (uint64_t n = 0; n < 300; ++n) {
    entries.push_back({Key(n), std::to_string(n)});
    keys.push_back(Key(n));
  }
  // More tasks than coroutines, each of which wants helpers.
  int finished = 0;
  for (int t = 0; t < 100; ++t) {
    session_->Spawn([&] {
      for (const absl::Status& status : session_->MultiPut(*tree_, entries)) ASSERT_OK(status);
      const auto got = session_->MultiGet(*tree_, keys);
      for (size_t i = 0; i < keys.size(); ++i) {
        ASSERT_OK(got[i]);
        ASSERT_EQ(*got[i], entries[i].value);
      }
      ++finished;
    });
  }
  session_->Run();
  EXPECT_EQ(finished, 100);
}

TEST_F(SessionTest, Scans) {
  std::vector<KeyValue> rows = {{"left", "over"}};
  ASSERT_OK(session_->Scan(*tree_, "", 10, &rows));
  EXPECT_TRUE(rows.empty()) << "an empty tree";
  for (uint64_t n = 0; n < 2'000; ++n)
    ASSERT_OK(session_->Put(*tree_, Key(n * 2), std::to_string(n)));
  ASSERT_OK(session_->Scan(*tree_, Key(500), 0, &rows));
  EXPECT_TRUE(rows.empty());
  ASSERT_OK(session_->Scan(*tree_, Key(500), 3, &rows));
  EXPECT_EQ(rows, (std::vector<KeyValue>{{Key(500), "250"}, {Key(502), "251"}, {Key(504), "252"}}));
  ASSERT_OK(session_->Scan(*tree_, Key(501), 1, &rows));
  EXPECT_EQ(rows, (std::vector<KeyValue>{{Key(502), "251"}}));
  ASSERT_OK(session_->Scan(*tree_, Key(3'997), 100, &rows));
  EXPECT_EQ(rows, (std::vector<KeyValue>{{Key(3'998), "1999"}}));
  ASSERT_OK(session_->Scan(*tree_, Key(3'999), 100, &rows));
  EXPECT_TRUE(rows.empty());
  ASSERT_OK(session_->Scan(*tree_, "", SIZE_MAX, &rows));
  EXPECT_EQ(rows.size(), 2'000u);
}

// Keys that are always there are in every scan, sorted, once, whatever is inserted and erased
// around them.
TEST_F(SessionTest, ScansWhileOthersWrite) {
  constexpr uint64_t kStable = 400;
  for (uint64_t n = 0; n < kStable; ++n) ASSERT_OK(session_->Put(*tree_, Key(n * 100), "stable"));
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (uint64_t w = 0; w < 2; ++w) {
    writers.emplace_back([&, w] {
      const std::unique_ptr<Session> session = NewSession();
      Random random(w);
      while (!stop) {
        const uint64_t n = random.Uniform(kStable * 100);
        if (n % 100 == 0) continue;
        if (random.Uniform(3) == 0) {
          (void)session->Erase(*tree_, Key(n));
        } else {
          ASSERT_OK(session->Put(*tree_, Key(n), "moving"));
        }
      }
    });
  }
  std::vector<KeyValue> rows;
  for (int i = 0; i < 60; ++i) {
    const uint64_t from = static_cast<uint64_t>(i % 4) * 100;
    ASSERT_OK(session_->Scan(*tree_, Key(from * 100), SIZE_MAX, &rows));
    uint64_t next = from;
    for (size_t r = 0; r < rows.size(); ++r) {
      if (r > 0) {
        ASSERT_LT(rows[r - 1].key, rows[r].key);
      }
      if (rows[r].value != "stable") continue;
      ASSERT_EQ(rows[r].key, Key(next * 100));
      ++next;
    }
    ASSERT_EQ(next, kStable);
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
}

TEST_F(SessionTest, KeysAndValuesThatDoNotFit) {
  const std::string long_key(17, 'k'), long_value(17, 'v');
  for (const std::string& key : {std::string(), long_key}) {
    EXPECT_CODE(session_->Get(*tree_, key), InvalidArgument);
    EXPECT_CODE(session_->Put(*tree_, key, "v"), InvalidArgument);
    EXPECT_CODE(session_->Insert(*tree_, key, "v"), InvalidArgument);
    EXPECT_CODE(session_->Update(*tree_, key, "v"), InvalidArgument);
    EXPECT_CODE(session_->Erase(*tree_, key), InvalidArgument);
  }
  ASSERT_OK(session_->Put(*tree_, "k", "kept"));
  EXPECT_CODE(session_->Put(*tree_, "k", long_value), InvalidArgument);
  EXPECT_CODE(session_->Insert(*tree_, "new", long_value), InvalidArgument);
  EXPECT_CODE(session_->Update(*tree_, "k", long_value), InvalidArgument);
  EXPECT_EQ(session_->Get(*tree_, "k").value_or("lost"), "kept");
  EXPECT_CODE(session_->Get(*tree_, "new"), NotFound);
  // A scan may start anywhere, also at what no tree can hold.
  std::vector<KeyValue> rows = {{"left", "over"}};
  ASSERT_OK(session_->Scan(*tree_, "k" + long_key, 5, &rows));
  EXPECT_TRUE(rows.empty());
  rows = {{"left", "over"}};
  EXPECT_CODE(session_->Scan(*tree_, {.read_ahead = -1}, &rows), InvalidArgument);
  EXPECT_TRUE(rows.empty());
  ASSERT_OK(session_->Scan(*tree_, "", 5, &rows));
  EXPECT_EQ(rows.size(), 1u);
}

TEST_F(SessionTest, InsideAnotherSessionsTaskIsRefused) {
  const std::unique_ptr<Session> other = NewSession();
  ASSERT_OK(session_->Put(*tree_, "k", "v"));
  std::vector<absl::Status> seen;
  session_->Spawn([&] {
    seen.push_back(other->Get(*tree_, "k").status());
    seen.push_back(other->Put(*tree_, "k", "w"));
    std::vector<KeyValue> rows;
    seen.push_back(other->Scan(*tree_, "", 5, &rows));
    seen.push_back(other->BulkLoad(*tree_, [](KeyValue*) { return false; }));
    for (const auto& result : other->MultiGet(*tree_, {"k", "l"})) seen.push_back(result.status());
    for (const auto& result : other->MultiPut(*tree_, {{"k", "w"}})) seen.push_back(result);
    EXPECT_EQ(session_->Get(*tree_, "k").value_or("none"), "v") << "the task's own goes on";
  });
  session_->Run();
  EXPECT_EQ(seen.size(), 7u);
  for (const absl::Status& status : seen) EXPECT_CODE(status, FailedPrecondition);
  EXPECT_EQ(other->Get(*tree_, "k").value_or("none"), "v");
}

TEST_F(SessionTest, WhatATaskThrowsComesOutOfRun) {
  int finished = 0;
  for (const char* key : {"a", "b", "c", "d"}) {
    session_->Spawn([&, key] {
      EXPECT_OK(session_->Put(*tree_, key, key));
      if (key[0] == 'b' || key[0] == 'c') throw std::runtime_error(key);
      EXPECT_OK(session_->Put(*tree_, key, "again"));
      ++finished;
    });
  }
  std::string thrown;
  try {
    session_->Run();
  } catch (const std::runtime_error& error) {
    thrown = error.what();
  }
  EXPECT_TRUE(thrown == "b" || thrown == "c") << thrown;
  EXPECT_EQ(finished, 2) << "the others end first";
  session_->Run();  // thrown once
  for (const char* key : {"a", "d"})
    EXPECT_EQ(session_->Get(*tree_, key).value_or("none"), "again");
  for (const char* key : {"b", "c"}) EXPECT_EQ(session_->Get(*tree_, key).value_or("none"), key);
}

TEST_F(SessionTest, WhatATaskThrowsIsKeptUntilRun) {
  session_->Spawn([] { throw 7; });
  EXPECT_OK(session_->Put(*tree_, "k", "v")) << "drives the task, too";
  EXPECT_THROW(session_->Run(), int);
  std::atomic<int> lines = 0;
  SetLogSink([&lines](const LogRecord& record) {
    if (record.message.find("unheard of") != std::string_view::npos) ++lines;
  });
  session_->Spawn([] { throw std::runtime_error("unheard of"); });
  session_.reset();
  SetLogSink(nullptr);
  EXPECT_EQ(lines, 1);
}

TEST_F(SessionTest, ATreeOfAnotherClientIsRefused) {
  auto other = cluster_.NewClient();
  auto tree = other->OpenTree("t");
  ASSERT_OK(tree);
  EXPECT_CODE(session_->Put(**tree, "k", "v"), InvalidArgument);
  EXPECT_CODE(session_->Get(**tree, "k"), InvalidArgument);
}

TEST_F(SessionTest, CostsAreAddedUp) {
  ASSERT_OK(session_->Put(*tree_, "k", "v"));
  OperationCost cost;
  ASSERT_OK(session_->Get(*tree_, "k", {.cost = &cost}));
  EXPECT_EQ(cost.round_trips, 1u);
  EXPECT_EQ(cost.verbs, 1u);
  EXPECT_EQ(cost.bytes_read, tree_->node_bytes());
  EXPECT_EQ(cost.bytes_written, 0u);
  ASSERT_OK(session_->Update(*tree_, "k", "w", {.cost = &cost}));
  EXPECT_EQ(cost.round_trips, 3u);
  EXPECT_GT(cost.bytes_written, 0u);
  const ClientStats stats = client_->Stats();
  EXPECT_GE(stats.fabric.round_trips, 3u);
  EXPECT_GE(stats.fabric.cas, 2u);
}

// Nothing that blocks runs inside a task: it would block all others of its session.
TEST_F(SessionTest, ATaskIsRefusedWhatBlocks) {
  session_->Spawn([&] {
    EXPECT_CODE(client_->CreateTree("t", {}), FailedPrecondition);
    EXPECT_CODE(client_->CreateTree("o", {.mode = TreeOptions::Mode::kOwned}), FailedPrecondition);
    EXPECT_CODE(client_->OpenTree("t"), FailedPrecondition);
    EXPECT_CODE(client_->DropTree("t"), FailedPrecondition);
    EXPECT_CODE(client_->ListTrees(), FailedPrecondition);
    EXPECT_CODE(client_->TreeStatus(*tree_), FailedPrecondition);
    EXPECT_CODE(client_->NewSession(), FailedPrecondition);
    EXPECT_CODE(Executor::Create(client_.get(), {}), FailedPrecondition);
    EXPECT_TRUE(client_->Servers().empty());
  });
  session_->Run();
  EXPECT_FALSE(client_->Servers().empty());
}

// However few there is room for (vm.max_map_count).
TEST_F(SessionTest, CoroutinesThatTheProcessHasNoRoomForAreAStatus) {
  sched::StackRoom& room = sched::StackRoom::OfProcess();
  int64_t taken = 0;
  while (room.TryTake(/*is_needed=*/true)) ++taken;
  bool worked = false;
  int room_for = 0;
  for (; room_for < 30 && !worked; ++room_for) {
    SCOPED_TRACE(room_for);
    worked = [&] {
      const auto told = [](const absl::Status& status) {
        EXPECT_CODE(status, ResourceExhausted);
        return false;
      };
      const auto client = Client::Connect(cluster_.ClientDefaults());
      if (!client.ok()) return told(client.status());
      const auto tree = (*client)->OpenTree("t");
      if (!tree.ok()) return told(tree.status());
      const auto executor = Executor::Create(client->get(), {.workers = 1});
      if (!executor.ok()) return told(executor.status());
      // One that cannot execute it would not end it, either.
      EXPECT_OK((*executor)->Execute(**tree, {.kind = Operation::Kind::kPut, .key = "k"}).status);
      return true;
    }();
    room.Give(1);
    --taken;
  }
  room.Give(taken);
  EXPECT_TRUE(worked);
  EXPECT_GT(room_for, 4) << "two are the control session's, two the worker's";
}

}  // namespace
}  // namespace pando
