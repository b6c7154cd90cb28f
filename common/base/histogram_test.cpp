#include "common/base/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(HistogramTest, EmptyIsZero) {
  const Histogram h;
  EXPECT_EQ(h.count(), 0u);
  EXPECT_EQ(h.Mean(), 0);
  EXPECT_EQ(h.min(), 0);
  EXPECT_EQ(h.max(), 0);
  EXPECT_EQ(h.Percentile(50), 0);
  EXPECT_TRUE(h.Buckets().empty());
}

TEST(HistogramTest, SmallValuesAreExact) {
  Histogram h;
  for (int i = 1; i <= 200; ++i) h.Add(i);
  EXPECT_EQ(h.Percentile(0), 1);
  EXPECT_EQ(h.Percentile(50), 100);
  EXPECT_EQ(h.Percentile(99), 198);
  EXPECT_EQ(h.Percentile(100), 200);
  EXPECT_DOUBLE_EQ(h.Mean(), 100.5);
}

TEST(HistogramTest, ExtremesDoNotOverflow) {
  Histogram h;
  h.Add(-5);
  h.Add(0);
  h.Add(INT64_MAX);
  EXPECT_EQ(h.count(), 3u);
  EXPECT_EQ(h.min(), 0);
  EXPECT_EQ(h.max(), INT64_MAX);
  EXPECT_EQ(h.Percentile(100), INT64_MAX);
  EXPECT_EQ(h.Percentile(99.9), INT64_MAX);
}

// Each power of two starts a row of wider buckets: both sides of every border must stay within
// 1/128.
TEST(HistogramTest, EveryBorderIsWithinOnePart) {
  for (int bit = 0; bit < 63; ++bit) {
    for (int64_t delta : {-1, 0, 1}) {
      const int64_t value = (int64_t{1} << bit) + delta;
      Histogram h;
      h.Add(value);
      h.Add(INT64_MAX);  // so that max() does not hide the bucket
      const int64_t got = h.Percentile(50);
      EXPECT_GE(got, value);
      EXPECT_LE(static_cast<double>(got - value), static_cast<double>(value) / 128) << value;
    }
  }
}

TEST(HistogramTest, PercentilesFollowTheSortedValues) {
  Random random(1);
  std::vector<int64_t> values;
  Histogram h;
  for (int i = 0; i < 20'000; ++i) {
    const auto value = static_cast<int64_t>(std::exp(random.NextDouble() * 20));
    values.push_back(value);
    h.Add(value);
  }
  std::sort(values.begin(), values.end());
  for (double percent : {1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 99.99}) {
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * values.size()));
    const auto expected = static_cast<double>(values[rank - 1]);
    EXPECT_NEAR(static_cast<double>(h.Percentile(percent)), expected, expected / 128 + 0.5);
  }
}

TEST(HistogramTest, MergedEqualsRecordedTogether) {
  Random random(2);
  Histogram one, two, all;
  for (int i = 0; i < 5'000; ++i) {
    const auto value = static_cast<int64_t>(random.Uniform(1'000'000'000));
    (i % 3 == 0 ? one : two).Add(value);
    all.Add(value);
  }
  one.Merge(two);
  EXPECT_EQ(one.count(), all.count());
  EXPECT_DOUBLE_EQ(one.sum(), all.sum());
  EXPECT_EQ(one.min(), all.min());
  EXPECT_EQ(one.max(), all.max());
  for (double percent = 0; percent <= 100; percent += 0.5) {
    EXPECT_EQ(one.Percentile(percent), all.Percentile(percent));
  }
}

TEST(HistogramTest, MergingAnEmptyOneChangesNothing) {
  Histogram h;
  h.Add(7);
  h.Merge(Histogram());
  EXPECT_EQ(h.count(), 1u);
  EXPECT_EQ(h.min(), 7);
  EXPECT_EQ(h.max(), 7);
}

TEST(HistogramTest, BucketsGoThereAndBack) {
  Random random(3);
  Histogram h;
  for (int i = 0; i < 5'000; ++i)
    h.Add(static_cast<int64_t>(random.Next() >> random.Uniform(63)) / 2);
  const Histogram back = Histogram::FromBuckets(h.Buckets(), h.sum(), h.min(), h.max());
  EXPECT_EQ(back.count(), h.count());
  EXPECT_DOUBLE_EQ(back.Mean(), h.Mean());
  EXPECT_EQ(back.max(), h.max());
  for (double percent = 0; percent <= 100; percent += 0.5) {
    EXPECT_EQ(back.Percentile(percent), h.Percentile(percent));
  }
}

}  // namespace
}  // namespace pando
