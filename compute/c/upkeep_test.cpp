// Loading, checking and measuring trees through the C interface.
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
  int instead = 0;  // what is returned there; 2: it throws
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

  pando_sweep_result swept = {};
  swept.size = sizeof(swept);
  EXPECT_GIVES(PANDO_OK, pando_sweep(session_, tree_, nullptr, &swept));
  EXPECT_EQ(swept.left, 0u);
}

TEST_F(CUpkeepTest, ALoadThatFailsLoadsNothing) {
  for (const int instead : {-1, 7, 2, 3}) {
    Loader loader;
    loader.at = 2500;
    loader.instead = instead;
    EXPECT_GIVES(PANDO_CANCELLED, pando_bulk_load(session_, tree_, NextRow, &loader)) << instead;
    pando_list* list = nullptr;
    ASSERT_GIVES(PANDO_OK, pando_scan(session_, tree_, nullptr, &list));
    EXPECT_TRUE(TakeRows(list).empty()) << instead;
  }
}

}  // namespace
}  // namespace pando::c
