// Logs of ended members that a recovery could not read (rule D3). Whoever needs a key of such a
// member is told so from here for a while: its job would find the same again, with all that this
// takes, and jobs wait for one another.
//
// What was found counts for as long as finding it took, and for the pause between two looks at the
// cluster at most: others have their turns between two recoveries that fail, and a log that can be
// read again is not denied for long. It counts no more once memory servers have come, or a recovery
// was begun anew.
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

class UnreadLogs {
 public:
  static constexpr int64_t kKeptNsMax = kSecondNs;

  // Found between the two times; `generation`: of the memory servers that were known at the first
  // one.
  void Note(MemberId ended, absl::Status why, int64_t began_ns, int64_t now_ns,
            uint64_t generation) {
    std::erase_if(logs_, [&](const auto& log) { return now_ns >= log.second.until_ns; });
    const int64_t kept_ns = std::min(now_ns - began_ns, kKeptNsMax);
    logs_[ended] = {std::move(why), now_ns + kept_ns, generation};
  }
  void Forget(MemberId ended) { logs_.erase(ended); }
  // OK: nothing is known of it, or not any more.
  absl::Status Find(MemberId ended, int64_t now_ns, uint64_t generation) const {
    const auto log = logs_.find(ended);
    if (log == logs_.end()) return absl::OkStatus();
    const bool counts = now_ns < log->second.until_ns && generation == log->second.generation;
    return counts ? log->second.why : absl::OkStatus();
  }

 private:
  struct Unread {
    absl::Status why;
    int64_t until_ns = 0;
    uint64_t generation = 0;
  };

  std::map<MemberId, Unread> logs_;
};

}  // namespace pando
