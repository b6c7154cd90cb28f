#include "compute/index/key_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pando {
namespace {

constexpr uint32_t kBytesMax = 2;

// All strings of these bytes, up to so long, in order.
std::vector<std::string> Strings(size_t bytes_max) {
  static const std::string kBytes("\0\x01z\xff", 4);
  std::vector<std::string> all = {""};
  for (size_t from = 0, length = 1; length <= bytes_max; ++length) {
    const size_t end = all.size();
    for (; from < end; ++from) {
      for (const char byte : kBytes) all.push_back(all[from] + byte);
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<std::string> Keys() {
  std::vector<std::string> keys = Strings(kBytesMax);
  keys.erase(keys.begin());
  return keys;
}

bool Contains(const KeyRange& range, const std::string& key) {
  return !range.low.IsAbove(key) && range.high.IsAbove(key);
}

TEST(KeyRangeTest, BoundsOfAnyLengthMeanWhatTheySay) {
  const std::vector<std::string> keys = Keys();
  for (const std::string& from : Strings(3)) {
    for (const std::string& to : Strings(3)) {
      for (int kind = 0; kind < 8; ++kind) {
        CursorOptions options;
        options.from = from;
        options.from_exclusive = (kind & 1) != 0;
        options.to_inclusive = (kind & 2) != 0;
        if ((kind & 4) != 0) options.to = to;
        const KeyRange range = RangeOf(options, kBytesMax);
        for (const std::string& key : keys) {
          const bool behind = options.from_exclusive ? from < key : from <= key;
          const bool before =
              !options.to.has_value() || (options.to_inclusive ? key <= to : key < to);
          ASSERT_EQ(Contains(range, key), behind && before)
              << testing::PrintToString(from) << " to " << testing::PrintToString(to) << ", kind "
              << kind << ": " << testing::PrintToString(key);
        }
      }
    }
  }
}

TEST(KeyRangeTest, PrefixesOfAnyLength) {
  const std::vector<std::string> keys = Keys();
  for (const std::string& prefix : Strings(4)) {
    for (const std::string& from : Strings(2)) {
      const KeyRange range = RangeOf({.from = from, .prefix = prefix}, kBytesMax);
      for (const std::string& key : keys) {
        ASSERT_EQ(Contains(range, key), key.starts_with(prefix) && from <= key)
            << testing::PrintToString(prefix) << " from " << testing::PrintToString(from) << ": "
            << testing::PrintToString(key);
      }
    }
  }
}

TEST(KeyRangeTest, CutsFitTheTree) {
  for (const std::string& bound : Strings(4)) {
    for (const bool after : {false, true}) {
      EXPECT_LE(KeyCut::At(bound, after, kBytesMax).key.size(), kBytesMax);
    }
  }
  EXPECT_EQ(KeyCut::At("", true, kBytesMax), KeyCut::Lowest());
}

// No string of up to that length lies between.
TEST(KeyRangeTest, ACutGoesOnFromItsFirstStringAbove) {
  for (const std::string& bound : Strings(3)) {
    for (const bool after : {false, true}) {
      const KeyCut cut = KeyCut::At(bound, after, kBytesMax);
      for (const std::string& key : Keys()) {
        ASSERT_EQ(key >= cut.FirstAbove(), !cut.IsAbove(key))
            << testing::PrintToString(bound) << (after ? " after: " : ": ")
            << testing::PrintToString(key);
      }
    }
  }
}

TEST(KeyRangeTest, TheKeyBeforeIsTheNextSmaller) {
  const std::vector<std::string> strings = Strings(kBytesMax);
  for (size_t i = 1; i < strings.size(); ++i) {
    const std::string before = KeyBefore(strings[i], kBytesMax);
    EXPECT_LE(before.size(), kBytesMax);
    EXPECT_LT(before, strings[i]);
    EXPECT_GE(before, strings[i - 1]);
  }
  EXPECT_EQ(KeyBefore(std::string("a\0", 2), 8), "a");
  EXPECT_EQ(KeyBefore("b", 3), "a\xff\xff");
  EXPECT_EQ(KeyBefore("b\xff\xff", 3), "b\xff\xfe");
}

}  // namespace
}  // namespace pando
