// Who has what of owned trees: for services that send a request to where its key is, and for
// whoever looks after a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pando {

// A compute server as an owner of keys.
struct OwnerInfo {
  uint16_t compute_server = 0;  // its number may be another's later
  uint32_t incarnation = 0;     // each is given out once; 0: nobody, whoever comes first gets it
  // Where its service is asked (ClientOptions::service_address, or what the fabric chose); empty:
  // nobody, it is not known, or the fabric has no links between compute servers.
  std::string address;

  bool nobody() const { return incarnation == 0; }
};

// Keys low <= key < high; high empty: to the end.
struct RangeInfo {
  std::string low, high;
  OwnerInfo owner;
  uint64_t since = 0;  // the first message of its owner's log that may be of it; 0: nobody's
  // The owner has answered, and says: how often its keys are used, all operations, and how many
  // records are in no leaf yet (keys and values, bytes).
  bool is_known = false;
  uint64_t operations_per_s = 0;
  uint64_t dirty_records = 0, dirty_bytes = 0;
};

// A compute server with a redo log.
struct MemberInfo {
  OwnerInfo identity;
  bool ended = false;       // it died, or left without giving up what it owned
  bool recovering = false;  // somebody brings what is in its log to the leaves
  uint64_t ranges = 0;      // that it owns, of all trees
  uint16_t log_server = 0;  // the memory server with its log; 0: it has none (any more)
  uint64_t log_bytes = 0;
};

}  // namespace pando
