// What a client's options say of it as a member, and how long its jobs may take.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pando {

struct MemberOptions {
  // Records kept in memory, bytes of all owned trees.
  size_t hot_bytes = 64 << 20;
  // Of these, of records that are dirty; beyond it writers wait (rule B2).
  size_t dirty_bytes_max = 32 << 20;
  // The redo log's ring, bytes.
  uint64_t log_bytes = 64 << 20;
  // Of records READ while there is no room: the share that is kept all the same (rule T3).
  double promote = 0.25;
  // It gives ranges to others where it has more to do than they have (rule O13).
  bool spread_ranges = true;
  // It divides its ranges of a tree until it has so many (rule O13).
  size_t ranges_min = 1;
  // A range that was not written for so long may be lent (rule O15); below 0: never.
  int64_t lend_after_ns = -1;
};

struct MemberLimits {
  // Of jobs, and of what they do.
  static constexpr int64_t kJobNsMin = kSecondNs, kJobNsMax = 10 * kSecondNs;
  static constexpr int64_t kRecoveryNsMax = 60 * kSecondNs, kFlushNsMax = 10 * kSecondNs;
  // What a dirty record costs in memory beside its key and value (compute/hot).
  static constexpr size_t kDirtyOverheadBytes = 24;
  // What a range has at least of the time in which all are to be given up.
  static constexpr int64_t kShareNsMin = 50 * kMillisecondNs;
  // What a range has at least of a second in which others wait for all that are recovered.
  static constexpr int64_t kTurnNsMin = 10 * kMillisecondNs;
  // Between two attempts of what may go well the next time.
  static constexpr int64_t kRetryNsMax = 100 * kMillisecondNs;
};

}  // namespace pando
