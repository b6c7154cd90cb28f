// What an operator has said of logs that are lost (rule D6), and what was taken over without one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/wire/lsn.h"
#include "common/wire/remote_address.h"
#include "compute/owner/cluster_entries.h"

namespace pando {

struct Loss {
  std::string tree;
  std::string low, high;
  MemberId owner;
  Lsn since = kNoLsn;
  std::string why;
};

struct LossAcceptance {
  std::vector<ServerId> servers_dead;
  std::vector<Loss> losses;
  // Of the time that is left: what a memory server has of it that does not confirm the end of the
  // member whose turn it is.
  int64_t share_ns = kNeverNs;

  bool IsDead(ServerId server) const {
    return std::find(servers_dead.begin(), servers_dead.end(), server) != servers_dead.end();
  }
  // Before the range can change hands: it may do so although the change ends with an error. Again,
  // after such an end: it is noted once.
  void Note(const Loss& loss) {
    TakeBack(loss);
    losses.push_back(loss);
  }
  // It did not.
  void TakeBack(const Loss& loss) {
    std::erase_if(losses, [&](const Loss& other) {
      return other.tree == loss.tree && other.low == loss.low && other.owner == loss.owner;
    });
  }
};

}  // namespace pando
