// Log-linear histogram of non-negative integers (latencies in ns, round trips): exact below 256,
// within 1/128 above, any int64. Histograms of threads and processes are merged; percentiles are
// never averaged. Not thread-safe. A few KiB, growing with the largest value seen.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pando {

class Histogram {
 public:
  // One bucket, for sending a histogram elsewhere: `value` is its smallest value.
  struct Bucket {
    int64_t value = 0;
    uint64_t count = 0;
  };

  // Negative values count as 0.
  void Add(int64_t value) { AddCount(value, 1); }
  void AddCount(int64_t value, uint64_t count) {
    if (count == 0) return;
    value = std::max<int64_t>(value, 0);
    const size_t index = IndexOf(static_cast<uint64_t>(value));
    if (index >= counts_.size()) [[unlikely]]
      counts_.resize(index + 1);
    counts_[index] += count;
    count_ += count;
    sum_ += static_cast<double>(value) * static_cast<double>(count);
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
  }
  void Merge(const Histogram& other);
  void Clear() { *this = Histogram(); }

  uint64_t count() const { return count_; }
  double sum() const { return sum_; }
  int64_t min() const { return count_ == 0 ? 0 : min_; }
  int64_t max() const { return max_; }
  double Mean() const { return count_ == 0 ? 0.0 : sum_ / static_cast<double>(count_); }
  // The value that `percent` of the recorded values do not exceed, at the upper end of its bucket
  // and never above max(). 0 for an empty histogram. Percentile(0) is min(), Percentile(100) is
  // max().
  int64_t Percentile(double percent) const;

  // Everything recorded, ascending, without empty buckets; and back. Sum, min and max travel beside
  // the buckets because they are exact. Buckets that make no sense are ignored.
  std::vector<Bucket> Buckets() const;
  static Histogram FromBuckets(const std::vector<Bucket>& buckets, double sum, int64_t min,
                               int64_t max);

 private:
  static constexpr int kSubBucketBits = 8;  // values below 2^8 have a bucket each
  static constexpr size_t kHalf = size_t{1} << (kSubBucketBits - 1);

  // A value of kSubBucketBits + e bits loses its e low bits; what is left has its top bit set, so
  // each e takes kHalf further buckets.
  static size_t IndexOf(uint64_t value) {
    const int extra_bits = std::max(0, static_cast<int>(std::bit_width(value)) - kSubBucketBits);
    return static_cast<size_t>(extra_bits) * kHalf + static_cast<size_t>(value >> extra_bits);
  }
  static int64_t LowestOf(size_t index);
  static int64_t HighestOf(size_t index);

  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  double sum_ = 0;
  int64_t min_ = INT64_MAX;
  int64_t max_ = 0;
};

}  // namespace pando
