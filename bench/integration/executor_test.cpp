// The thread-safe front: from many threads, and from an event loop that is told of completions.
#include "pando/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/bystander.h"
#include "common/wire/lock_word.h"

namespace pando {
namespace {

using Kind = Operation::Kind;

class ExecutorTest : public OneTreeTest {
 protected:
  std::unique_ptr<Executor> NewExecutor(const Executor::Options& options) {
    auto executor = Executor::Create(client_.get(), options);
    EXPECT_TRUE(executor.ok()) << executor.status();
    return *std::move(executor);
  }
};

TEST_F(ExecutorTest, EveryKindOfOperation) {
  const auto executor = NewExecutor({});
  EXPECT_CODE(executor->Execute(*tree_, {.kind = Kind::kGet, .key = "a"}).status, NotFound);
  ASSERT_OK(executor->Execute(*tree_, {.kind = Kind::kPut, .key = "a", .value = "1"}).status);
  EXPECT_CODE(executor->Execute(*tree_, {.kind = Kind::kInsert, .key = "a"}).status, AlreadyExists);
  ASSERT_OK(executor->Execute(*tree_, {.kind = Kind::kInsert, .key = "b", .value = "2"}).status);
  ASSERT_OK(executor->Execute(*tree_, {.kind = Kind::kUpdate, .key = "a", .value = "3"}).status);
  EXPECT_CODE(executor->Execute(*tree_, {.kind = Kind::kUpdate, .key = "c"}).status, NotFound);
  EXPECT_EQ(executor->Execute(*tree_, {.kind = Kind::kGet, .key = "a"}).value, "3");
  const OperationResult scan = executor->Execute(*tree_, {.kind = Kind::kScan, .limit = 9});
  ASSERT_OK(scan.status);
  EXPECT_EQ(scan.rows, (std::vector<KeyValue>{{"a", "3"}, {"b", "2"}}));
  ASSERT_OK(executor->Execute(*tree_, {.kind = Kind::kErase, .key = "a"}).status);
  EXPECT_CODE(executor->Execute(*tree_, {.kind = Kind::kErase, .key = "a"}).status, NotFound);
  EXPECT_CODE(executor->Execute(*tree_, {.kind = Kind::kPut, .key = ""}).status, InvalidArgument);
}

TEST_F(ExecutorTest, ConditionalOperations) {
  const auto executor = NewExecutor({});
  const auto execute = [&](Operation operation) {
    operation.key = "a";
    return executor->Execute(*tree_, std::move(operation));
  };
  EXPECT_CODE(execute({.kind = Kind::kReplace, .value = "2", .expected = "1"}).status, NotFound);
  Operation add{.kind = Kind::kUpsert, .value = Int64Value(40)};
  EXPECT_EQ(execute(add).value, Int64Value(40)) << "the key was absent";
  add.value = Int64Value(2);
  const OperationResult sum = execute(add);
  ASSERT_OK(sum.status);
  EXPECT_EQ(sum.value, Int64Value(42));
  const OperationResult refused = execute({.kind = Kind::kReplace, .value = "2", .expected = "1"});
  EXPECT_TRUE(IsConditionFailed(refused.status)) << refused.status;
  EXPECT_EQ(refused.value, Int64Value(42));
  ASSERT_OK(execute({.kind = Kind::kReplace, .value = "2", .expected = Int64Value(42)}).status);
  EXPECT_TRUE(IsConditionFailed(execute(add).status)) << "\"2\" is no number";
  const OperationResult kept = execute({.kind = Kind::kEraseIf, .expected = "1"});
  EXPECT_TRUE(IsConditionFailed(kept.status));
  EXPECT_EQ(kept.value, "2");
  ASSERT_OK(execute({.kind = Kind::kEraseIf, .expected = "2"}).status);
  EXPECT_CODE(execute({.kind = Kind::kGet}).status, NotFound);
  add.function = static_cast<UpsertFunction>(1024);
  EXPECT_CODE(execute(add).status, InvalidArgument);
}

TEST_F(ExecutorTest, FromManyThreads) {
  constexpr uint64_t kThreads = 8, kEach = 300;
  const auto executor = NewExecutor({.workers = 3});
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t n = 0; n < kEach; ++n) {
        const std::string key = NumberedKey(t * kEach + n), value = std::to_string(n);
        ASSERT_OK(
            executor->Execute(*tree_, {.kind = Kind::kPut, .key = key, .value = value}).status);
        const OperationResult got = executor->Execute(*tree_, {.kind = Kind::kGet, .key = key});
        ASSERT_OK(got.status);
        ASSERT_EQ(got.value, value);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const OperationResult all = executor->Execute(*tree_, {.kind = Kind::kScan, .limit = SIZE_MAX});
  ASSERT_OK(all.status);
  EXPECT_EQ(all.rows.size(), kThreads * kEach);
}

// One thread that runs what is posted to it: what a server built on an event loop does.
class EventLoop {
 public:
  void Post(std::function<void()> event) {
    std::lock_guard lock(mutex_);
    events_.push(std::move(event));
    arrived_.notify_one();
  }
  void RunUntil(const std::function<bool()>& done) {
    while (!done()) {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return !events_.empty(); });
      const std::function<void()> event = std::move(events_.front());
      events_.pop();
      lock.unlock();
      event();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::queue<std::function<void()>> events_;
};

TEST_F(ExecutorTest, FromAnEventLoop) {
  constexpr int kRequests = 50, kSteps = 20;
  const auto executor = NewExecutor({});
  EventLoop loop;
  int finished = 0;  // of the loop's thread, like everything else here
  // Each request increments a counter of its own step by step: get, put, get, ...
  std::function<void(int)> read, write_next;
  std::vector<int> steps(kRequests, 0);
  const auto submit = [&](Operation operation, std::function<void(OperationResult)> then) {
    const absl::Status status =
        executor->Submit(*tree_, std::move(operation), [&loop, then](OperationResult result) {
          loop.Post([then, result = std::move(result)] { then(result); });
        });
    ASSERT_OK(status);
  };
  read = [&](int request) {
    submit({.kind = Kind::kGet, .key = NumberedKey(static_cast<uint64_t>(request))},
           [&, request](const OperationResult& result) {
             const int step = steps[static_cast<size_t>(request)];
             if (step == 0) {
               EXPECT_CODE(result.status, NotFound);
             } else {
               EXPECT_EQ(result.value, std::to_string(step));
             }
             step == kSteps ? static_cast<void>(++finished) : write_next(request);
           });
  };
  write_next = [&](int request) {
    const int step = ++steps[static_cast<size_t>(request)];
    submit({.kind = Kind::kPut,
            .key = NumberedKey(static_cast<uint64_t>(request)),
            .value = std::to_string(step)},
           [&, request](const OperationResult& result) {
             EXPECT_TRUE(result.status.ok()) << result.status;
             read(request);
           });
  };
  for (int request = 0; request < kRequests; ++request) read(request);
  loop.RunUntil([&] { return finished == kRequests; });
}

TEST_F(ExecutorTest, ACallbackMaySubmit) {
  const auto executor = NewExecutor({.workers = 2});
  std::atomic<int> done{0};
  std::function<void(int)> next = [&](int left) {
    const absl::Status status = executor->Submit(
        *tree_, {.kind = Kind::kPut, .key = NumberedKey(1), .value = std::to_string(left)},
        [&, left](OperationResult result) {
          EXPECT_TRUE(result.status.ok()) << result.status;
          if (left > 1) next(left - 1);
          ++done;
        });
    EXPECT_TRUE(status.ok()) << status;
  };
  next(200);
  while (done < 200) std::this_thread::yield();
  EXPECT_EQ(executor->Execute(*tree_, {.kind = Kind::kGet, .key = NumberedKey(1)}).value, "1");
}

TEST_F(ExecutorTest, DestructionFinishesWhatWasSubmitted) {
  std::atomic<int> done{0};
  {
    const auto executor = NewExecutor({.workers = 2});
    for (uint64_t n = 0; n < 2'000; ++n) {
      ASSERT_OK(executor->Submit(*tree_, {.kind = Kind::kPut, .key = NumberedKey(n), .value = "v"},
                                 [&](OperationResult result) { done += result.status.ok(); }));
    }
  }
  EXPECT_EQ(done, 2'000);
  auto session = client_->NewSession();
  ASSERT_OK(session);
  std::vector<KeyValue> rows;
  ASSERT_OK((*session)->Scan(*tree_, "", SIZE_MAX, &rows));
  EXPECT_EQ(rows.size(), 2'000u);
}

// Chains of operations, each submitted by the callback of the one before, until one is refused.
TEST_F(ExecutorTest, DestructionEndsWhatGoesOnByItself) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> accepted{0}, ended{0}, refused{0};
    constexpr int kChains = 8;
    std::function<void(uint64_t)> next;  // used by callbacks until the executor has gone
    {
      const auto executor = NewExecutor({.workers = 4});
      next = [&](uint64_t n) {
        ++accepted;
        const absl::Status status =
            executor->Submit(*tree_, {.kind = Kind::kPut, .key = NumberedKey(n), .value = "v"},
                             [&, n](OperationResult result) {
                               EXPECT_TRUE(result.status.ok()) << result.status;
                               next(n + kChains);
                               ++ended;
                             });
        if (status.ok()) return;
        EXPECT_CODE(status, FailedPrecondition);
        --accepted;
        ++refused;
      };
      for (uint64_t chain = 0; chain < kChains; ++chain) next(chain);
      std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
    }
    EXPECT_EQ(ended, accepted);
    EXPECT_EQ(refused, kChains);
  }
}

TEST_F(ExecutorTest, AFullQueueRefuses) {
  const auto none = NewExecutor({.workers = 1, .queue_max = 0});
  EXPECT_CODE(none->Submit(*tree_, {}, [](OperationResult) { ADD_FAILURE() << "not accepted"; }),
              ResourceExhausted);
  EXPECT_CODE(none->Execute(*tree_, {}).status, ResourceExhausted);

  std::atomic<int> done{0};
  int accepted = 0, refused = 0;
  {
    const auto small = NewExecutor({.workers = 1, .queue_max = 4});
    for (uint64_t n = 0; n < 20'000; ++n) {
      const absl::Status status =
          small->Submit(*tree_, {.kind = Kind::kPut, .key = NumberedKey(n), .value = "v"},
                        [&](OperationResult) { ++done; });
      status.ok() ? ++accepted : ++refused;
      if (!status.ok()) {
        EXPECT_CODE(status, ResourceExhausted);
      }
    }
  }
  EXPECT_EQ(done, accepted) << "called once where accepted, and never where not";
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

// The lock of the only leaf is held by somebody who does not go on. A batch waits for it in the
// only coroutine, and others in the queue behind it.
class StoppedHolderTest : public ExecutorTest {
 protected:
  static constexpr int kBatchMax = 64;

  void SetUp() override {
    ExecutorTest::SetUp();
    ClientOptions options = cluster_.ClientDefaults();
    options.coroutines_per_session = 1;
    narrow_client_ = cluster_.NewClient(options);
    auto tree = narrow_client_->OpenTree("t");
    ASSERT_OK(tree);
    narrow_tree_ = *std::move(tree);
    ASSERT_OK(session_->Put(*tree_, NumberedKey(0), "before"));
    SetLockWords(LockWord{777, 5}.Encode());
  }
  void SetLockWords(uint64_t value) {
    for (int server = 1; server <= 2; ++server) {
      auto* const words = reinterpret_cast<uint64_t*>(cluster_.memory(server).locks.data());
      for (uint32_t i = kRootLockWords; i < cluster_.lock_words(); ++i) {
        std::atomic_ref<uint64_t>(words[i]).store(value);
      }
    }
  }
  std::unique_ptr<Executor> NewNarrowExecutor() {
    auto executor = Executor::Create(narrow_client_.get(), {.workers = 1});
    EXPECT_TRUE(executor.ok()) << executor.status();
    return *std::move(executor);
  }
  // Puts that wait for the lock until it is free, more than one batch takes.
  void Occupy(Executor& executor) {
    for (int i = 0; i < 2 * kBatchMax; ++i) {
      const absl::Status submitted = executor.Submit(
          *narrow_tree_,
          {.kind = Kind::kPut, .key = NumberedKey(0), .value = "x", .timeout_ms = 60'000},
          [](OperationResult result) { ASSERT_OK(result.status); });
      ASSERT_OK(submitted);
    }
  }

  std::unique_ptr<Client> narrow_client_;
  std::unique_ptr<Tree> narrow_tree_;
};

TEST_F(StoppedHolderTest, WhatIsQueuedEndsAtItsDeadline) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kTimeout(100);
  // Of a busy machine: far from the time-outs of those that are in the way.
  constexpr std::chrono::seconds kLateness(5);
  const auto executor = NewNarrowExecutor();
  Occupy(*executor);
  for (const auto kind : {Kind::kPut, Kind::kErase, Kind::kGet, Kind::kScan}) {
    const auto start = Clock::now();
    const absl::Status status = executor
                                    ->Execute(*narrow_tree_, {.kind = kind,
                                                              .key = NumberedKey(0),
                                                              .value = "late",
                                                              .limit = 1,
                                                              .timeout_ms = kTimeout.count()})
                                    .status;
    const auto took = Clock::now() - start;
    EXPECT_CODE(status, DeadlineExceeded);
    EXPECT_NE(status.message().find("no effect"), std::string::npos) << status;
    EXPECT_GE(took, kTimeout);
    EXPECT_LT(took, kTimeout + kLateness);
  }
  SetLockWords(LockWord::kFree);
  const OperationResult got = executor->Execute(*narrow_tree_, {.key = NumberedKey(0)});
  ASSERT_OK(got.status);
  EXPECT_EQ(got.value, "x");
}

TEST_F(StoppedHolderTest, EveryoneInTheQueueHasADeadlineOfItsOwn) {
  constexpr int kCount = 500;
  const auto executor = NewNarrowExecutor();
  Occupy(*executor);
  std::mutex mutex;
  std::vector<int64_t> order;
  for (int i = 0; i < kCount; ++i) {
    // Later ones have the earlier deadlines.
    const int64_t timeout_ms = 1 + 2 * (kCount - i);
    ASSERT_OK(executor->Submit(*narrow_tree_,
                               {.kind = Kind::kPut, .key = "k", .timeout_ms = timeout_ms},
                               [&, timeout_ms](OperationResult result) {
                                 EXPECT_CODE(result.status, DeadlineExceeded);
                                 std::lock_guard lock(mutex);
                                 order.push_back(timeout_ms);
                               }));
  }
  const auto ended = [&] {
    std::lock_guard lock(mutex);
    return order.size();
  };
  while (ended() < kCount) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Submitting took a moment, too.
  EXPECT_LT(std::find(order.begin(), order.end(), 3) - order.begin(), kCount / 2);
  SetLockWords(LockWord::kFree);
}

// What has waited long in the queue has little time left.
TEST_F(StoppedHolderTest, TheDeadlineCountsFromSubmission) {
  constexpr int64_t kTimeoutMs = 400;
  const Bystander bystander;
  const auto executor = NewNarrowExecutor();
  std::atomic<int> late{0};
  const auto start = std::chrono::steady_clock::now();
  // Four batches: the second begins when the first gives up.
  for (int i = 0; i < 4 * kBatchMax; ++i) {
    ASSERT_OK(executor->Submit(
        *narrow_tree_, {.kind = Kind::kPut, .key = NumberedKey(0), .timeout_ms = kTimeoutMs},
        [&](OperationResult result) { late += absl::IsDeadlineExceeded(result.status); }));
  }
  while (late < 4 * kBatchMax) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took, bystander.Bound(std::chrono::milliseconds(2 * kTimeoutMs)))
      << "one batch after the other";
  SetLockWords(LockWord::kFree);
}

TEST_F(ExecutorTest, BadOptions) {
  EXPECT_CODE(Executor::Create(client_.get(), {.workers = 0}), InvalidArgument);
  EXPECT_CODE(Executor::Create(client_.get(), {.workers = 100'000}), InvalidArgument);
}

TEST_F(ExecutorTest, StartStopStart) {
  for (int i = 0; i < 3; ++i) {
    const auto executor = NewExecutor({.workers = 1 + i});
    const std::string value = std::to_string(i);
    ASSERT_OK(executor->Execute(*tree_, {.kind = Kind::kPut, .key = "a", .value = value}).status);
    EXPECT_EQ(executor->Execute(*tree_, {.kind = Kind::kGet, .key = "a"}).value, value);
  }
}

}  // namespace
}  // namespace pando
