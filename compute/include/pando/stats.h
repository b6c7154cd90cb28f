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
  // Gets that found the value at its remembered place, and others; places held now, bytes.
  uint64_t place_hits = 0, place_misses = 0, place_bytes = 0;
  uint64_t splits = 0, root_splits = 0, merges = 0, root_shrinks = 0;
  uint64_t nodes_reused = 0;       // nodes of splits and loads whose memory had been used before
  uint64_t separator_repairs = 0;  // separators inserted for another client's split
  uint64_t torn_retries = 0, stale_retries = 0, moves_right = 0;
  uint64_t lock_attempts = 0, lock_failures = 0;  // CAS of global words
  uint64_t handovers = 0, combined = 0;
  uint64_t repairs = 0;          // nodes that a dead client had left half-written
  uint64_t redone = 0;           // merges of dead clients that this client finished or undid
  uint64_t lock_recoveries = 0;  // locks kept under a queue pair that broke, then freed
  uint64_t lost_races = 0;  // root growths or separator insertions that another client did first
};

// Owned trees: what this client has done as an owner of keys.
struct OwnedStats {
  uint64_t hits = 0, misses = 0;  // records found in its memory; records that it had to READ
  // Gets, and pieces of scans, of other owners' keys that it read from leaves on loan.
  uint64_t lent = 0;
  uint64_t ranges = 0;  // ranges that it owns now
  // Requests that this client has sent to owners of other keys, and those that it has executed for
  // other clients; messages of both, sent and received: many requests share one. Some requests are
  // the library's own: they balance load, or ask for ranges on loan.
  uint64_t forwarded = 0, served = 0, messages = 0;
  uint64_t hot_bytes = 0;         // records in its memory now
  uint64_t dirty_bytes = 0;       // those of them that are not in their leaves yet
  uint64_t claims = 0;            // ranges claimed
  uint64_t adoptions = 0;         // ranges taken over from owners that had ended
  uint64_t adopted_messages = 0;  // writes that those had acknowledged, now in the leaves
  uint64_t splits = 0;            // ranges divided, to give a part away
  uint64_t given = 0;             // ranges given to other members
  uint64_t log_batches = 0, log_messages = 0;
  uint64_t log_bytes = 0;       // bytes written, with padding
  uint64_t base_lines = 0;      // how often the log was truncated
  uint64_t flushed = 0;         // messages written to leaves
  uint64_t flushed_leaves = 0;  // leaves written for them
  uint64_t flush_rounds = 0;
  uint64_t log_used_bytes = 0, log_capacity_bytes = 0;  // of its log now
  uint64_t refused = 0;  // messages that memory servers had no room for
  // Erases that are not in their leaves yet, and an upper bound on the age of the oldest,
  // milliseconds (TreeOptions::delete_persistence_ms). Both are updated now and then.
  uint64_t tombstones = 0, oldest_tombstone_ms = 0;
};

struct ClientStats {
  FabricStats fabric;
  TreeStats tree;
  OwnedStats owned;
};

}  // namespace pando
