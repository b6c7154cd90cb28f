// Counters of one session: written by its thread, read by any.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/fabric/meter.h"
#include "pando/stats.h"

namespace pando {

// Single writer, so an increment is a plain load and store; readers see some recent value.
class Counter {
 public:
  void Add(uint64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct SessionCounters {
  // Fabric.
  Counter reads, writes, cas, faa, chains, round_trips, bytes_read, bytes_written, calls;
  // Tree.
  Counter cache_hits, cache_misses, splits, root_splits, separator_repairs, torn_retries,
      stale_retries, moves_right, lock_attempts, lock_failures, handovers, combined, lost_races,
      merges, root_shrinks, repairs, redone, lock_recoveries;
  Counter place_hits, place_misses;
  // Owned trees.
  Counter owned_hits, owned_misses, owned_lent;

  void Add(const ChainTally& chain);
  void AddTo(ClientStats* stats) const;
};

inline void SessionCounters::Add(const ChainTally& chain) {
  const auto add = [](Counter* counter, uint32_t n) {
    if (n != 0) counter->Add(n);
  };
  chains.Add(1);
  round_trips.Add(chain.round_trips);
  add(&reads, chain.count(VerbKind::kRead));
  add(&writes, chain.count(VerbKind::kWrite));
  add(&cas, chain.count(VerbKind::kCompareSwap));
  add(&faa, chain.count(VerbKind::kFetchAdd));
  add(&bytes_read, chain.bytes_read());
  add(&bytes_written, chain.bytes_written());
}

}  // namespace pando
