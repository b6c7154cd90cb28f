#include "common/fabric/verbs/unreachable_peers.h"

#include <algorithm>

namespace pando {

absl::Status UnreachablePeers::Check(const Gid& gid, int64_t now_ns) const {
  const auto found = entries_.find(gid);
  if (found == entries_.end()) return absl::OkStatus();
  if (now_ns >= found->second.until_ns) return absl::OkStatus();
  return absl::UnavailableError(
      "the memory server could not reach this client's RDMA address a moment ago");
}

void UnreachablePeers::Note(const Gid& gid, bool connected, int64_t now_ns) {
  if (connected) {
    entries_.erase(gid);
    return;
  }
  if (entries_.size() >= kPeersMax && !entries_.contains(gid)) entries_.clear();
  Entry& entry = entries_[gid];
  entry.pause_ns = entry.pause_ns == 0 ? kPauseFirstNs : std::min(2 * entry.pause_ns, kPauseLastNs);
  entry.until_ns = now_ns + entry.pause_ns;
}

}  // namespace pando
