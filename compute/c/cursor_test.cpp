// Scans and cursors of the C interface.
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compute/c/c_test_util.h"

namespace pando::c {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

class CCursorTest : public CTest {
 protected:
  void SetUp() override {
    CTest::SetUp();
    for (const char* const key : {"a", "b", "ba", "bb", "c"}) {
      ASSERT_GIVES(PANDO_OK, Put(key, std::string("v") + key));
    }
  }
  std::string Keys(const pando_cursor_options& range) {
    pando_list* list = nullptr;
    EXPECT_GIVES(PANDO_OK, pando_scan(session_, tree_, &range, &list));
    std::string keys;
    for (const auto& [key, value] : TakeRows(list)) {
      EXPECT_EQ(value, "v" + key);
      keys += key + " ";
    }
    return keys;
  }
};

TEST_F(CCursorTest, ScansOfRanges) {
  pando_cursor_options range = PANDO_CURSOR_OPTIONS_INIT;
  EXPECT_EQ(Keys(range), "a b ba bb c ");
  range.from = B("b");
  EXPECT_EQ(Keys(range), "b ba bb c ");
  range.from_exclusive = 1;
  EXPECT_EQ(Keys(range), "ba bb c ");
  range.to = B("bb");
  EXPECT_EQ(Keys(range), "ba bb c ") << "has_to is not set";
  range.has_to = 1;
  EXPECT_EQ(Keys(range), "ba ");
  range.to_inclusive = 1;
  range.reverse = 1;
  EXPECT_EQ(Keys(range), "bb ba ");
  range = PANDO_CURSOR_OPTIONS_INIT;
  range.prefix = B("b");
  EXPECT_EQ(Keys(range), "b ba bb ");
  range.limit = 2;
  EXPECT_EQ(Keys(range), "b ba ");
  pando_list* list = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_scan(session_, tree_, nullptr, &list));
  EXPECT_EQ(TakeRows(list).size(), 5u);
}

TEST_F(CCursorTest, MovesBothWays) {
  pando_cursor_options range = PANDO_CURSOR_OPTIONS_INIT;
  pando_operation_cost cost = {};
  range.cost = &cost;
  pando_cursor* cursor = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_cursor(session_, tree_, &range, &cursor));
  EXPECT_EQ(cost.round_trips, 0u);
  pando_row row;
  std::string seen;
  while (pando_cursor_next(cursor, &row) == PANDO_OK) seen += S(row.key) + " ";
  EXPECT_EQ(seen, "a b ba bb c ");
  EXPECT_GT(cost.round_trips, 0u);
  ASSERT_GIVES(PANDO_OUT_OF_RANGE, pando_cursor_next(cursor, &row));
  ASSERT_GIVES(PANDO_OK, pando_cursor_prev(cursor, &row));
  EXPECT_EQ(S(row.key), "c");
  ASSERT_GIVES(PANDO_OK, pando_cursor_seek(cursor, B("b0"), &row));
  EXPECT_EQ(S(row.key), "ba");
  EXPECT_EQ(S(row.value), "vba");
  ASSERT_GIVES(PANDO_OK, pando_cursor_seek_to_first(cursor, &row));
  EXPECT_EQ(S(row.key), "a");
  ASSERT_GIVES(PANDO_OK, pando_cursor_seek_to_last(cursor, nullptr));
  // Other operations of the session go between its moves.
  EXPECT_EQ(Get("b"), "vb");
  ASSERT_GIVES(PANDO_OK, pando_cursor_prev(cursor, &row));
  EXPECT_EQ(S(row.key), "bb");
  EXPECT_GIVES(PANDO_OK, pando_close_cursor(cursor));
  EXPECT_GIVES(PANDO_CLOSED, pando_cursor_next(cursor, &row));
}

TEST_F(CCursorTest, RowsThatNobodyElseCanTakeAway) {
  pando_cursor* cursor = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_open_cursor(session_, tree_, nullptr, &cursor));
  std::string seen;
  const auto add = [](void* context, const pando_row* row) {
    *static_cast<std::string*>(context) += S(row->key) + "=" + S(row->value) + " ";
  };
  const auto take = [&](int64_t move, const char* key = "") {
    return pando_cursor_take(cursor, move, B(key), add, &seen);
  };
  EXPECT_GIVES(PANDO_OK, take(PANDO_MOVE_TO_LAST));
  EXPECT_GIVES(PANDO_OUT_OF_RANGE, take(PANDO_MOVE_NEXT));
  EXPECT_GIVES(PANDO_OK, take(PANDO_MOVE_SEEK, "b0"));
  EXPECT_GIVES(PANDO_OK, take(PANDO_MOVE_NEXT));
  EXPECT_GIVES(PANDO_OK, take(PANDO_MOVE_PREV));
  EXPECT_GIVES(PANDO_OK, take(PANDO_MOVE_TO_FIRST));
  EXPECT_EQ(seen, "c=vc ba=vba bb=vbb ba=vba a=va ");
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, take(-1));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, take(PANDO_MOVE_SEEK + 1));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_cursor_take(cursor, PANDO_MOVE_NEXT, B(""), nullptr, nullptr));

  // While it is shown, another thread can neither move the cursor nor end its session.
  struct Shown {
    pando_cursor* cursor;
    std::promise<void> shown;
    std::atomic<bool> goes_on{false};
    std::string key;
    pando_code inside = PANDO_OK;
  } shown{.cursor = cursor};
  pando_code taken = PANDO_INTERNAL;
  std::thread taker([&] {
    taken = pando_cursor_take(
        cursor, PANDO_MOVE_SEEK, B("bb"),
        [](void* context, const pando_row* row) {
          auto* const here = static_cast<Shown*>(context);
          here->inside = pando_cursor_next(here->cursor, nullptr);
          here->shown.set_value();
          here->goes_on.wait(false);
          here->key = S(row->key);
        },
        &shown);
  });
  shown.shown.get_future().get();
  EXPECT_GIVES(PANDO_FAILED_PRECONDITION, take(PANDO_MOVE_NEXT));
  std::atomic<bool> closed = false;
  std::thread closer([&] {
    EXPECT_GIVES(PANDO_OK, pando_close_session(session_));
    closed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(closed);
  shown.goes_on = true;
  shown.goes_on.notify_one();
  taker.join();
  closer.join();
  EXPECT_GIVES(PANDO_OK, taken);
  EXPECT_EQ(shown.key, "bb");
  EXPECT_EQ(shown.inside, PANDO_FAILED_PRECONDITION);
  EXPECT_GIVES(PANDO_CLOSED, take(PANDO_MOVE_NEXT));
}

TEST_F(CCursorTest, OptionsThatAreNoGood) {
  pando_cursor_options range = PANDO_CURSOR_OPTIONS_INIT;
  range.read_ahead = 257;
  pando_cursor* cursor = nullptr;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_open_cursor(session_, tree_, &range, &cursor));
  EXPECT_EQ(cursor, nullptr);
  pando_list* list = nullptr;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_scan(session_, tree_, &range, &list));
  range.read_ahead = 0;
  range.reverse = 2;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_scan(session_, tree_, &range, &list));
  range.reverse = 0;
  range.timeout_ms = -1;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_scan(session_, tree_, &range, &list));
}

}  // namespace
}  // namespace pando::c
