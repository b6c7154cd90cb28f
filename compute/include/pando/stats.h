// Counters of a client: what its sessions did since it connected.
#pragma once

#include <cstdint>

namespace pando {

struct FabricStats {
  uint64_t reads = 0, writes = 0, cas = 0, faa = 0, chains = 0, round_trips = 0;
  uint64_t bytes_read = 0, bytes_written = 0, calls = 0;
};

struct TreeStats {
  uint64_t cache_hits = 0, cache_misses = 0, cache_evictions = 0;
  uint64_t cache_bytes = 0;  // level-1 nodes held now
  uint64_t splits = 0, root_splits = 0, merges = 0, root_shrinks = 0;
  uint64_t nodes_reused = 0;       // nodes of splits and loads whose memory had been used before
  uint64_t separator_repairs = 0;  // separators inserted for somebody else's split
  uint64_t torn_retries = 0, stale_retries = 0, moves_right = 0;
  uint64_t lock_attempts = 0, lock_failures = 0;  // CAS of global words
  uint64_t handovers = 0, combined = 0;
  uint64_t repairs = 0;          // nodes that a dead client had left half-written
  uint64_t redone = 0;           // merges that a dead client had begun, finished or undone
  uint64_t lock_recoveries = 0;  // locks kept under a queue pair that broke, then freed
  uint64_t lost_races = 0;       // root growth or separator insertion that somebody else had done
};

// Of owned trees: what this client has done as an owner of keys.
struct OwnedStats {
  uint64_t hits = 0, misses = 0;  // records that were in its memory, or had to be READ
  uint64_t ranges = 0;            // that it owns now
  uint64_t hot_bytes = 0;         // of records in memory now
  uint64_t dirty_bytes = 0;       // of those that their leaves do not have yet
  uint64_t claims = 0;            // of ranges
  uint64_t adoptions = 0;         // of them from owners that had ended
  uint64_t adopted_messages = 0;  // writes that those had acknowledged, brought to the leaves
  uint64_t splits = 0;            // of ranges, so that a part may go
  uint64_t given = 0;             // ranges, to other members
  uint64_t log_batches = 0, log_messages = 0;
  uint64_t log_bytes = 0;   // written, padding included
  uint64_t base_lines = 0;  // how often the log was cut short
  uint64_t flushed = 0;     // messages brought to leaves
  uint64_t flush_rounds = 0;
  uint64_t refused = 0;  // for which memory servers had no room
  // Erases that their leaves do not have yet, and for how many milliseconds the oldest has waited
  // (no less; TreeOptions::delete_persistence_ms), both as of some moment lately.
  uint64_t tombstones = 0, oldest_tombstone_ms = 0;
};

struct ClientStats {
  FabricStats fabric;
  TreeStats tree;
  OwnedStats owned;
};

}  // namespace pando
