#include <algorithm>
#include <cstdint>
#include <vector>

#include "bench/history/key_checker.h"

namespace pando::history {

KeyVerdict EarliestCulprit(int32_t initial, const std::vector<KeyOperation>& operations,
                           const KeyVerdict& violation) {
  constexpr KeyLimits kLimits = {.configurations_max = 1'000'000};
  std::vector<size_t> returned;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (!operations[i].unknown) returned.push_back(i);
  }
  std::stable_sort(returned.begin(), returned.end(), [&](size_t a, size_t b) {
    return operations[a].return_ns < operations[b].return_ns;
  });
  // The history as it was known right after the `count`-th return.
  const auto is_violation = [&](size_t count) {
    const int64_t end_ns = operations[returned[count - 1]].return_ns;
    std::vector<KeyOperation> known;
    for (KeyOperation o : operations) {
      if (o.call_ns > end_ns) continue;
      o.unknown |= o.return_ns > end_ns;
      known.push_back(o);
    }
    return CheckKey(initial, known, kLimits).verdict == Verdict::kViolation;
  };
  if (returned.empty() || !is_violation(returned.size())) return violation;
  size_t good = 0, bad = returned.size();
  while (bad - good > 1) {
    const size_t middle = good + (bad - good) / 2;
    (is_violation(middle) ? bad : good) = middle;
  }
  KeyVerdict verdict = violation;
  verdict.culprit = returned[bad - 1];
  return verdict;
}

}  // namespace pando::history
