// Futures over the executor: waiting, going on, gathering, and what goes wrong on the way.
#include "pando/future.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/integration/integration_cluster.h"

namespace pando {
namespace {

using Kind = Operation::Kind;

class FutureTest : public OneTreeTest {
 protected:
  void SetUp() override {
    OneTreeTest::SetUp();
    Restart({});
  }
  void TearDown() override { executor_.reset(); }
  void Restart(const Executor::Options& options) {
    auto executor = Executor::Create(client_.get(), options);
    ASSERT_OK(executor);
    executor_ = *std::move(executor);
  }
  Future<OperationResult> Submit(Operation operation) {
    return SubmitFuture(*executor_, *tree_, std::move(operation));
  }

  std::unique_ptr<Executor> executor_;
};

TEST_F(FutureTest, AnswersAreWaitedFor) {
  EXPECT_OK(Submit({.kind = Kind::kPut, .key = "a", .value = "1"}).Get().status);
  const OperationResult got = Submit({.key = "a"}).Get();
  ASSERT_OK(got.status);
  EXPECT_EQ(got.value, "1");
  EXPECT_CODE(Submit({.key = "b"}).Get().status, NotFound);
  Future<OperationResult> later = Submit({.key = "a"});
  EXPECT_TRUE(later.WaitFor(std::chrono::minutes(1)));
  EXPECT_TRUE(later.ready());
  EXPECT_EQ(std::move(later).Get().value, "1");
}

TEST_F(FutureTest, AnAnswerIsWaitedForHoweverLongTheTimeIs) {
  Promise<OperationResult> promise;
  const Future<OperationResult> future = promise.future();
  std::thread later([&promise] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    promise.Set({});
  });
  EXPECT_TRUE(future.WaitFor(std::chrono::milliseconds::max()));
  EXPECT_TRUE(future.WaitFor(std::chrono::milliseconds::min()));
  later.join();
}

TEST_F(FutureTest, WhatIsRefusedIsAnsweredAtOnce) {
  Future<OperationResult> refused = Submit({.key = "a", .timeout_ms = -1});
  EXPECT_TRUE(refused.ready());
  EXPECT_CODE(std::move(refused).Get().status, InvalidArgument);
  Restart({.queue_max = 0});
  EXPECT_CODE(Submit({.key = "a"}).Get().status, ResourceExhausted);
}

TEST_F(FutureTest, OneGoesOnFromTheOther) {
  ASSERT_OK(session_->Put(*tree_, "n", Int64Value(41)));
  // Reads a number, writes the next one, and reads that: without a thread that waits.
  absl::StatusOr<int64_t> number =
      Submit({.key = "n"})
          .Then([this](const OperationResult& read) {
            const int64_t next = ParseInt64Value(read.value).value_or(0) + 1;
            return Submit({.kind = Kind::kReplace,
                           .key = "n",
                           .value = Int64Value(next),
                           .expected = read.value});
          })
          .Then([this](const OperationResult& replaced) {
            EXPECT_OK(replaced.status);
            return Submit({.key = "n"});
          })
          .Then([](const OperationResult& read) -> absl::StatusOr<int64_t> {
            if (!read.status.ok()) return read.status;
            return ParseInt64Value(read.value).value_or(0);
          })
          .Get();
  ASSERT_OK(number);
  EXPECT_EQ(*number, 42);
}

TEST_F(FutureTest, WhatAContinuationThrowsIsAnError) {
  const auto throw_error = [](const OperationResult&) -> absl::Status {
    throw std::runtime_error("no good");
  };
  const absl::Status thrown = Submit({.key = "a"}).Then(throw_error).Get();
  EXPECT_CODE(thrown, Internal);
  EXPECT_NE(thrown.message().find("no good"), std::string::npos) << thrown;
  const auto throw_number = [](const OperationResult&) -> Future<OperationResult> { throw 7; };
  EXPECT_CODE(Submit({.key = "a"}).Then(throw_number).Get().status, Internal);
  // The executor goes on.
  EXPECT_CODE(Submit({.key = "a"}).Get().status, NotFound);
}

TEST_F(FutureTest, APromiseThatGoesGivesCancelled) {
  auto promise = std::make_unique<Promise<absl::Status>>();
  Future<absl::Status> future = promise->future();
  EXPECT_FALSE(future.ready());
  EXPECT_FALSE(future.WaitFor(std::chrono::milliseconds(0)));
  promise.reset();
  EXPECT_CODE(std::move(future).Get(), Cancelled);
}

TEST_F(FutureTest, AllFromManyThreads) {
  constexpr uint64_t kThreads = 4, kEach = 200;
  std::atomic<uint64_t> read = 0;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Future<OperationResult>> futures;
      for (uint64_t n = 0; n < kEach; ++n) {
        const std::string key = NumberedKey(t * kEach + n);
        futures.push_back(Submit({.kind = Kind::kPut, .key = key, .value = std::to_string(n)})
                              .Then([this, key](const OperationResult& written) {
                                EXPECT_OK(written.status);
                                return Submit({.key = key});
                              }));
      }
      const auto all = WhenAll(std::move(futures)).Get();
      ASSERT_OK(all);
      ASSERT_EQ(all->size(), kEach);
      for (uint64_t n = 0; n < kEach; ++n) read += (*all)[n].value == std::to_string(n);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(read, kThreads * kEach);
  const auto none = WhenAll(std::vector<Future<OperationResult>>()).Get();
  ASSERT_OK(none);
  EXPECT_TRUE(none->empty());
}

TEST_F(FutureTest, AFutureThatIsDroppedTakesNothingBack) {
  { const Future<OperationResult> dropped = Submit({.kind = Kind::kPut, .key = "a"}); }
  executor_.reset();  // finishes what was submitted
  EXPECT_OK(session_->Get(*tree_, "a"));
}

}  // namespace
}  // namespace pando
