// When something is done to a run: so many times, spread over its operations at random.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/random.h"

namespace pando {

// Not thread-safe. Its random numbers are of a stream of its own.
class Occasions {
 public:
  Occasions(uint64_t seed, uint64_t stream, int count, uint64_t operations)
      : random_(DeriveSeed(seed, stream)) {
    for (int i = 0; i < count; ++i) at_.push_back(random_.Uniform(operations + 1));
    std::sort(at_.begin(), at_.end(), std::greater<>());
  }

  // True once for each occasion, when so many operations have begun.
  bool Take(size_t begun) {
    if (at_.empty() || begun < at_.back()) return false;
    at_.pop_back();
    return true;
  }
  Random& random() { return random_; }

 private:
  Random random_;
  std::vector<uint64_t> at_;  // the next one last
};

}  // namespace pando
