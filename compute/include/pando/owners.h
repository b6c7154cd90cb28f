// Which compute servers own which ranges of owned trees. For services that send a request to the
// owner of its key, and for operators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pando {

// A compute server as an owner of keys.
struct OwnerInfo {
  uint16_t compute_server = 0;  // another client may get this number later
  uint32_t incarnation = 0;  // never issued twice; 0: no owner, the first client that asks gets it
  // Where its service answers (ClientOptions::service_address, or the fabric's choice). Empty:
  // there is no owner, the address is not known, or the fabric has no links between compute
  // servers.
  std::string address;

  bool nobody() const { return incarnation == 0; }
};

// Keys low <= key < high; high empty: to the end.
struct RangeInfo {
  std::string low, high;
  OwnerInfo owner;
  uint64_t since = 0;  // the first message of its owner's log that may belong to it; 0: no owner
  // True: the owner has answered. Then: operations on the range's keys a second, of all kinds, and
  // records that are not in their leaves yet (bytes: keys and values).
  bool is_known = false;
  uint64_t operations_per_s = 0;
  uint64_t dirty_records = 0, dirty_bytes = 0;
};

// A compute server with a redo log.
struct MemberInfo {
  OwnerInfo identity;
  bool ended = false;       // it died, or left without giving up its ranges
  bool recovering = false;  // another member brings its log to the leaves
  uint64_t ranges = 0;      // ranges that it owns, in all trees
  uint16_t log_server = 0;  // the memory server that has its log; 0: it has no log (any more)
  uint64_t log_bytes = 0;
};

}  // namespace pando
