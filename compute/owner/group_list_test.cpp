#include "compute/owner/group_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace pando {
namespace {

// Ranges and trees are only compared.
OwnRange* RangeNumber(uintptr_t n) { return reinterpret_cast<OwnRange*>(64 * n); }

DirtyGroup Group(uintptr_t range, const char* from, size_t records) {
  return {.tree = nullptr, .range = RangeNumber(range), .from = from, .to = "", .records = records};
}

TEST(GroupList, TheLastOneFirstAndEachOnce) {
  GroupList list;
  EXPECT_TRUE(list.empty());
  EXPECT_FALSE(list.Take(nullptr, SIZE_MAX).has_value());
  list.Fill({Group(1, "a", 1), Group(1, "b", 2), Group(2, "c", 3)});
  EXPECT_EQ(list.Take(nullptr, 0)->from, "c");
  EXPECT_EQ(list.Take(nullptr, 0)->from, "b");
  EXPECT_EQ(list.Take(nullptr, 0)->from, "a");
  EXPECT_TRUE(list.empty());
}

TEST(GroupList, MoreOfTheSameRangeWhereTheyFit) {
  GroupList list;
  list.Fill({Group(1, "a", 8), Group(2, "b", 4), Group(2, "c", 5)});
  DirtyGroup taken = *list.Take(nullptr, 0);
  EXPECT_FALSE(list.Take(RangeNumber(1), 100).has_value()) << "the next one is of another range";
  EXPECT_FALSE(list.Take(taken.range, 3).has_value()) << "it has more";
  EXPECT_EQ(list.Take(taken.range, 4)->from, "b");
  EXPECT_FALSE(list.Take(taken.range, 100).has_value());
}

TEST(GroupList, WhatIsPutBackComesNextAndNothingOnceItIsClosed) {
  GroupList list;
  list.Fill({Group(1, "a", 8), Group(1, "b", 9)});
  DirtyGroup taken = *list.Take(nullptr, 0);
  taken.from = "bb";
  list.PutBack(std::move(taken));
  EXPECT_EQ(list.Take(nullptr, 0)->from, "bb");
  list.Close();
  EXPECT_FALSE(list.empty());
  EXPECT_FALSE(list.Take(nullptr, SIZE_MAX).has_value());
}

}  // namespace
}  // namespace pando
