#include "bench/workload/distribution.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace pando::bench {

// --- Zipfian. Each rank k owns the stretch [k - 1/2, k + 1/2] under the curve x^-theta; a point
// drawn under the curve is accepted when it also lies under the step function.

namespace {

// Up to here squarings are cheaper than pow(). YCSB's theta of 0.99 makes it 100.
constexpr double kWholeExponentMax = 1024;

unsigned WholeExponent(double exponent) {
  const double whole = std::round(exponent);
  const bool is_whole = whole <= kWholeExponentMax && std::abs(exponent - whole) < 1e-9 * whole;
  return is_whole ? static_cast<unsigned>(whole) : 0;
}

double Power(double base, unsigned exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) power *= base;
  }
  return power;
}

}  // namespace

ZipfianRank::ZipfianRank(uint64_t n, double theta)
    : n_(n), theta_(theta), whole_exponent_(WholeExponent(1 / (1 - theta))) {
  PANDO_CHECK(n > 0 && theta > 0 && theta < 1);
  integral_first_ = Integral(1.5) - 1;
  accept_ = 2 - InverseIntegral(Integral(2.5) - Density(2));
  Grow(n);
}

void ZipfianRank::Grow(uint64_t n) {
  if (n < n_) return;
  n_ = n;
  integral_last_ = Integral(static_cast<double>(n_) + 0.5);
}

double ZipfianRank::Density(double x) const { return std::pow(x, -theta_); }
double ZipfianRank::Integral(double x) const {
  return (std::pow(x, 1 - theta_) - 1) / (1 - theta_);
}
double ZipfianRank::InverseIntegral(double y) const {
  const double base = 1 + y * (1 - theta_);
  return whole_exponent_ > 0 ? Power(base, whole_exponent_) : std::pow(base, 1 / (1 - theta_));
}

uint64_t ZipfianRank::Next(Random* random) const {
  while (true) {
    const double u = integral_last_ + random->NextDouble() * (integral_first_ - integral_last_);
    const double x = InverseIntegral(u);
    const double k = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(n_));
    if (k - x <= accept_ || u >= Integral(k + 0.5) - Density(k)) {
      return static_cast<uint64_t>(k) - 1;
    }
  }
}

// --- Scrambling.

uint64_t MixBits(uint64_t value, int bits, uint64_t seed) {
  const uint64_t mask = bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
  const int shift = (bits + 1) / 2;
  // Adding, multiplying by an odd number and x ^= x >> s are bijections of the bits-bit integers.
  // (The constant: else 0 would stay 0.)
  value = (value + seed + 0x9e3779b97f4a7c15ull) & mask;
  for (const uint64_t odd : {0xbf58476d1ce4e5b9ull, 0x94d049bb133111ebull, 0xd6e8feb86659fd93ull}) {
    if (shift < 64) value ^= value >> shift;
    value = (value * odd) & mask;
  }
  if (shift < 64) value ^= value >> shift;
  return value & mask;
}

Scramble::Scramble(uint64_t n, uint64_t seed)
    : n_(n), seed_(seed), bits_(std::max(1, static_cast<int>(std::bit_width(n - 1)))) {
  PANDO_CHECK_GT(n, 0u);
}

uint64_t Scramble::operator()(uint64_t index) const {
  // Following the cycle until it comes back into [0, n) keeps the bijection; fewer than two steps
  // on average.
  do {
    index = MixBits(index, bits_, seed_);
  } while (index >= n_);
  return index;
}

// --- The distributions.

namespace {

class Uniform final : public Distribution {
 public:
  explicit Uniform(uint64_t n) : n_(n) {}
  uint64_t Next(Random* random) override { return random->Uniform(n_); }

 private:
  const uint64_t n_;
};

class Zipfian final : public Distribution {
 public:
  Zipfian(uint64_t n, double theta) : rank_(n, theta), scramble_(n) {}
  uint64_t Next(Random* random) override { return scramble_(rank_.Next(random)); }

 private:
  const ZipfianRank rank_;
  const Scramble scramble_;
};

class Latest final : public Distribution {
 public:
  Latest(uint64_t n, double theta) : rank_(n, theta) {}
  uint64_t Next(Random* random) override { return rank_.n() - 1 - rank_.Next(random); }
  void Grow(uint64_t n) override { rank_.Grow(n); }

 private:
  ZipfianRank rank_;
};

class Hotspot final : public Distribution {
 public:
  Hotspot(uint64_t n, double items, double operations)
      : n_(n),
        hot_(std::clamp<uint64_t>(static_cast<uint64_t>(std::llround(items * n)), 1, n)),
        operations_(operations),
        scramble_(n) {}
  uint64_t Next(Random* random) override {
    const bool hot = hot_ == n_ || random->Chance(operations_);
    return scramble_(hot ? random->Uniform(hot_) : hot_ + random->Uniform(n_ - hot_));
  }

 private:
  const uint64_t n_;
  const uint64_t hot_;
  const double operations_;
  const Scramble scramble_;
};

class Sequential final : public Distribution {
 public:
  explicit Sequential(uint64_t n) : n_(n) {}
  uint64_t Next(Random* random) override {
    if (!next_.has_value()) next_ = random->Uniform(n_);
    return std::exchange(*next_, (*next_ + 1) % n_);
  }

 private:
  const uint64_t n_;
  std::optional<uint64_t> next_;
};

// How far from the newest record, as YCSB has it: what falls beyond the oldest is drawn again.
class Exponential final : public Distribution {
 public:
  Exponential(uint64_t n, double operations, double items)
      : n_(n), rate_(-std::log(1 - operations) / (static_cast<double>(n) * items)) {}
  uint64_t Next(Random* random) override {
    while (true) {
      const double back = -std::log(1 - random->NextDouble()) / rate_;
      if (back < static_cast<double>(n_)) return n_ - 1 - static_cast<uint64_t>(back);
    }
  }
  void Grow(uint64_t n) override { n_ = n; }

 private:
  uint64_t n_;
  const double rate_;
};

constexpr const char* kNames[] = {"uniform", "zipfian",    "latest",
                                  "hotspot", "sequential", "exponential"};

}  // namespace

absl::Status Distribution::Validate(const DistributionOptions& options) {
  const std::string& name = options.name;
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown distribution '", name, "': use ", absl::StrJoin(kNames, ", ")));
  }
  if (name == "exponential" &&
      !(options.exponential_operations > 0 && options.exponential_operations < 1 &&
        options.exponential_items > 0 && options.exponential_items <= 1)) {
    return absl::InvalidArgumentError(
        "an exponential distribution needs a share of the operations in (0, 1), and of the records "
        "in (0, 1]");
  }
  if ((name == "zipfian" || name == "latest") && !(options.theta > 0 && options.theta < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("theta is ", options.theta, "; it must lie between 0 and 1, both excluded"));
  }
  if (name == "hotspot" && !(options.hotspot_items > 0 && options.hotspot_items <= 1 &&
                             options.hotspot_operations >= 0 && options.hotspot_operations <= 1)) {
    return absl::InvalidArgumentError(
        "a hotspot needs a share of the items in (0, 1] and of the operations in [0, 1]");
  }
  return absl::OkStatus();
}

std::unique_ptr<Distribution> Distribution::Create(const DistributionOptions& options,
                                                   uint64_t item_count) {
  PANDO_CHECK_OK(Validate(options));
  PANDO_CHECK_GT(item_count, 0u);
  if (options.name == "zipfian") return std::make_unique<Zipfian>(item_count, options.theta);
  if (options.name == "latest") return std::make_unique<Latest>(item_count, options.theta);
  if (options.name == "hotspot") {
    return std::make_unique<Hotspot>(item_count, options.hotspot_items, options.hotspot_operations);
  }
  if (options.name == "sequential") return std::make_unique<Sequential>(item_count);
  if (options.name == "exponential") {
    return std::make_unique<Exponential>(item_count, options.exponential_operations,
                                         options.exponential_items);
  }
  return std::make_unique<Uniform>(item_count);
}

}  // namespace pando::bench
