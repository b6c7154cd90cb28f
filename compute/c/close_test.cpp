// Closing, in any order, from any thread, and what is done after it.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "compute/c/c_test_util.h"

namespace pando::c {
namespace {

class CCloseTest : public CTest {};

TEST_F(CCloseTest, AClientClosesAllThatCameOfIt) {
  ASSERT_GIVES(PANDO_OK, Put("a", "1"));
  pando_cursor* cursor = nullptr;
  pando_executor* executor = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_cursor(session_, tree_, nullptr, &cursor));
  ASSERT_GIVES(PANDO_OK, pando_open_executor(client_, nullptr, &executor));
  ASSERT_GIVES(PANDO_OK, pando_cursor_next(cursor, nullptr));
  pando_list* rows = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_scan(session_, tree_, nullptr, &rows));
  pando_client* const client = client_;
  client_ = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_close_client(client));

  EXPECT_EQ(Get("a"), "CLOSED");
  EXPECT_GIVES(PANDO_CLOSED, Put("a", "1"));
  EXPECT_GIVES(PANDO_CLOSED, pando_cursor_next(cursor, nullptr));
  const pando_operation operation = PANDO_OPERATION_INIT;
  EXPECT_GIVES(PANDO_CLOSED,
               pando_submit(
                   executor, tree_, &operation, [](void*, const pando_answer*) {}, nullptr));
  pando_session* session = nullptr;
  EXPECT_GIVES(PANDO_CLOSED, pando_open_session(client, &session));
  EXPECT_EQ(session, nullptr);
  EXPECT_GIVES(PANDO_CLOSED, pando_close_session(session_));
  EXPECT_GIVES(PANDO_CLOSED, pando_close_cursor(cursor));
  EXPECT_GIVES(PANDO_CLOSED, pando_close_tree(tree_));
  EXPECT_GIVES(PANDO_CLOSED, pando_close_executor(executor));
  EXPECT_GIVES(PANDO_CLOSED, pando_close_client(client));
  // A list is nobody's but the caller's.
  EXPECT_EQ(TakeRows(rows).size(), 1u);
  EXPECT_GIVES(PANDO_CLOSED, pando_close_list(rows));
}

TEST_F(CCloseTest, HandlesAreNeverTakenForLaterOnes) {
  const std::vector<pando_session*> old = [&] {
    std::vector<pando_session*> sessions(20);
    for (pando_session*& session : sessions) {
      EXPECT_GIVES(PANDO_OK, pando_open_session(client_, &session));
      EXPECT_GIVES(PANDO_OK, pando_close_session(session));
    }
    return sessions;
  }();
  pando_session* open = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_session(client_, &open));
  for (pando_session* session : old) EXPECT_EQ(Get(session, "a"), "CLOSED");
  EXPECT_EQ(Get(open, "a"), "NOT_FOUND");
}

TEST_F(CCloseTest, CursorsAndExecutorsGoOnWithoutTheTreesHandle) {
  ASSERT_GIVES(PANDO_OK, Put("a", "1"));
  pando_cursor* cursor = nullptr;
  pando_executor* executor = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_cursor(session_, tree_, nullptr, &cursor));
  ASSERT_GIVES(PANDO_OK, pando_open_executor(client_, nullptr, &executor));
  pando_operation operation = PANDO_OPERATION_INIT;
  operation.kind = PANDO_OPERATION_PUT;
  operation.key = B("b");
  operation.value = B("2");
  std::atomic<int> answered = 0;
  ASSERT_GIVES(PANDO_OK, pando_submit(
                             executor, tree_, &operation,
                             [](void* context, const pando_answer* answer) {
                               EXPECT_EQ(answer->result.code, PANDO_OK);
                               ++*static_cast<std::atomic<int>*>(context);
                             },
                             &answered));
  EXPECT_GIVES(PANDO_OK, pando_close_tree(tree_));
  EXPECT_GIVES(PANDO_OK, pando_close_executor(executor));
  EXPECT_EQ(answered, 1) << "it is closed when all is answered";
  pando_row row;
  EXPECT_GIVES(PANDO_OK, pando_cursor_next(cursor, &row));
  EXPECT_EQ(S(row.key), "a");
  EXPECT_GIVES(PANDO_OK, pando_cursor_next(cursor, &row));
  EXPECT_EQ(S(row.key), "b");
  EXPECT_GIVES(PANDO_OK, pando_close_session(session_));
  EXPECT_GIVES(PANDO_CLOSED, pando_cursor_next(cursor, &row));
}

// Whoever collects garbage closes cursors in any thread, and may hold what the session waits for.
TEST_F(CCloseTest, ACursorDoesNotWaitForItsSession) {
  ASSERT_GIVES(PANDO_OK, Put("a", "1"));
  pando_cursor* cursor = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_cursor(session_, tree_, nullptr, &cursor));
  ASSERT_GIVES(PANDO_OK, pando_cursor_next(cursor, nullptr));
  std::promise<void> loading, closed;
  std::thread other([&] {
    loading.get_future().wait();
    EXPECT_GIVES(PANDO_OK, pando_close_cursor(cursor));
    closed.set_value();
  });
  struct Context {
    std::promise<void>& loading;
    std::future<void> closed;
    bool in_time = false;
  } context{loading, closed.get_future()};
  const auto none = [](void* of, pando_row*) {
    auto& given = *static_cast<Context*>(of);
    given.loading.set_value();
    given.in_time = given.closed.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
    return 0;
  };
  EXPECT_GIVES(PANDO_OK, pando_bulk_load(session_, NewTree("loaded"), none, &context));
  EXPECT_TRUE(context.in_time);
  other.join();
  EXPECT_GIVES(PANDO_CLOSED, pando_cursor_next(cursor, nullptr));
  EXPECT_EQ(Get("a"), "1");
}

TEST_F(CCloseTest, WhileThreadsWork) {
  constexpr int kThreads = 3;
  for (int round = 0; round < 5; ++round) {
    pando_client* const client = Connect();
    pando_tree* tree = nullptr;
    ASSERT_GIVES(PANDO_OK, pando_open_tree(client, "t", &tree));
    std::atomic<int> working = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        pando_session* session = nullptr;
        ASSERT_GIVES(PANDO_OK, pando_open_session(client, &session));
        ++working;
        char value[kValueBytes];
        size_t size;
        pando_code code = PANDO_NOT_FOUND;
        while (code == PANDO_NOT_FOUND || code == PANDO_OK) {
          code = pando_get(session, tree, B("none"), value, sizeof(value), &size, nullptr);
        }
        EXPECT_GIVES(PANDO_CLOSED, code);
        // Of the tree, perhaps, and the session is still open.
        code = pando_close_session(session);
        EXPECT_TRUE(code == PANDO_OK || code == PANDO_CLOSED) << pando_code_name(code);
      });
    }
    while (working < kThreads) std::this_thread::yield();
    std::thread other([&] { (void)pando_close_tree(tree); });
    EXPECT_GIVES(PANDO_OK, pando_close_client(client));
    other.join();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(CCloseTest, OneThreadAtATimeUsesASession) {
  // One thread is inside the session as long as the callback of its load does not return.
  std::atomic<int> stage = 0;
  std::thread loader([&] {
    EXPECT_GIVES(PANDO_OK, pando_bulk_load(
                               session_, tree_,
                               [](void* context, pando_row*) {
                                 auto& at = *static_cast<std::atomic<int>*>(context);
                                 at = 1;
                                 while (at == 1) std::this_thread::yield();
                                 return 0;
                               },
                               &stage));
  });
  while (stage == 0) std::this_thread::yield();
  EXPECT_EQ(Get("a"), "FAILED_PRECONDITION");
  pando_cursor* cursor = nullptr;
  EXPECT_GIVES(PANDO_FAILED_PRECONDITION, pando_open_cursor(session_, tree_, nullptr, &cursor));
  // To close it waits, and refuses the session to others at once.
  std::thread closer([&] { EXPECT_GIVES(PANDO_OK, pando_close_session(session_)); });
  while (Get("a") != "CLOSED") std::this_thread::yield();
  stage = 2;
  loader.join();
  closer.join();
}

// What a child of fork() finds, as its exit code: 0 is as it should be.
int InChild(pando_session* session, pando_tree* tree, const std::string& registry) {
  char value[16];
  size_t size = 0;
  const auto get = [&](pando_session* with, pando_tree* from) {
    return pando_get(with, from, B("a"), value, sizeof(value), &size, nullptr);
  };
  if (get(session, tree) != PANDO_FAILED_PRECONDITION) return 1;
  if (pando_close_session(session) != PANDO_FAILED_PRECONDITION) return 2;
  if (pando_open_handles() != 0) return 3;
  if (kThreadSanitized) return 0;  // which ends a child that starts threads
  pando_client_options options = PANDO_CLIENT_OPTIONS_INIT;
  options.registry = registry.c_str();
  pando_client* client = nullptr;
  if (pando_connect(&options, &client) != PANDO_OK) return 4;
  if (pando_open_tree(client, "t", &tree) != PANDO_OK) return 5;
  if (pando_open_session(client, &session) != PANDO_OK) return 6;
  if (get(session, tree) != PANDO_OK) return 7;
  return pando_close_client(client) == PANDO_OK ? 0 : 8;
}

TEST_F(CCloseTest, AChildHasNoneOfItsParentsHandles) {
  if (IntegrationCluster::default_fabric() != "shm") GTEST_SKIP() << "RDMA and fork() do not mix";
  ASSERT_GIVES(PANDO_OK, Put("a", "1"));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(InChild(session_, tree_, cluster_.registry()));
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result));
  EXPECT_EQ(WEXITSTATUS(result), 0);
  EXPECT_EQ(Get("a"), "1") << "and the parent goes on";
}

}  // namespace
}  // namespace pando::c
