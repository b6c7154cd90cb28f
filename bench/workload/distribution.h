// Which record an operation asks for: the request distributions of YCSB, without its
// approximations.
//
// Choosers return an index in [0, item_count). Not thread-safe: one a thread, each with its own
// Random.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/random.h"

namespace pando::bench {

// Ranks 1..n with probability proportional to rank^-theta, exactly, for any n and any theta in (0,
// 1): rejection-inversion (Hormann and Derflinger, 1996). No table, so n may grow.
class ZipfianRank {
 public:
  ZipfianRank(uint64_t n, double theta);
  // Starts at 0: the most popular rank.
  uint64_t Next(Random* random) const;
  void Grow(uint64_t n);
  uint64_t n() const { return n_; }

 private:
  double Integral(double x) const;
  double InverseIntegral(double y) const;
  double Density(double x) const;

  uint64_t n_;
  double theta_;
  unsigned whole_exponent_;  // 1 / (1 - theta) where that is a whole number, else 0
  double integral_first_;
  double integral_last_;
  double accept_;
};

// A bijection of [0, n): spreads popular ranks over the key space and loses none to collisions.
class Scramble {
 public:
  explicit Scramble(uint64_t n, uint64_t seed = 0);
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t n_;
  uint64_t seed_;
  int bits_;
};

// A bijection of the `bits`-bit integers, 1..64. What Scramble and random integer keys are made of.
uint64_t MixBits(uint64_t value, int bits, uint64_t seed);

struct DistributionOptions {
  // uniform, zipfian, latest, hotspot, sequential (from a place of its own on, round), exponential
  std::string name = "uniform";
  double theta = 0.99;              // zipfian, latest: in (0, 1)
  double hotspot_items = 0.2;       // share of the items that is hot, in (0, 1]
  double hotspot_operations = 0.8;  // share of the operations that go there, in [0, 1]
  // exponential: this share of the operations, in (0, 1), asks for this share of the records, in
  // (0, 1], at the end of their order.
  double exponential_operations = 0.95, exponential_items = 0.8571428571;
};

class Distribution {
 public:
  // InvalidArgument says what is wrong.
  static absl::Status Validate(const DistributionOptions& options);
  // item_count > 0. Options must be valid.
  static std::unique_ptr<Distribution> Create(const DistributionOptions& options,
                                              uint64_t item_count);
  virtual ~Distribution() = default;

  virtual uint64_t Next(Random* random) = 0;
  // Inserts have made the key space larger. Only "latest" follows; the others ask for the records
  // of the load phase.
  virtual void Grow(uint64_t /*item_count*/) {}
};

}  // namespace pando::bench
