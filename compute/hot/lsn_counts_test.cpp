#include "compute/hot/lsn_counts.h"

#include <gtest/gtest.h>

#include <iterator>
#include <set>

#include "common/base/random.h"

namespace pando {
namespace {

TEST(LsnCountsTest, TheLowestIsABoundThatFollows) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    LsnCounts counts;
    std::set<Lsn> known;
    Lsn last = 0, lowest = 0;
    const uint64_t known_max = 1 + random.Uniform(2000), steps = 1 + random.Uniform(30);
    for (int i = 0; i < 20'000; ++i) {
      if (known.size() < known_max && random.Chance(0.6)) {
        counts.Add(last += 1 + random.Uniform(steps));
        known.insert(last);
      } else if (!known.empty()) {
        // Mostly old ones, as flushes do.
        auto which = known.begin();
        if (random.Chance(0.5)) std::advance(which, random.Uniform(known.size()));
        counts.Remove(*which);
        known.erase(which);
      }
      ASSERT_EQ(counts.count(), known.size());
      if (known.empty()) {
        ASSERT_EQ(counts.lowest(), kNoLsn);
        lowest = 0;
        continue;
      }
      ASSERT_GE(counts.lowest(), lowest) << "a base would go back";
      lowest = counts.lowest();
      ASSERT_LE(lowest, *known.begin());
      // Not far below: some of the hundred segments.
      ASSERT_LE(*known.begin() - lowest, 64 + (last - lowest) / 16);
    }
  }
}

TEST(LsnCountsTest, WhatComesAfterADivisionIsToldFromWhatWasBefore) {
  LsnCounts counts;
  counts.Divide(1);  // of nothing
  for (Lsn lsn = 1; lsn <= 10; ++lsn) counts.Add(lsn);
  counts.Divide(11);
  counts.Divide(11);
  for (Lsn lsn = 11; lsn <= 20; ++lsn) counts.Add(lsn);
  for (Lsn lsn = 10; lsn >= 1; --lsn) {
    EXPECT_EQ(counts.lowest(), 1u);
    counts.Remove(lsn);
  }
  EXPECT_EQ(counts.lowest(), 11u);
  counts.Divide(21);
  for (Lsn lsn = 11; lsn <= 20; ++lsn) counts.Remove(lsn);
  EXPECT_EQ(counts.lowest(), kNoLsn);
  counts.Add(25);
  EXPECT_EQ(counts.lowest(), 25u);
}

}  // namespace
}  // namespace pando
