// How often the keys of a range are used, and where among them: what spreading decides by (rule
// O13).
//
// Not thread-safe: the mutex of the range's partition. Invariants:
//   1. Note() allocates nothing.
//   2. Samples are keys that were used, at most kSamples, the newest ones; a border that is chosen
//      is one of them, above `low`: so it divides the range, whatever bytes keys have.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace pando {

class RangeMeter {
 public:
  static constexpr size_t kSamples = 64;
  // With fewer keys the middle of the range is not known.
  static constexpr size_t kSamplesMin = 8;

  // An operation on the key, which has 240 bytes at most; or so many, of which this one is noted.
  void Note(std::string_view key, uint64_t operations = 1) {
    operations_ += operations;
    while (until_sample_ <= operations) [[unlikely]] {
        operations -= until_sample_;
        Sample(key);
      }
    until_sample_ -= operations;
  }
  // Every now and then: what was noted since the last call becomes part of the rate.
  void Tick(int64_t now_ns);
  double operations_per_s() const { return rate_; }
  // The range comes from a member that knew its load.
  void Expect(double operations_per_s) { rate_ = operations_per_s; }

  struct Border {
    std::string key;
    double below = 0;  // the share of operations that are below it: 0 < below < 1
  };
  // Where nearest to this share of the operations is on one of the sides. Nothing: there are too
  // few samples, or all are of one key.
  std::optional<Border> ChooseBorder(std::string_view low, double share) const;
  // What is known of the range goes to the ones that it is divided into, which are new.
  void DivideAt(const std::string& border, RangeMeter* lower, RangeMeter* upper) const;

  void Clear() { *this = RangeMeter(); }

 private:
  struct Sampled {
    uint8_t bytes = 0;
    std::array<char, 240> key;
    std::string_view view() const { return {key.data(), bytes}; }
  };
  struct Samples {
    std::array<Sampled, kSamples> keys;
    size_t count = 0, next = 0;
  };
  static constexpr uint64_t kNever = UINT64_MAX;

  void Sample(std::string_view key);
  void Add(std::string_view key);

  uint64_t operations_ = 0;         // since the last Tick()
  uint64_t until_sample_ = kNever;  // operations
  uint64_t sample_every_ = 1;       // on average: what is used in turns is not met in step
  uint64_t dice_ = 0;
  int64_t last_tick_ns_ = 0;
  double rate_ = 0;
  std::unique_ptr<Samples> samples_;  // of a range that is used
};

}  // namespace pando
