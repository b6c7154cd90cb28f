// Checks the history of an ordered key-value index.
//
//   * A scan by itself: sorted bytewise, no key twice, nothing before `from`, at most `limit` rows.
//   * A refused conditional write by itself: what was there is a reason to refuse it.
//   * Each row of a scan is a get in the scan's interval, and so is each known key between `from`
//     and the last row (or the end, with fewer than `limit` rows) that was not returned: it reads
//     "absent". A scan is not a snapshot. Known keys are those in the history, in its scans' rows
//     and in the two states.
//   * The final state counts as gets after everything that returned.
//   * Each key is linearizable on its own (key_checker.h), and so the history is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/history/history.h"
#include "bench/history/key_checker.h"

namespace pando::history {

struct CheckResult {
  Verdict verdict = Verdict::kCorrect;
  size_t operations = 0, unknown_operations = 0, keys = 0;
  // One paragraph each: the key, what cannot be explained, and the operations around it.
  std::vector<std::string> violations;
  size_t keys_violated = 0;
  std::vector<std::string> undecided;  // keys
};

// `initial`: the state before the first operation, nullptr: empty. `final`: the whole state after
// the last one, nullptr: not known. A key that is twice in `initial` counts with its last value;
// twice in `final` is a violation.
// `untold`: keys, and from when on nothing is known of them: no operation called then or later, nor
// the final state, says anything of the key.
using Untold = std::map<std::string, int64_t>;
CheckResult CheckHistory(const std::vector<Operation>& operations, const State* initial = nullptr,
                         const State* final = nullptr, const KeyLimits& limits = {},
                         const Untold& untold = {});

}  // namespace pando::history
