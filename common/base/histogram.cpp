#include "common/base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pando {

int64_t Histogram::LowestOf(size_t index) {
  if (index < 2 * kHalf) return static_cast<int64_t>(index);
  const size_t extra_bits = index / kHalf - 1;
  return static_cast<int64_t>((index - extra_bits * kHalf) << extra_bits);
}

int64_t Histogram::HighestOf(size_t index) {
  if (index < 2 * kHalf) return static_cast<int64_t>(index);
  const size_t extra_bits = index / kHalf - 1;
  return LowestOf(index) + static_cast<int64_t>((uint64_t{1} << extra_bits) - 1);
}

void Histogram::Merge(const Histogram& other) {
  if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
  for (size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

int64_t Histogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  if (percent <= 0) return min_;
  if (percent >= 100) return max_;
  const double exact_rank = percent / 100 * static_cast<double>(count_);
  const auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(exact_rank - 1e-9)));
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::clamp(HighestOf(i), min_, max_);
  }
  return max_;
}

std::vector<Histogram::Bucket> Histogram::Buckets() const {
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] != 0) buckets.push_back({LowestOf(i), counts_[i]});
  }
  return buckets;
}

Histogram Histogram::FromBuckets(const std::vector<Bucket>& buckets, double sum, int64_t min,
                                 int64_t max) {
  Histogram histogram;
  for (const Bucket& bucket : buckets) {
    if (bucket.value >= 0) histogram.AddCount(bucket.value, bucket.count);
  }
  if (histogram.count_ == 0) return histogram;
  histogram.sum_ = sum;
  histogram.min_ = min;
  histogram.max_ = max;
  return histogram;
}

}  // namespace pando
