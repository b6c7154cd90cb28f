// Recoveries of ended members that failed: a memory server did not confirm in time that the member
// can do nothing any more (rule D2), the log could not be read (rule D3), or no range came forward
// to its leaves (rule D4). Whoever needs a key of such a member is told so from here for a
// while: its job would find the same again, with all that this takes, and jobs wait for one
// another.
//
// What was found counts for as long as finding it took, and for the pause between two looks at the
// cluster at most: others have their turns between two recoveries that fail, and what can be had
// again is not denied for long. It counts no more once memory servers have come, or a recovery was
// begun anew.
//
// Not thread-safe: at its member's turnstile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "compute/owner/cluster_entries.h"

namespace pando {

class FailedRecoveries {
 public:
  static constexpr int64_t kKeptNsMax = kSecondNs;

  // Found between the two times; `generation`: of the memory servers that were known at the first
  // one.
  void Note(MemberId ended, absl::Status why, int64_t began_ns, int64_t now_ns,
            uint64_t generation) {
    std::erase_if(recoveries_, [&](const auto& one) { return now_ns >= one.second.until_ns; });
    const int64_t kept_ns = std::min(now_ns - began_ns, kKeptNsMax);
    recoveries_[ended] = {std::move(why), now_ns + kept_ns, generation};
  }
  void Forget(MemberId ended) { recoveries_.erase(ended); }
  // OK: nothing is known of it, or not any more.
  absl::Status Find(MemberId ended, int64_t now_ns, uint64_t generation) const {
    const auto found = recoveries_.find(ended);
    if (found == recoveries_.end()) return absl::OkStatus();
    const Failed& failed = found->second;
    const bool counts = now_ns < failed.until_ns && generation == failed.generation;
    return counts ? failed.why : absl::OkStatus();
  }

 private:
  struct Failed {
    absl::Status why;
    int64_t until_ns = 0;
    uint64_t generation = 0;
  };

  std::map<MemberId, Failed> recoveries_;
};

}  // namespace pando
