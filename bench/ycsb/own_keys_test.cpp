#include "bench/ycsb/own_keys.h"

#include <gtest/gtest.h>

namespace pando::bench {
namespace {

RangeInfo RangeOf(std::string low, std::string high, uint16_t owner) {
  return {.low = std::move(low),
          .high = std::move(high),
          .owner = {.compute_server = owner, .incarnation = owner == 0 ? 0u : 7u}};
}

TEST(OwnKeysTest, HasWhatLiesInItsRanges) {
  OwnKeys keys;
  OwnKeysView view(&keys);
  EXPECT_TRUE(view.empty());
  EXPECT_FALSE(view.Has("a"));
  keys.Learn({RangeOf("", "c", 2), RangeOf("c", "f", 1), RangeOf("f", "m", 0), RangeOf("m", "", 2)},
             2);
  EXPECT_FALSE(view.empty());
  for (const char* const key : {"", "a", "bzz", "m", "z"}) EXPECT_TRUE(view.Has(key)) << key;
  for (const char* const key : {"c", "d", "f", "g", "lzz"}) EXPECT_FALSE(view.Has(key)) << key;
}

TEST(OwnKeysTest, WhatIsLearntCountsAtOnce) {
  OwnKeys keys;
  OwnKeysView first(&keys), second(&keys);
  keys.Learn({RangeOf("", "", 1)}, 1);
  EXPECT_TRUE(first.Has("k"));
  keys.Learn({RangeOf("", "", 2)}, 1);
  EXPECT_FALSE(first.Has("k"));
  EXPECT_FALSE(second.Has("k"));
  EXPECT_TRUE(second.empty());
}

// Nobody's ranges are nobody's, whatever number stands there.
TEST(OwnKeysTest, WhatHasNoOwnerIsNotItsOwn) {
  OwnKeys keys;
  OwnKeysView view(&keys);
  keys.Learn({RangeOf("", "", 0)}, 0);
  EXPECT_TRUE(view.empty());
}

}  // namespace
}  // namespace pando::bench
