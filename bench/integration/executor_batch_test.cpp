// Writes that wait at the same time for an executor's worker go together, and each is answered as
// if it were alone.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/wire/lock_word.h"
#include "pando/executor.h"

namespace pando {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Kind = Operation::Kind;
using std::chrono::milliseconds;

class ExecutorBatchTest : public OneTreeTest {
 protected:
  struct Submitted {
    std::future<OperationResult> result;
    std::future<SteadyClock::time_point> ended;
  };

  void SetUp() override {
    OneTreeTest::SetUp();
    auto executor = Executor::Create(client_.get(), {.workers = 1});
    ASSERT_OK(executor);
    executor_ = *std::move(executor);
  }
  // From here to GoOn() the worker does nothing, so that all that is submitted waits together.
  void Stop() {
    go_on_ = {};
    auto stopped = std::make_shared<std::promise<void>>();
    ASSERT_OK(executor_->Submit(
        *tree_, {}, [stopped, go_on = go_on_.get_future().share()](const OperationResult&) {
          stopped->set_value();
          go_on.wait();
        }));
    stopped->get_future().wait();
  }
  void GoOn() { go_on_.set_value(); }
  Submitted Submit(Operation operation) {
    auto result = std::make_shared<std::promise<OperationResult>>();
    auto ended = std::make_shared<std::promise<SteadyClock::time_point>>();
    EXPECT_OK(executor_->Submit(*tree_, std::move(operation), [result, ended](OperationResult r) {
      ended->set_value(SteadyClock::now());
      result->set_value(std::move(r));
    }));
    return {result->get_future(), ended->get_future()};
  }
  // Writes to the tree, and closes it, after `first`, while the worker still has the batch that it
  // has answered.
  void WriteToAndClose(std::unique_ptr<Tree> tree, const std::function<void()>& first) {
    Stop();
    const auto answered = std::make_shared<std::promise<void>>();
    std::promise<void> closed;
    const std::shared_future<void> go_on = closed.get_future().share();
    for (const bool is_last : {false, true}) {
      EXPECT_OK(executor_->Submit(*tree, {.kind = Kind::kPut, .key = is_last ? "b" : "a"},
                                  [answered, is_last, go_on](const OperationResult& result) {
                                    EXPECT_OK(result.status);
                                    if (!is_last) return;
                                    answered->set_value();
                                    go_on.wait();
                                  }));
    }
    GoOn();
    answered->get_future().wait();
    first();
    tree.reset();
    closed.set_value();
  }
  void Fill(uint64_t count) {
    std::vector<KeyValue> entries;
    for (uint64_t n = 0; n < count; ++n) entries.push_back({NumberedKey(n), "before"});
    for (const absl::Status& put : session_->MultiPut(*tree_, entries)) ASSERT_OK(put);
  }
  void StoreWord(int server, uint32_t index, uint64_t value) {
    auto* const words = reinterpret_cast<uint64_t*>(cluster_.memory(server).locks.data());
    std::atomic_ref<uint64_t>(words[index]).store(value);
  }
  void StoreAllWords(uint64_t value) {
    for (int server = 1; server <= 2; ++server) {
      for (uint32_t i = kRootLockWords; i < cluster_.lock_words(); ++i) StoreWord(server, i, value);
    }
  }
  // Holds the lock of the key's leaf as somebody who does not go on.
  struct LockWordOf {
    int server = 0;
    unsigned index = 0;
  };
  void TakeLock(const std::string& key, LockWordOf* word) {
    StoreAllWords(kForeign);
    const absl::Status status = session_->Update(*tree_, key, "no", {.timeout_ms = 20});
    StoreAllWords(LockWord::kFree);
    const std::string message(status.message());
    const size_t at = message.find("lock word");
    ASSERT_NE(at, std::string::npos) << status;
    ASSERT_EQ(
        std::sscanf(message.c_str() + at, "lock word %u of server %d", &word->index, &word->server),
        2);
    StoreWord(word->server, word->index, kForeign);
  }

  static constexpr uint64_t kForeign = LockWord{777, 5}.Encode();
  std::unique_ptr<Executor> executor_;
  std::promise<void> go_on_;
};

TEST_F(ExecutorBatchTest, EveryKindIsAnsweredAsIfAlone) {
  Stop();
  std::vector<Submitted> all;
  const auto submit = [&](Operation operation) { all.push_back(Submit(std::move(operation))); };
  submit({.kind = Kind::kPut, .key = "b", .value = "1"});
  submit({.kind = Kind::kInsert, .key = "b", .value = "2"});
  submit({.kind = Kind::kUpdate, .key = "none", .value = "3"});
  submit({.kind = Kind::kUpsert, .key = "n", .value = Int64Value(40)});
  submit({.kind = Kind::kUpsert, .key = "n", .value = Int64Value(2)});
  submit({.kind = Kind::kReplace, .key = "b", .value = "4", .expected = "3"});
  submit({.kind = Kind::kReplace, .key = "b", .value = "5", .expected = "1"});
  submit({.kind = Kind::kEraseIf, .key = "b", .expected = "1"});
  submit({.kind = Kind::kErase, .key = "none"});
  submit({.kind = Kind::kPut, .key = "", .value = "6"});
  submit({.kind = Kind::kUpsert, .key = "n", .value = "no number"});
  submit({.kind = Kind::kPut, .key = "z", .value = "last"});
  GoOn();
  std::vector<OperationResult> results;
  for (Submitted& one : all) results.push_back(one.result.get());
  for (const size_t i : {0, 3, 4, 6, 11}) EXPECT_OK(results[i].status) << i;
  EXPECT_CODE(results[1].status, AlreadyExists);
  for (const size_t i : {2, 8}) EXPECT_CODE(results[i].status, NotFound) << i;
  EXPECT_EQ(results[3].value, Int64Value(40));
  EXPECT_EQ(results[4].value, Int64Value(42));
  EXPECT_TRUE(IsConditionFailed(results[5].status)) << results[5].status;
  EXPECT_EQ(results[5].value, "1");
  EXPECT_TRUE(IsConditionFailed(results[7].status)) << results[7].status;
  EXPECT_EQ(results[7].value, "5");
  for (const size_t i : {9, 10}) EXPECT_CODE(results[i].status, InvalidArgument) << i;
  EXPECT_EQ(session_->Get(*tree_, "z").value_or("lost"), "last");
}

TEST_F(ExecutorBatchTest, ThoseOfOneLeafAreOneUpdate) {
  constexpr uint64_t kPuts = 1'000;
  Fill(kPuts);
  EXPECT_OK(Submit({.kind = Kind::kScan, .limit = 2 * kPuts}).result.get().status);  // parents
  Stop();
  const uint64_t before = client_->Stats().fabric.round_trips;
  std::vector<Submitted> puts;
  for (uint64_t n = 0; n < kPuts; ++n) {
    puts.push_back(Submit({.kind = Kind::kPut, .key = NumberedKey(n), .value = "new"}));
  }
  GoOn();
  for (Submitted& put : puts) EXPECT_OK(put.result.get().status);
  EXPECT_LE(client_->Stats().fabric.round_trips - before, kPuts / 4);
}

TEST_F(ExecutorBatchTest, GetsAndScansBetweenThemHaveTheirTurn) {
  Fill(1'000);
  Stop();
  std::vector<Submitted> puts, gets;
  for (uint64_t n = 0; n < 1'000; ++n) {
    puts.push_back(Submit({.kind = Kind::kPut, .key = NumberedKey(n), .value = "new"}));
    if (n % 10 == 0) gets.push_back(Submit({.key = NumberedKey(n)}));
    if (n % 100 == 0) gets.push_back(Submit({.kind = Kind::kScan, .limit = 10}));
  }
  GoOn();
  for (Submitted& put : puts) EXPECT_OK(put.result.get().status);
  for (Submitted& get : gets) EXPECT_OK(get.result.get().status);
  for (uint64_t n = 0; n < 1'000; ++n) {
    ASSERT_EQ(session_->Get(*tree_, NumberedKey(n)).value_or("lost"), "new");
  }
}

// One leaf's lock is held by somebody who does not go on. What belongs to other leaves is done, and
// said at once, although it is of the same batch.
TEST_F(ExecutorBatchTest, WhoWaitsForALockHoldsUpNobodyElse) {
  Fill(5'000);
  const std::string key = NumberedKey(2'500);
  LockWordOf word;
  ASSERT_NO_FATAL_FAILURE(TakeLock(key, &word));
  Stop();
  Submitted waiting = Submit({.kind = Kind::kPut, .key = key, .value = "w", .timeout_ms = 60'000});
  std::vector<Submitted> others;
  for (uint64_t n = 0; n < 20; ++n) {
    others.push_back(Submit(
        {.kind = Kind::kPut, .key = NumberedKey(n * 50), .value = "o", .timeout_ms = 60'000}));
  }
  GoOn();
  int done = 0;
  // A few may share the word.
  for (Submitted& other : others) {
    done += other.result.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    if (done >= 15) break;
  }
  EXPECT_GE(done, 15);
  EXPECT_EQ(waiting.result.wait_for(milliseconds(1)), std::future_status::timeout);
  StoreWord(word.server, word.index, LockWord::kFree);
  EXPECT_OK(waiting.result.get().status);
}

// The batch ends when the first of them has to, and those that have time left go on in another.
TEST_F(ExecutorBatchTest, EachEndsAtADeadlineOfItsOwn) {
  Fill(10);
  StoreAllWords(kForeign);
  Stop();
  const auto start = SteadyClock::now();
  const std::vector<int64_t> timeouts_ms = {800, 820, 840, 860};
  std::vector<Submitted> all;
  for (const int64_t timeout_ms : timeouts_ms) {
    all.push_back(
        Submit({.kind = Kind::kPut, .key = "late", .value = "w", .timeout_ms = timeout_ms}));
  }
  Submitted patient =
      Submit({.kind = Kind::kPut, .key = "late", .value = "in time", .timeout_ms = 60'000});
  GoOn();
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_GE(all[i].ended.get() - start, milliseconds(timeouts_ms[i])) << i;
    EXPECT_CODE(all[i].result.get().status, DeadlineExceeded);
  }
  EXPECT_EQ(patient.result.wait_for(milliseconds(1)), std::future_status::timeout);
  StoreAllWords(LockWord::kFree);
  EXPECT_OK(patient.result.get().status);
  EXPECT_EQ(session_->Get(*tree_, "late").value_or("lost"), "in time");
}

// Closing waits, for a server that is silent perhaps: a worker has others to serve meanwhile.
TEST_F(ExecutorBatchTest, ATreeThatIsClosedByTheEndOfItsBatchHoldsUpNobody) {
  Fill(1);
  std::unique_lock<std::mutex> silence;
  WriteToAndClose(*client_->CreateTree("other", {}), [&] { silence = cluster_.Silence(2); });
  // Time for the worker to have no more to do.
  std::this_thread::sleep_for(milliseconds(50));
  const auto start = SteadyClock::now();
  Submitted get = Submit({.key = NumberedKey(0), .timeout_ms = 100});
  EXPECT_LT(get.ended.get() - start, milliseconds(1'000));
  (void)get.result.get();
  silence.unlock();
  executor_.reset();
  EXPECT_OK(client_->OpenTree("other"));
}

TEST_F(ExecutorBatchTest, ATreeThatIsClosedByTheEndOfItsBatchIsNotKeptByABusyWorker) {
  Fill(1);
  const auto used = [this] {
    uint64_t bytes = 0;
    for (const ServerStatus& server : client_->Servers()) bytes += server.used_bytes;
    return bytes;
  };
  const uint64_t before = used();
  LockWordOf word;
  ASSERT_NO_FATAL_FAILURE(TakeLock(NumberedKey(0), &word));
  Submitted waiting =
      Submit({.kind = Kind::kPut, .key = NumberedKey(0), .value = "w", .timeout_ms = 60'000});
  WriteToAndClose(*client_->CreateTree("other", {}), [] {});
  EXPECT_OK(client_->DropTree("other"));
  const auto until = SteadyClock::now() + std::chrono::seconds(10);
  while (used() > before && SteadyClock::now() < until) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(used(), before);
  EXPECT_EQ(waiting.result.wait_for(milliseconds(1)), std::future_status::timeout);
  StoreWord(word.server, word.index, LockWord::kFree);
  EXPECT_OK(waiting.result.get().status);
}

TEST_F(ExecutorBatchTest, TreesAreApart) {
  const auto other = *client_->CreateTree("other", {.key_bytes_max = 20, .value_bytes_max = 20});
  Stop();
  std::atomic<int> done{0};
  for (uint64_t n = 0; n < 500; ++n) {
    const std::string key = NumberedKey(n);
    for (const bool is_other : {false, true}) {
      const Tree& tree = is_other ? *other : *tree_;
      const std::string more = is_other ? "and much more" : "";
      ASSERT_OK(executor_->Submit(tree, {.kind = Kind::kPut, .key = key + more, .value = more},
                                  [&](const OperationResult& result) {
                                    EXPECT_OK(result.status);
                                    ++done;
                                  }));
    }
  }
  GoOn();
  executor_.reset();
  EXPECT_EQ(done, 1'000);
  EXPECT_EQ(session_->Get(*tree_, NumberedKey(7)).value_or("lost"), "");
  EXPECT_EQ(session_->Get(*other, NumberedKey(7) + "and much more").value_or("lost"),
            "and much more");
}

}  // namespace
}  // namespace pando
