// Callbacks: upsert functions, answers, rows and lines of the log; what they may call, and what
// they throw where they are C++.
#include <atomic>
#include <cstring>
#include <future>
#include <stdexcept>
#include <string>

#include "common/base/check.h"
#include "compute/c/c_test_util.h"

namespace pando::c {
namespace {

class CCallbackTest : public CTest {
 protected:
  std::string Upsert(uint32_t function, std::string_view operand) {
    char value[kValueBytes];
    size_t size = 0;
    const pando_code code = pando_upsert(session_, tree_, B("k"), function, B(operand), value,
                                         sizeof(value), &size, nullptr);
    return code == PANDO_OK ? std::string(value, size) : pando_code_name(code);
  }
};

// The present value in brackets, and the operand; what it is told in the context.
int InBrackets(void* context, pando_bytes key, const pando_bytes* present, pando_bytes operand,
               void* result, size_t capacity, size_t* result_size) {
  EXPECT_EQ(S(key), "k");
  EXPECT_GE(capacity, 65'536u);
  const std::string asked = S(operand);
  if (asked == "refuse") return 7;
  if (asked == "throw") throw std::runtime_error("no good");
  if (asked == "long") return *result_size = capacity, 0;
  if (asked == "longer") return *result_size = capacity + 1, 0;
  ++*static_cast<int*>(context);
  const std::string made = "(" + (present == nullptr ? "none" : S(*present)) + ")" + asked;
  memcpy(result, made.data(), made.size());
  *result_size = made.size();
  return 0;
}

TEST_F(CCallbackTest, UpsertFunctionsOfThePrograms) {
  int calls = 0;
  ASSERT_GIVES(PANDO_OK, pando_register_upsert(client_, 1024, InBrackets, &calls));
  EXPECT_GIVES(PANDO_ALREADY_EXISTS, pando_register_upsert(client_, 1024, InBrackets, &calls));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_register_upsert(client_, 1023, InBrackets, &calls));
  EXPECT_EQ(Upsert(1024, "x"), "(none)x");
  EXPECT_EQ(Upsert(1024, "y"), "((none)x)y");
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(Upsert(1024, "refuse"), "CONDITION_FAILED");
  EXPECT_NE(std::string(pando_last_message()).find('7'), std::string::npos) << pando_last_message();
  EXPECT_EQ(Upsert(1024, "throw"), "CONDITION_FAILED");
  EXPECT_NE(std::string(pando_last_message()).find("no good"), std::string::npos);
  EXPECT_EQ(Upsert(1024, "long"), "CONDITION_FAILED") << "longer than the tree's values";
  EXPECT_EQ(Upsert(1024, "longer"), "CONDITION_FAILED") << "longer than its room";
  EXPECT_EQ(Get("k"), "((none)x)y");
}

// What each callback finds when it calls what it may not.
struct Tries {
  pando_client* client;
  pando_tree* tree;
  pando_session* session;
  pando_executor* executor = nullptr;
  pando_code get = PANDO_OK, close = PANDO_OK, submit = PANDO_OK, execute = PANDO_OK;
  std::promise<void> done;

  void Try() {
    char value[16];
    size_t size;
    const pando_operation operation = PANDO_OPERATION_INIT;
    // Set to NULL also where the call is refused.
    auto* list = reinterpret_cast<pando_list*>(this);
    get = pando_get(session, tree, B("k"), value, sizeof(value), &size, nullptr);
    close = pando_close_client(client);
    submit = pando_submit(
        executor, tree, &operation, [](void*, const pando_answer*) {}, nullptr);
    execute = pando_execute(executor, tree, &operation, &list);
    EXPECT_EQ(list, nullptr);
    list = reinterpret_cast<pando_list*>(this);
    pando_check_report report = {};
    report.size = sizeof(report);
    EXPECT_EQ(pando_check(session, tree, nullptr, &report, &list), PANDO_FAILED_PRECONDITION);
    EXPECT_EQ(list, nullptr);
  }
};

TEST_F(CCallbackTest, InsideOneLittleIsAllowed) {
  Tries tries{client_, tree_, session_};
  ASSERT_GIVES(PANDO_OK, pando_open_executor(client_, nullptr, &tries.executor));
  const auto refused = [&](pando_code submit) {
    EXPECT_EQ(tries.get, PANDO_FAILED_PRECONDITION);
    EXPECT_EQ(tries.close, PANDO_FAILED_PRECONDITION);
    EXPECT_EQ(tries.execute, PANDO_FAILED_PRECONDITION);
    EXPECT_EQ(tries.submit, submit);
    tries.get = tries.close = tries.execute = tries.submit = PANDO_OK;
  };
  ASSERT_GIVES(PANDO_OK, pando_register_upsert(
                             client_, 1024,
                             [](void* context, pando_bytes, const pando_bytes*, pando_bytes, void*,
                                size_t, size_t* size) {
                               static_cast<Tries*>(context)->Try();
                               *size = 0;
                               return 0;
                             },
                             &tries));
  EXPECT_EQ(Upsert(1024, ""), "");
  refused(PANDO_FAILED_PRECONDITION);
  ASSERT_GIVES(PANDO_OK, pando_bulk_load(
                             session_, NewTree("loaded"),
                             [](void* context, pando_row*) {
                               static_cast<Tries*>(context)->Try();
                               return 0;
                             },
                             &tries));
  refused(PANDO_FAILED_PRECONDITION);
  const pando_operation operation = PANDO_OPERATION_INIT;
  ASSERT_GIVES(PANDO_OK, pando_submit(
                             tries.executor, tree_, &operation,
                             [](void* context, const pando_answer*) {
                               static_cast<Tries*>(context)->Try();
                               static_cast<Tries*>(context)->done.set_value();
                             },
                             &tries));
  tries.done.get_future().get();
  refused(PANDO_OK);
  EXPECT_EQ(Get("k"), "") << "outside all is as before";
}

TEST_F(CCallbackTest, WhatTheCallbackForACursorsRowThrowsIsACancellation) {
  ASSERT_GIVES(PANDO_OK, Put("a", "1"));
  pando_cursor* cursor = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_cursor(session_, tree_, nullptr, &cursor));
  const auto take = [](void*, const pando_row*) { throw std::runtime_error("thrown"); };
  EXPECT_GIVES(PANDO_CANCELLED,
               pando_cursor_take(cursor, PANDO_MOVE_NEXT, pando_bytes{}, take, nullptr));
  EXPECT_GIVES(PANDO_OUT_OF_RANGE, pando_cursor_next(cursor, nullptr)) << "it has moved";
}

TEST_F(CCallbackTest, WhatAnAnswersCallbackThrowsEndsThere) {
  pando_executor* executor = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_executor(client_, nullptr, &executor));
  const pando_operation operation = PANDO_OPERATION_INIT;
  for (int i = 0; i < 3; ++i) {
    ASSERT_GIVES(
        PANDO_OK,
        pando_submit(
            executor, tree_, &operation,
            [](void*, const pando_answer*) { throw std::runtime_error("thrown"); }, nullptr));
  }
  pando_list* list = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_execute(executor, tree_, &operation, &list));
  EXPECT_EQ(TakeResults(list).front(), "INVALID_ARGUMENT") << "no key";
}

std::atomic<int> lines;

TEST_F(CCallbackTest, TheLogGoesToTheProgram) {
  const auto sink = [](void* context, const pando_log_record* record) {
    EXPECT_EQ(record->size, sizeof(pando_log_record));
    EXPECT_EQ(record->severity, PANDO_LOG_WARNING);
    EXPECT_EQ(S(record->file), "callback_test.cpp");
    EXPECT_GT(record->time_us, 0);
    *static_cast<std::string*>(context) = S(record->message);
    EXPECT_EQ(pando_set_log_sink(nullptr, nullptr), PANDO_FAILED_PRECONDITION);
    ++lines;
    throw 7;  // which nobody hears of
  };
  std::string line;
  ASSERT_GIVES(PANDO_OK, pando_set_log_sink(sink, &line));
  PANDO_LOG(WARNING) << "a line";
  EXPECT_EQ(line, "a line");
  ASSERT_GIVES(PANDO_OK, pando_set_log_sink(nullptr, nullptr));
  PANDO_LOG(WARNING) << "another line, for glog";
  EXPECT_EQ(lines, 1);
}

}  // namespace
}  // namespace pando::c
