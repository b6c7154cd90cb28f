// Loading, checking and measuring trees through the C interface.
#include <cstddef>
#include <stdexcept>
#include <string>

#include "compute/c/c_test_util.h"

namespace pando::c {
namespace {

class CUpkeepTest : public CTest {};

// Gives ascending keys, and at one of them something else.
struct Loader {
  int rows = 3000;
  int at = -1;
  int instead = 0;  // what is returned there; 2: it throws, 3: a key that cannot be
  int next = 0;
  std::string key;
};
int NextRow(void* context, pando_row* row) {
  auto& loader = *static_cast<Loader*>(context);
  if (loader.next == loader.at && loader.instead == 2) throw std::runtime_error("thrown");
  if (loader.next == loader.at && loader.instead == 3) {
    row->key = pando_view("k", SIZE_MAX);
    return 1;
  }
  if (loader.next == loader.at) return loader.instead;
  if (loader.next == loader.rows) return 0;
  loader.key = NumberedKey(static_cast<uint64_t>(loader.next++));
  row->key = B(loader.key);
  row->value = B("v");
  return 1;
}

TEST_F(CUpkeepTest, LoadsAndSizes) {
  Loader loader;
  ASSERT_GIVES(PANDO_OK, pando_bulk_load(session_, tree_, NextRow, &loader));
  EXPECT_EQ(Get(NumberedKey(1234)), "v");
  Loader again;
  EXPECT_GIVES(PANDO_FAILED_PRECONDITION, pando_bulk_load(session_, tree_, NextRow, &again));

  pando_size_estimate estimate = {};
  estimate.size = sizeof(estimate);
  ASSERT_GIVES(PANDO_OK, pando_estimate_size(session_, tree_, 0, nullptr, &estimate));
  EXPECT_NEAR(static_cast<double>(estimate.keys), 3000, 600);
  EXPECT_LT(estimate.relative_error, 0.2);
  EXPECT_GT(estimate.leaves, 1u);
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_estimate_size(session_, tree_, -5, nullptr, &estimate));
  estimate.size = 3;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_estimate_size(session_, tree_, 0, nullptr, &estimate));

  pando_check_options options = PANDO_CHECK_OPTIONS_INIT;
  options.quiet_tree = 1;
  pando_check_report report = {};
  report.size = sizeof(report);
  pando_list* problems = nullptr;
  ASSERT_GIVES(PANDO_OK, pando_check(session_, tree_, &options, &report, &problems));
  EXPECT_EQ(report.problems, 0u);
  EXPECT_EQ(report.keys, 3000u);
  EXPECT_GT(report.levels, 1u);
  EXPECT_GT(report.leaves, 1u);
  EXPECT_EQ(SizeOf(problems), 0u);
  const char* text = nullptr;
  EXPECT_GIVES(PANDO_OUT_OF_RANGE, pando_list_text(problems, 0, &text));
  EXPECT_GIVES(PANDO_OK, pando_close_list(problems));
  options.problems_max = 0;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_check(session_, tree_, &options, &report, nullptr))
      << "it would look at nothing";

  pando_sweep_result swept = {};
  swept.size = sizeof(swept);
  EXPECT_GIVES(PANDO_OK, pando_sweep(session_, tree_, nullptr, &swept));
  EXPECT_EQ(swept.left, 0u);
}

// Counts, and ends the call at the one that is said.
struct Watcher {
  int at = -1;
  int calls = 0;
  uint64_t erased = 0;
};
int Watch(void* context, const pando_range_erased* so_far) {
  auto& watcher = *static_cast<Watcher*>(context);
  EXPECT_GE(so_far->erased, watcher.erased);
  watcher.erased = so_far->erased;
  EXPECT_FALSE(so_far->next.size == 0 && so_far->erased > 0);
  return watcher.calls++ == watcher.at ? 1 : 0;
}

TEST_F(CUpkeepTest, ErasesRanges) {
  Loader loader;
  ASSERT_GIVES(PANDO_OK, pando_bulk_load(session_, tree_, NextRow, &loader));
  const std::string from = NumberedKey(1000), to = NumberedKey(2000);
  const pando_bytes end = B(to);
  Watcher watcher;
  watcher.at = 0;
  pando_range_erased erased = {};
  erased.size = sizeof(erased);
  EXPECT_GIVES(PANDO_CANCELLED, pando_erase_range(session_, tree_, B(from), &end, Watch, &watcher,
                                                  nullptr, &erased));
  EXPECT_EQ(watcher.calls, 1);
  EXPECT_EQ(erased.done, 0);
  EXPECT_GT(erased.erased, 0u);
  EXPECT_LT(erased.erased, 1000u);
  const std::string next = S(erased.next);
  EXPECT_EQ(next, NumberedKey(1000 + erased.erased));
  const uint64_t first = erased.erased;
  EXPECT_EQ(Get(next), "v");
  watcher = Watcher();
  ASSERT_GIVES(PANDO_OK, pando_erase_range(session_, tree_, B(next), &end, Watch, &watcher, nullptr,
                                           &erased));
  EXPECT_GT(watcher.calls, 0);
  EXPECT_EQ(erased.done, 1);
  EXPECT_EQ(erased.erased + first, 1000u);
  EXPECT_EQ(Get(NumberedKey(999)), "v");
  EXPECT_EQ(Get(NumberedKey(1000)), "NOT_FOUND");
  EXPECT_EQ(Get(to), "v");
  // To the end, without anybody who looks.
  ASSERT_GIVES(PANDO_OK, pando_erase_range(session_, tree_, B(""), nullptr, nullptr, nullptr,
                                           nullptr, nullptr));
  EXPECT_EQ(Get(to), "NOT_FOUND");

  EXPECT_GIVES(PANDO_INVALID_ARGUMENT,
               pando_erase_range(session_, tree_, pando_view(nullptr, 3), nullptr, nullptr, nullptr,
                                 nullptr, nullptr));
  const pando_bytes bad = pando_view(nullptr, 3);
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_erase_range(session_, tree_, B("a"), &bad, nullptr,
                                                         nullptr, nullptr, nullptr));
  erased.size = 4;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_erase_range(session_, tree_, B("a"), nullptr, nullptr,
                                                         nullptr, nullptr, &erased));
  // Where nothing is done the result says so.
  erased = {.size = sizeof(erased), .erased = 7, .done = 1, .next = B("z")};
  ASSERT_GIVES(PANDO_OK, pando_close_session(session_));
  EXPECT_GIVES(PANDO_CLOSED, pando_erase_range(session_, tree_, B("a"), nullptr, nullptr, nullptr,
                                               nullptr, &erased));
  EXPECT_EQ(erased.erased, 0u);
  EXPECT_EQ(erased.done, 0);
  EXPECT_EQ(S(erased.next), "a");
}

TEST_F(CUpkeepTest, AnOwnerLeavesAndHowLongErasesMayTake) {
  pando_tree_options options = PANDO_TREE_OPTIONS_INIT;
  options.mode = PANDO_MODE_OWNED;
  options.delete_persistence_ms = 9;
  pando_tree* tree = nullptr;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_create_tree(client_, "owned", &options, &tree));
  options.delete_persistence_ms = 5'000;
  ASSERT_GIVES(PANDO_OK, pando_create_tree(client_, "owned", &options, &tree));
  pando_tree_info info = {};
  info.size = sizeof(info);
  ASSERT_GIVES(PANDO_OK, pando_get_tree_info(tree, &info));
  EXPECT_EQ(info.delete_persistence_ms, 5'000u);
  // A program that was built before there were such: nothing is written behind what it has.
  pando_tree_info old = {};
  old.size = offsetof(pando_tree_info, delete_persistence_ms);
  old.delete_persistence_ms = 77;
  ASSERT_GIVES(PANDO_OK, pando_get_tree_info(tree, &old));
  EXPECT_EQ(old.mode, PANDO_MODE_OWNED);
  EXPECT_EQ(old.delete_persistence_ms, 77u);

  ASSERT_GIVES(PANDO_OK, pando_put(session_, tree, B("k"), B("v"), nullptr));
  pando_client_stats stats = {};
  stats.size = sizeof(stats);
  ASSERT_GIVES(PANDO_OK, pando_get_client_stats(client_, &stats));
  EXPECT_EQ(stats.owned_ranges, 1u);
  EXPECT_EQ(stats.owned_given, 0u);
  EXPECT_GIVES(PANDO_OK, pando_leave(client_, 0));
  ASSERT_GIVES(PANDO_OK, pando_get_client_stats(client_, &stats));
  EXPECT_EQ(stats.owned_ranges, 0u);
  EXPECT_EQ(stats.owned_given, 1u);
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_leave(client_, -1));
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_leave(nullptr, 0));

  pando_client_options client = PANDO_CLIENT_OPTIONS_INIT;
  client.registry = cluster_.registry().c_str();
  client.spread_ranges = 2;
  pando_client* none = nullptr;
  EXPECT_GIVES(PANDO_INVALID_ARGUMENT, pando_connect(&client, &none));
}

TEST_F(CUpkeepTest, ALoadThatFailsLoadsNothing) {
  for (const int instead : {-1, 7, 2, 3}) {
    Loader loader;
    loader.at = 2500;
    loader.instead = instead;
    EXPECT_GIVES(instead == 3 ? PANDO_INVALID_ARGUMENT : PANDO_CANCELLED,
                 pando_bulk_load(session_, tree_, NextRow, &loader))
        << instead;
    EXPECT_EQ(std::string(pando_last_message()).find("threw") != std::string::npos, instead == 2)
        << pando_last_message();
    pando_list* list = nullptr;
    ASSERT_GIVES(PANDO_OK, pando_scan(session_, tree_, nullptr, &list));
    EXPECT_TRUE(TakeRows(list).empty()) << instead;
  }
}

}  // namespace
}  // namespace pando::c
