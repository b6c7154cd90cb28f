// The executor of the C interface: operations from many threads, answers by callback.
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "compute/c/c_test_util.h"

namespace pando::c {
namespace {

class CExecutorTest : public CTest {
 protected:
  void SetUp() override {
    CTest::SetUp();
    ASSERT_GIVES(PANDO_OK, pando_open_executor(client_, nullptr, &executor_));
  }
  static pando_operation Of(int64_t kind, std::string_view key = "", std::string_view value = "",
                            std::string_view expected = "") {
    pando_operation operation = PANDO_OPERATION_INIT;
    operation.kind = kind;
    operation.key = B(key);
    operation.value = B(value);
    operation.expected = B(expected);
    return operation;
  }
  // The value, or the code's name.
  std::string Execute(const pando_operation& operation) {
    pando_list* list = nullptr;
    const pando_code code = pando_execute(executor_, tree_, &operation, &list);
    return code == PANDO_OK ? TakeResults(list).front() : pando_code_name(code);
  }

  pando_executor* executor_ = nullptr;
};

TEST_F(CExecutorTest, EveryKindOfOperation) {
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_GET, "a")), "NOT_FOUND");
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_PUT, "a", "1")), "");
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_GET, "a")), "1");
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_INSERT, "a", "2")), "ALREADY_EXISTS");
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_UPDATE, "b", "2")), "NOT_FOUND");
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_REPLACE, "a", "3", "2")), "CONDITION_FAILED");
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_REPLACE, "a", "3", "1")), "");
  pando_operation append = Of(PANDO_OPERATION_UPSERT, "a", "+");
  append.function = PANDO_UPSERT_APPEND;
  EXPECT_EQ(Execute(append), "3+");
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_INSERT, "b", "2")), "");
  pando_operation scan = Of(PANDO_OPERATION_SCAN);
  scan.limit = 9;
  pando_list* list = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_execute(executor_, tree_, &scan, &list));
  EXPECT_EQ(TakeRows(list).size(), 2u);
  scan.has_to = 1;
  scan.to = B("b");
  ASSERT_GIVES(PANDO_OK, pando_execute(executor_, tree_, &scan, &list));
  EXPECT_EQ(TakeRows(list).size(), 1u);
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_ERASE_IF, "b", "", "1")), "CONDITION_FAILED");
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_ERASE, "b")), "");
  EXPECT_EQ(Execute(Of(PANDO_OPERATION_PUT, "", "1")), "INVALID_ARGUMENT");
}

TEST_F(CExecutorTest, WhatIsRefusedIsNotAnswered) {
  const auto never = [](void*, const pando_answer*) { ADD_FAILURE() << "was answered"; };
  const auto submit = [&](const pando_operation& operation) {
    return pando_submit(executor_, tree_, &operation, never, nullptr);
  };
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, submit(Of(9)));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, submit(Of(-1)));
  pando_operation operation = Of(PANDO_OPERATION_GET, "a");
  operation.timeout_ms = -1;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, submit(operation));
  operation = Of(PANDO_OPERATION_GET, "a");
  operation.size = 7;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, submit(operation));
  operation = Of(PANDO_OPERATION_GET);
  operation.key = pando_view("a", SIZE_MAX);
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, submit(operation));
  operation = Of(PANDO_OPERATION_GET, "a");
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_submit(executor_, tree_, nullptr, never, nullptr));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_submit(executor_, tree_, &operation, nullptr, nullptr));
  pando_executor_options options = PANDO_EXECUTOR_OPTIONS_INIT;
  options.queue_max = 0;
  pando_executor* full = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_executor(client_, &options, &full));
  EXPECT_GIVES(PANDO_RESOURCE_EXHAUSTED, pando_submit(full, tree_, &operation, never, nullptr));
  for (const int64_t workers : {0, 1025, -1}) {
    options.workers = workers;
    EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_open_executor(client_, &options, &full));
  }
}

TEST_F(CExecutorTest, FromManyThreads) {
  constexpr int kThreads = 4, kEach = 300;
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int n = 0; n < kEach; ++n) {
        // Gone when pando_submit() returns: it has copied them.
        const std::string key = NumberedKey(static_cast<uint64_t>(t * kEach + n));
        const std::string value = std::to_string(n);
        const pando_operation operation = Of(PANDO_OPERATION_PUT, key, value);
        ASSERT_GIVES(PANDO_OK, pando_submit(
                                   executor_, tree_, &operation,
                                   [](void* context, const pando_answer* answer) {
                                     EXPECT_EQ(answer->size, sizeof(pando_answer));
                                     EXPECT_EQ(answer->result.code, PANDO_OK);
                                     ++*static_cast<std::atomic<int>*>(context);
                                   },
                                   &answered));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GIVES(PANDO_OK, pando_close_executor(executor_));
  EXPECT_EQ(answered, kThreads * kEach);
  pando_list* list = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_scan(session_, tree_, nullptr, &list));
  EXPECT_EQ(TakeRows(list).size(), size_t{kThreads * kEach});
}

// Goes on from its own answers.
struct Chain {
  pando_executor* executor;
  pando_tree* tree;
  int steps = 0;
  std::promise<pando_code> over;
};
void Step(void* context, const pando_answer* answer) {
  auto& chain = *static_cast<Chain*>(context);
  if (answer->result.code != PANDO_OK || ++chain.steps == 50) {
    chain.over.set_value(static_cast<pando_code>(answer->result.code));
    return;
  }
  pando_operation operation = PANDO_OPERATION_INIT;
  operation.kind = PANDO_OPERATION_PUT;
  operation.key = B("k");
  operation.value = B("v");
  EXPECT_GIVES(PANDO_OK, pando_submit(chain.executor, chain.tree, &operation, Step, &chain));
}

TEST_F(CExecutorTest, CallbacksSubmitWhatComesNext) {
  Chain chain{executor_, tree_};
  const pando_operation first = Of(PANDO_OPERATION_PUT, "k", "v");
  ASSERT_GIVES(PANDO_OK, pando_submit(executor_, tree_, &first, Step, &chain));
  EXPECT_EQ(chain.over.get_future().get(), PANDO_OK);
  EXPECT_EQ(chain.steps, 50);
}

// Of all memory servers.
uint64_t FreeBytes(pando_client* client) {
  pando_list* list = nullptr;
  EXPECT_GIVES(PANDO_OK, pando_list_servers(client, &list));
  size_t count = 0;
  EXPECT_GIVES(PANDO_OK, pando_list_size(list, &count));
  uint64_t free_bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    pando_server_info info{.size = sizeof(info)};
    EXPECT_GIVES(PANDO_OK, pando_list_server(list, i, &info));
    free_bytes += info.free_bytes;
  }
  EXPECT_GIVES(PANDO_OK, pando_close_list(list));
  return free_bytes;
}

TEST_F(CExecutorTest, ATreeThatIsClosedIsNotKept) {
  constexpr int kWrites = 300;
  const uint64_t before = FreeBytes(client_);
  std::atomic<int> answered = 0;
  for (int round = 0; round < 4; ++round) {
    pando_tree* const tree = NewTree("dropped");
    for (int n = 0; n < kWrites; ++n) {
      const std::string key = NumberedKey(static_cast<uint64_t>(n));
      const pando_operation put = Of(PANDO_OPERATION_PUT, key, "v");
      ASSERT_GIVES(PANDO_OK, pando_submit(
                                 executor_, tree, &put,
                                 [](void* context, const pando_answer* answer) {
                                   EXPECT_EQ(answer->result.code, PANDO_OK);
                                   ++*static_cast<std::atomic<int>*>(context);
                                 },
                                 &answered));
    }
    // Once while its operations are under way: they end as if it were open.
    const int all = (round + 1) * kWrites;
    if (round > 0) {
      while (answered < all) std::this_thread::yield();
    }
    ASSERT_GIVES(PANDO_OK, pando_close_tree(tree));
    while (answered < all) std::this_thread::yield();
    ASSERT_GIVES(PANDO_OK, pando_drop_tree(client_, "dropped"));
  }
  // What was closed first goes with the next operation, and what workers have at hand soon.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (FreeBytes(client_) < before && std::chrono::steady_clock::now() < until) {
    EXPECT_EQ(Execute(Of(PANDO_OPERATION_GET, "a")), "NOT_FOUND");
  }
  EXPECT_EQ(FreeBytes(client_), before);
}

}  // namespace
}  // namespace pando::c
