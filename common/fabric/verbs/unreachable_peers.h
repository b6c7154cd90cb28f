// Peers whose queue pairs could not be connected a moment ago. On RoCE the kernel looks for a
// peer's hardware address for up to a second, on a thread of which there are few
// (queue_pair_opener.h): the same peer is asked for again only after a growing pause.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace pando {

class UnreachablePeers {
 public:
  using Gid = std::array<uint8_t, 16>;
  static constexpr int64_t kPauseFirstNs = 100'000'000;
  static constexpr int64_t kPauseLastNs = 1'000'000'000;
  static constexpr size_t kPeersMax = 4096;  // more are forgotten

  // Unavailable: not now.
  absl::Status Check(const Gid& gid, int64_t now_ns) const;
  // What came of an attempt.
  void Note(const Gid& gid, bool connected, int64_t now_ns);
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    int64_t until_ns = 0, pause_ns = 0;
  };
  absl::flat_hash_map<Gid, Entry> entries_;
};

}  // namespace pando
