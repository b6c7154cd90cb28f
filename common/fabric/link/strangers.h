// The connections of a memory server that have no identity yet: those that have not introduced
// themselves, and those that said hello and never joined. Anybody can make them, so they are
// bounded, all together and an origin (a peer's address, a process), each has its time, and a
// newcomer always gets in: the oldest goes instead.
//
// Not thread-safe. Invariants:
//   1. At most `max` strangers, of one origin at most `origin_max`.
//   2. Room is made at the cost of the newcomer's own origin if that has its share, else of the one
//      that has most: who opens many connections pushes out his own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "common/base/clock.h"
#include "common/fabric/server.h"

namespace pando {

class Strangers {
 public:
  struct Limits {
    size_t max = 512;
    size_t origin_max = 256;
  };
  explicit Strangers(const Limits& limits) : limits_(limits) {}

  // A connection that is no stranger yet, with its time. The peer that has to be closed to make
  // room; it is a stranger no more.
  std::optional<PeerId> Add(PeerId peer, const std::string& origin, int64_t until_ns);
  // It has done something, and gets more time. Its place in the order of going stays.
  void Extend(PeerId peer, int64_t until_ns);
  // It has an identity now, or is gone. Not a stranger: nothing happens.
  void Remove(PeerId peer);
  // The one that goes first, no stranger any more; nullopt: there is none.
  std::optional<PeerId> Evict();
  // One whose time is over, no stranger any more; nullopt: nobody's.
  std::optional<PeerId> TakeLate(int64_t now_ns);

  bool Contains(PeerId peer) const { return entries_.contains(peer); }
  size_t size() const { return entries_.size(); }
  // When somebody's time is over; kNeverNs: nobody is waited for.
  int64_t next_ns() const { return by_time_.empty() ? kNeverNs : by_time_.begin()->first; }

 private:
  using Queue = absl::btree_map<uint64_t, PeerId>;  // by arrival
  struct Entry {
    std::string origin;
    uint64_t arrival;
    int64_t until_ns;
  };
  std::optional<PeerId> TakeOldest(const Queue* queue);

  const Limits limits_;
  uint64_t arrivals_ = 0;
  absl::flat_hash_map<PeerId, Entry> entries_;
  absl::btree_map<std::string, Queue> origins_;
  absl::btree_set<std::pair<int64_t, PeerId>> by_time_;
};

}  // namespace pando
