// Owned trees through the public API, on a fabric with threads: at the owner and elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/clock.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"
#include "compute/owner/member.h"

namespace pando {
namespace {

class OwnedTest : public testing::Test {
 protected:
  struct Process {
    std::unique_ptr<Client> client;
    std::unique_ptr<Tree> tree;
  };

  ClientOptions Options() const {
    ClientOptions options = cluster_.ClientDefaults();
    options.hot_bytes = IntegrationCluster::is_slow() ? 128 << 10 : 1 << 20;  // less than is put
    options.log_bytes = 1 << 20;
    return options;
  }
  Process NewProcess(bool joins = false, int flush_threads = 1) {
    ClientOptions options = Options();
    options.owner = joins;
    options.flush_threads = flush_threads;
    return NewProcess(options);
  }
  Process NewProcess(const ClientOptions& options) {
    Process process;
    process.client = cluster_.NewClient(options);
    auto tree = process.client->CreateTree(
        "t", {.key_bytes_max = 16, .value_bytes_max = 16, .mode = TreeOptions::Mode::kOwned});
    EXPECT_TRUE(tree.ok()) << tree.status();
    process.tree = *std::move(tree);
    return process;
  }
  static std::unique_ptr<Session> NewSession(const Process& process) {
    auto session = process.client->NewSession();
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  static std::string Key(uint64_t n) { return "key" + std::to_string(1'000'000 + n); }

  IntegrationCluster cluster_;
};

TEST_F(OwnedTest, OthersSeeWhatTheOwnerHas) {
  Process owner = NewProcess(), other = NewProcess();
  {
    const auto session = NewSession(owner), asker = NewSession(other);
    std::vector<KeyValue> entries;
    for (uint64_t n = 0; n < 2'000; ++n) entries.push_back({Key(n), std::to_string(n)});
    for (const absl::Status& put : session->MultiPut(*owner.tree, entries)) ASSERT_OK(put);
    EXPECT_EQ(owner.client->Stats().owned.ranges, 1u);
    EXPECT_EQ(other.client->OwnerOf(*other.tree, Key(5))->compute_server,
              owner.client->compute_server_id());

    std::vector<std::string> keys;
    for (uint64_t n = 0; n < 2'000; n += 2) keys.push_back(Key(n));
    const auto got = asker->MultiGet(*other.tree, keys);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_OK(got[i]);
      ASSERT_EQ(*got[i], std::to_string(2 * i));
    }
    for (const absl::Status& erased : asker->MultiErase(*other.tree, keys)) ASSERT_OK(erased);
    EXPECT_CODE(session->Get(*owner.tree, Key(10)), NotFound);
    EXPECT_CODE(asker->Insert(*other.tree, Key(11), "x"), AlreadyExists);
    std::string actual;
    EXPECT_TRUE(
        IsConditionFailed(asker->Replace(*other.tree, Key(11), "wrong", "new", {}, &actual)));
    EXPECT_EQ(actual, "11");
    EXPECT_EQ(other.client->Stats().owned.ranges, 0u);

    // All of it, in both directions, at both.
    for (Session* const reader : {session.get(), asker.get()}) {
      const Tree& tree = reader == session.get() ? *owner.tree : *other.tree;
      std::vector<KeyValue> rows;
      ASSERT_OK(reader->Scan(tree, {}, &rows));
      ASSERT_EQ(rows.size(), 1'000u);
      const auto cursor = reader->NewCursor(tree, {.reverse = true});
      for (size_t i = rows.size(); i > 0; --i) {
        ASSERT_TRUE(cursor->Next()) << cursor->status();
        ASSERT_EQ(cursor->key(), rows[i - 1].key);
      }
      EXPECT_FALSE(cursor->Next());
      ASSERT_OK(cursor->status());
    }
    ASSERT_OK(session->Flush(*owner.tree));
    const auto report = asker->Check(*other.tree);
    ASSERT_OK(report);
    EXPECT_TRUE(report->ok());
    EXPECT_EQ(report->keys, 1'000u);
  }
  const auto here = owner.client->OwnerOf(*owner.tree, Key(5));
  const auto there = other.client->OwnerOf(*other.tree, Key(5));
  ASSERT_OK(here);
  ASSERT_OK(there);
  EXPECT_EQ(there->incarnation, here->incarnation);
  EXPECT_EQ(there->address, here->address);
  EXPECT_FALSE(here->address.empty());
  const auto ranges = other.client->ListRanges(*other.tree);
  ASSERT_OK(ranges);
  ASSERT_EQ(ranges->size(), 1u);
  EXPECT_EQ((*ranges)[0].low + (*ranges)[0].high, "") << "all keys";
  EXPECT_EQ((*ranges)[0].owner.incarnation, here->incarnation);
  const auto members = other.client->ListMembers();
  ASSERT_OK(members);
  ASSERT_EQ(members->size(), 1u) << "who asks is none";
  EXPECT_EQ((*members)[0].identity.address, here->address);
  EXPECT_EQ((*members)[0].ranges, 1u);
  EXPECT_FALSE((*members)[0].ended);
  EXPECT_GE((*members)[0].log_bytes, 1u << 20);
  // The owner leaves; the other one goes on with what it had.
  owner.tree.reset();
  owner.client.reset();
  EXPECT_TRUE((*other.client->ListRanges(*other.tree))[0].owner.nobody());
  EXPECT_THAT(*other.client->ListMembers(), testing::IsEmpty());
  const auto session = NewSession(other);
  EXPECT_EQ(*session->Get(*other.tree, Key(11)), "11");
  ASSERT_OK(session->Put(*other.tree, Key(11), "new"));
  EXPECT_EQ(other.client->Stats().owned.ranges, 1u);
}

// Writes and reads keys of its own all the time, in a thread, and knows what they have.
class Worker {
 public:
  Worker(std::unique_ptr<Session> session, const Tree* tree, std::string prefix)
      : session_(std::move(session)), tree_(*tree), prefix_(std::move(prefix)), thread_([this] {
          for (uint64_t n = 1; !stops_.load() && !testing::Test::HasFailure(); ++n) Turn(n);
        }) {}
  ~Worker() { Stop(); }

  void Stop() {
    stops_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  // So many more operations have been done. False: they are not, in a minute.
  bool AwaitTurns(uint64_t count) const {
    const uint64_t until = turns_.load() + count;
    return Await([&] { return turns_.load() >= until; });
  }
  static bool Await(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  // Once stopped.
  void Check(Session* session, const Tree& tree) const {
    for (size_t i = 0; i < kKeys; ++i) {
      if (values_[i] == 0) continue;
      const auto got = session->Get(tree, KeyOf(i));
      ASSERT_OK(got);
      ASSERT_EQ(*got, std::to_string(values_[i]));
    }
  }

 private:
  static constexpr size_t kKeys = 500;

  std::string KeyOf(size_t i) const { return std::to_string(100'000 + i) + prefix_; }
  void Turn(uint64_t n) {
    const size_t i = n * 7919 % kKeys;
    if (values_[i] == 0 || n % 3 == 0) {
      const absl::Status put = session_->Put(tree_, KeyOf(i), std::to_string(n));
      ASSERT_TRUE(put.ok()) << put;
      values_[i] = n;
    } else {
      const auto got = session_->Get(tree_, KeyOf(i));
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ(*got, std::to_string(values_[i]));
    }
    turns_.fetch_add(1);
  }

  const std::unique_ptr<Session> session_;
  const Tree& tree_;
  const std::string prefix_;
  std::array<uint64_t, kKeys> values_{};
  std::atomic<uint64_t> turns_{0};
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

TEST_F(OwnedTest, WhoJoinsGetsRangesAndWhoLeavesGivesThem) {
  Process first = NewProcess(/*joins=*/true);
  Worker at_first(NewSession(first), first.tree.get(), "a");
  ASSERT_TRUE(at_first.AwaitTurns(1'000));
  EXPECT_EQ(first.client->Stats().owned.ranges, 1u);
  Process second = NewProcess(/*joins=*/true);
  Worker at_second(NewSession(second), second.tree.get(), "b");
  ASSERT_TRUE(Worker::Await([&] { return second.client->Stats().owned.ranges > 0; }));
  // A client that finds a range that is nobody's takes it, before the giver has counted.
  ASSERT_TRUE(Worker::Await([&] { return first.client->Stats().owned.given > 0; }));
  ASSERT_TRUE(at_first.AwaitTurns(1'000) && at_second.AwaitTurns(1'000));
  bool is_known = false;
  const auto ranges = second.client->ListRanges(*second.tree);
  ASSERT_OK(ranges);
  for (const RangeInfo& range : *ranges) {
    is_known = is_known || range.operations_per_s > 0;
  }
  EXPECT_TRUE(is_known);

  ASSERT_OK(first.client->Leave(60'000));
  EXPECT_EQ(first.client->Stats().owned.ranges, 0u);
  EXPECT_EQ(second.client->ListMembers()->size(), 1u);
  // It works on, at the other one.
  ASSERT_TRUE(at_first.AwaitTurns(1'000) && at_second.AwaitTurns(1'000));
  ASSERT_OK(first.client->Leave(1'000)) << "it has";
  at_first.Stop();
  at_second.Stop();
  EXPECT_EQ(first.client->Stats().owned.ranges, 0u);
  const auto session = NewSession(second);
  at_first.Check(session.get(), *second.tree);
  at_second.Check(session.get(), *second.tree);
}

// It is over while another one waits for the log, and gives nothing back that this one relies on.
TEST_F(OwnedTest, OfTwoCallsThatLeaveNoneDisturbsTheOther) {
  Process process = NewProcess(/*joins=*/true);
  const auto session = NewSession(process), holder = NewSession(process);
  ASSERT_OK(session->Put(*process.tree, Key(1), "value"));
  std::atomic<bool> holds = false, lets_go = false;
  std::thread holding([&] {
    holder->Spawn([&] {
      OperationContext context(&ImplOf(*holder).context(), RealClock().NowNs() + 60 * kSecondNs);
      const auto room = ImplOf(*process.client).member()->ReserveForWrite(context, 8, 8);
      EXPECT_TRUE(room.ok()) << room.status();
      holds = true;
      while (!lets_go) holder->SleepUntil(RealClock().NowNs() + kMillisecondNs);
    });
    holder->Run();
  });
  ASSERT_TRUE(Worker::Await([&] { return holds.load(); }));
  absl::Status left = absl::UnknownError("leaving");
  std::thread leaving([&] { left = process.client->Leave(30'000); });
  ASSERT_TRUE(Worker::Await([&] { return process.client->Stats().owned.ranges == 0; }));
  EXPECT_CODE(process.client->Leave(100), DeadlineExceeded);
  EXPECT_FALSE(session->Put(*process.tree, Key(2), "value", {.timeout_ms = 300}).ok());
  EXPECT_EQ(process.client->Stats().owned.ranges, 0u) << "it is leaving still";
  lets_go = true;
  holding.join();
  leaving.join();
  EXPECT_OK(left);
  // Its log is free: nothing may be claimed any more.
  EXPECT_FALSE(session->Put(*process.tree, Key(3), "value", {.timeout_ms = 300}).ok());
  EXPECT_EQ(process.client->Stats().owned.ranges, 0u);
}

TEST_F(OwnedTest, EveryUpsertOfManySessionsCountsOnce) {
  const uint64_t upserts = IntegrationCluster::is_slow() ? 100 : 1'000;
  Process owner = NewProcess(), other = NewProcess();
  std::vector<std::thread> threads;
  std::atomic<uint64_t> done{0};
  for (Process* const process : {&owner, &owner, &other, &other}) {
    threads.emplace_back([&, process] {
      const auto session = NewSession(*process);
      for (int coroutine = 0; coroutine < 4; ++coroutine) {
        session->Spawn([&, process] {
          for (uint64_t n = 0; n < upserts; ++n) {
            const auto sum =
                session->Upsert(*process->tree, "sum", UpsertFunction::kAdd, Int64Value(1));
            ASSERT_TRUE(sum.ok()) << sum.status();
            done.fetch_add(1);
          }
        });
      }
      session->Run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done.load(), 16 * upserts);
  const auto session = NewSession(other);
  EXPECT_EQ(ParseInt64Value(*session->Get(*other.tree, "sum")), static_cast<int64_t>(16 * upserts));
}

TEST_F(OwnedTest, WritersReadersAndFlushesSideBySide) {
  Process owner = NewProcess(/*joins=*/false, /*flush_threads=*/3);
  Process other = NewProcess(/*joins=*/false, /*flush_threads=*/2);
  const uint64_t keys = IntegrationCluster::is_slow() ? 2'000 : 20'000;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Process& process = i % 2 == 0 ? owner : other;
      const auto session = NewSession(process);
      for (int coroutine = 0; coroutine < 8; ++coroutine) {
        session->Spawn([&, i, coroutine] {
          for (uint64_t n = i * 8 + static_cast<uint64_t>(coroutine); n < keys; n += 32) {
            const std::string key = Key(n * 7919 % keys);
            ASSERT_OK(session->Put(*process.tree, key, "first"));
            ASSERT_OK(session->Put(*process.tree, key, std::to_string(n)));
            const auto got = session->Get(*process.tree, key);
            ASSERT_OK(got);
            ASSERT_EQ(*got, std::to_string(n));
            if (n % 3 == 0) {
              ASSERT_OK(session->Erase(*process.tree, key));
            }
          }
        });
      }
      session->Run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto session = NewSession(owner);
  std::vector<KeyValue> rows;
  ASSERT_OK(session->Scan(*owner.tree, {}, &rows));
  EXPECT_EQ(rows.size(), keys - (keys + 2) / 3);
  EXPECT_GT(owner.client->Stats().owned.flushed + other.client->Stats().owned.flushed, 0u);
}

// Rule O15, by the machine's clocks: whatever was acknowledged before a read began is read.
TEST_F(OwnedTest, LeavesOnLoanAreNeverStale) {
  constexpr uint64_t kWritesMin = 50, kLentMin = 200;
  ClientOptions options = Options();
  options.lend_after_ms = 0;
  Process owner = NewProcess(options), other = NewProcess();
  {
    const auto writer = NewSession(owner), reader = NewSession(other);
    ASSERT_OK(writer->Put(*owner.tree, Key(1), "0"));
    std::atomic<uint64_t> acknowledged{0};
    const std::jthread thread([&](const std::stop_token& stop) {
      for (uint64_t at_least = 0; !stop.stop_requested(); at_least = acknowledged.load()) {
        const auto got = reader->Get(*other.tree, Key(1));
        ASSERT_OK(got);
        ASSERT_GE(std::stoull(*got), at_least);
      }
    });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto lent = [&] { return other.client->Stats().owned.lent; };
    for (uint64_t n = 1; n <= kWritesMin || lent() < kLentMin; ++n) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << lent() << " reads on loan";
      EXPECT_OK(writer->Put(*owner.tree, Key(1), std::to_string(n)));
      acknowledged.store(n);
      if (n % 2 == 0) continue;
      EXPECT_OK(writer->Flush(*owner.tree));
      std::this_thread::sleep_for(std::chrono::milliseconds(n % 8));
    }
  }
}

TEST_F(OwnedTest, WhatCannotBeIsRefused) {
  EXPECT_CODE(Client::Connect([this] {
                auto options = Options();
                options.hot_bytes = 0;
                return options;
              }()),
              InvalidArgument);
  EXPECT_CODE(Client::Connect([this] {
                auto options = Options();
                options.flush_threads = 17;
                return options;
              }()),
              InvalidArgument);
  EXPECT_CODE(Client::Connect([this] {
                auto options = Options();
                options.ranges_min = 65;
                return options;
              }()),
              InvalidArgument);
  EXPECT_CODE(Client::Connect([this] {
                auto options = Options();
                options.dirty_percent = 91;
                return options;
              }()),
              InvalidArgument);
  EXPECT_CODE(Client::Connect([this] {
                auto options = Options();
                options.lend_after_ms = -2;
                return options;
              }()),
              InvalidArgument);
  Process owner = NewProcess();
  EXPECT_CODE(owner.client->CreateTree("t", {.key_bytes_max = 16, .value_bytes_max = 16}),
              FailedPrecondition);  // it is owned
  EXPECT_CODE(
      owner.client->CreateTree("long", {.key_bytes_max = 255, .mode = TreeOptions::Mode::kOwned}),
      InvalidArgument);
  EXPECT_CODE(owner.client->CreateTree(".mine", {}), InvalidArgument);
  EXPECT_CODE(owner.client->OpenTree(".cluster"), InvalidArgument);
  // A log that no memory server has room for.
  auto options = Options();
  options.log_bytes = uint64_t{1} << 30;
  options.operation_timeout_ms = 2'000;
  const auto client = cluster_.NewClient(options);
  auto tree = client->CreateTree("large", {.mode = TreeOptions::Mode::kOwned});
  ASSERT_OK(tree);
  {
    auto session = client->NewSession();
    ASSERT_OK(session);
    EXPECT_CODE((*session)->Put(**tree, "key", "value"), ResourceExhausted);
  }
  tree->reset();
}

}  // namespace
}  // namespace pando
