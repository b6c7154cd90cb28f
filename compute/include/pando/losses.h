// What an operator says of memory servers and redo logs that are lost, so that keys of owned trees
// are served again.
//
// What an owner had acknowledged and not yet brought to its leaves is in its log, and in its
// memory. Where both are lost, the keys stay Unavailable: nobody but an operator can know that the
// log does not come back, or wants to go on without it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "pando/client.h"
#include "pando/owners.h"

namespace pando {

struct AcceptLossOptions {
  // Memory servers that are switched off, or never come back as they were: nothing that anybody has
  // sent there can have an effect any more. FailedPrecondition where one of them answers.
  std::vector<uint16_t> servers_dead = {};
  int64_t timeout_ms = 10'000;
};

// Keys low <= key < high (high empty: to the end) that were taken over without their owner's log.
// Writes of theirs that the owner had acknowledged since they became its own, and had not brought
// to their leaves, are lost. How many these are is not known; none, perhaps.
struct LossInfo {
  std::string tree;
  std::string low, high;
  OwnerInfo owner;     // that had ended; no address
  uint64_t since = 0;  // the first message of its log that belonged to these keys
  std::string why;     // what is lost
};

// The client takes over all keys of trees that it has open whose owners have ended, and goes on
// without a log that is lost: on a memory server that is gone, or that was started again, or
// without anything that can be read. Logs that can be read are, as ever. Says of all that was taken
// over without a log, also where the status is an error. Unavailable, DeadlineExceeded: some keys
// could not be taken over yet. Blocks; not in a session's tasks. Thread-safe.
absl::Status AcceptLoss(Client& client, const AcceptLossOptions& options,
                        std::vector<LossInfo>* losses);

}  // namespace pando
