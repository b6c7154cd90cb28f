// Connecting, opening trees, and asking about the cluster. Part of pando.h.
#pragma once

#include "pando_c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- Clients. One per process is enough.

enum {
  PANDO_TECHNIQUES_ALL = 0,
  PANDO_TECHNIQUES_SHERMAN = 1,  // those of the paper, as published
  PANDO_TECHNIQUES_FG_PLUS = 2   // the paper's baseline
};

typedef struct pando_client_options {
  size_t size;
  // Where the client finds the memory servers; the same as pando-memory's --registry: a directory
  // ("DIR" or "local:DIR"), or "memcached://HOST:PORT/CLUSTER". Required.
  const char* registry;
  // "shm" (one host, no privileges) or "verbs" (RDMA). NULL: "shm".
  const char* fabric;
  // File with the cluster's secret; NULL: it has none. Verbs only.
  const char* secret_file;
  // How long pando_connect() waits until `memory_servers_min` servers answer; also the deadline of
  // opening sessions, and of creating, opening and dropping trees. At least 1.
  int64_t connect_timeout_ms;
  int64_t memory_servers_min;
  // Deadline of operations that have none of their own. At least 1.
  int64_t operation_timeout_ms;
  // Bound on memory for decoded internal nodes.
  uint64_t index_cache_bytes;
  // Operations that a session has in flight at once, 1 to 4096. Fewer where the sessions of this
  // process have half of its mappings already (vm.max_map_count; two each).
  int64_t coroutines_per_session;
  int64_t handover_max;  // handovers of a lock in a row, from 0 on
  int64_t combine_max;   // operations in one write of a leaf, from 1 on
  int64_t techniques;    // PANDO_TECHNIQUES_...
  // Owned trees. owner, a flag: join the owners at once. Memory for records here, and for the log
  // on a memory server, at least 64 KiB each. Where others send requests (NULL: Pando chooses).
  int64_t owner;
  uint64_t hot_bytes;
  uint64_t log_bytes;
  const char* service_address;
  // RDMA. Pando chooses what is NULL, 0, or -1 (rdma_gid_index).
  const char* rdma_device;
  int64_t rdma_port;
  int64_t rdma_gid_index;
  uint64_t rdma_mtu_bytes;
  int64_t rdma_traffic_class;  // 0 to 255
  int64_t rdma_service_level;  // 0 to 15
  int64_t rdma_pkey_index;
  uint64_t seed;  // of back-off and placement; 0: the fabric gives one
  int64_t
      spread_ranges;  // flag: owned keys go to owners that have less to do, and come from others
  // For where values in cells are (pando_tree_options): some 26 bytes each. 0: none.
  uint64_t value_places_bytes;
  int64_t service_threads;  // owned trees: execute what others ask of this client, 1 to 64
  int64_t flush_threads;    // owned trees: write records to their leaves, 1 to 16
  int64_t ranges_min;       // owned trees: this client's of each of them at least, 1 to 64
  int64_t dirty_percent;    // of hot_bytes that may hold what leaves do not have yet, 1 to 90
  // Owned trees: others may read this client's keys from their leaves where it has written none for
  // so long. -1: never.
  int64_t lend_after_ms;
} pando_client_options;
#define PANDO_CLIENT_OPTIONS_INIT                                                         \
  {                                                                                       \
    sizeof(pando_client_options), NULL, NULL, NULL, 5000, 1, 10000, 64 << 20, 64, 32, 64, \
        PANDO_TECHNIQUES_ALL, 0, 64 << 20, 16 << 20, NULL, NULL, 0, -1, 0, 0, 0, 0, 0, 1, \
        32 << 20, 1, 1, 1, 50, 250                                                        \
  }

// Joins the cluster. PANDO_UNAVAILABLE: too few memory servers answer, or not the one with the
// catalog.
pando_code pando_connect(const pando_client_options* options, pando_client** client);
// Closes everything that the client made, and leaves the cluster in order. Waits, see pando.h.
pando_code pando_close_client(pando_client* client);
// Call this before the program ends, while it is still in use. All keys that the client owns go to
// other clients that have their trees open, and it owns none from then on. timeout_ms 0:
// connect_timeout_ms. PANDO_DEADLINE_EXCEEDED, or another error: it still owns some keys and goes
// on as before; call again.
pando_code pando_leave(pando_client* client, int64_t timeout_ms);
// 1: memory servers have cut this client off, every operation is PANDO_FAILED_PRECONDITION. Close
// it and connect again.
pando_code pando_client_fenced(const pando_client* client, int32_t* fenced);
// The client's number among those that are connected now.
pando_code pando_compute_server_id(const pando_client* client, uint16_t* id);

// --- Trees.

enum {
  PANDO_MODE_SHARED = 0,  // every compute server reads and writes every key
  PANDO_MODE_OWNED = 1    // each key has one owner at a time; keys of at most 240 bytes
};

// Fixed when a tree is created.
typedef struct pando_tree_options {
  size_t size;
  uint64_t key_bytes_max;    // 1 to 255
  uint64_t value_bytes_max;  // 0 to 65536
  uint64_t node_bytes;       // 0: derived
  int64_t mode;              // PANDO_MODE_...
  // A flag: leaves are laid out so that a get reads some of their lines, not all, on networks that
  // gain by it. Older releases cannot open such a tree.
  int64_t narrow_reads;
  // Owned trees: an erased entry is gone from its leaf after this many milliseconds, as long as its
  // owner lives and reaches the leaf and its own log; at least 10. 0: no bound.
  uint64_t delete_persistence_ms;
  // Values longer than this, 1 to 254 bytes, have memory of their own outside the
  // leaves. A get or a write of one takes one more round trip. 0: all values are in the leaves
  // up to a value_bytes_max of 255, and above that those of up to 20 bytes.
  uint64_t inline_value_bytes_max;
} pando_tree_options;
#define PANDO_TREE_OPTIONS_INIT \
  { sizeof(pando_tree_options), 8, 8, 0, PANDO_MODE_SHARED, 0, 0, 0 }

// The caller sets `size`. `name` is valid while the tree or list that gave the info is open.
typedef struct pando_tree_info {
  size_t size;
  const char* name;
  uint64_t key_bytes_max, value_bytes_max, node_bytes;
  int64_t mode;
  int64_t narrow_reads;
  uint64_t delete_persistence_ms;
  uint64_t inline_value_bytes_max;  // value_bytes_max: none lies outside the leaves
} pando_tree_info;

// Creates the tree if there is none of that name. options NULL: the defaults.
// PANDO_FAILED_PRECONDITION: it exists and has other options. Names that begin with a dot are
// reserved (PANDO_INVALID_ARGUMENT). PANDO_OUTCOME_UNKNOWN: the tree may exist now; call again.
pando_code pando_create_tree(pando_client* client, const char* name,
                             const pando_tree_options* options, pando_tree** tree);
// PANDO_NOT_FOUND.
pando_code pando_open_tree(pando_client* client, const char* name, pando_tree** tree);
pando_code pando_close_tree(pando_tree* tree);
// The name is free at once. Open handles of a shared tree go on working until they are closed,
// without growing; but once a memory server has started again, their operations are refused
// (PANDO_FAILED_PRECONDITION), as are those of an owned tree from now on.
// PANDO_OUTCOME_UNKNOWN: it may be dropped on some memory servers and not on others; then it cannot
// be opened, nor its name used, until another call has ended it.
pando_code pando_drop_tree(pando_client* client, const char* name);
pando_code pando_get_tree_info(const pando_tree* tree, pando_tree_info* info);
// Checks that every memory server that may have nodes of the tree answers and has not restarted.
// PANDO_UNAVAILABLE, PANDO_DATA_LOSS, PANDO_NOT_FOUND (the tree was dropped);
// PANDO_DEADLINE_EXCEEDED: nobody was asked, other calls of this client went on too long.
pando_code pando_tree_status(pando_client* client, const pando_tree* tree);
// All trees. Elements: pando_list_tree().
pando_code pando_list_trees(pando_client* client, pando_list** list);
pando_code pando_list_tree(const pando_list* list, size_t index, pando_tree_info* info);

// --- Memory servers, as the client sees them.

typedef struct pando_counter {
  const char* name;
  uint64_t value;
} pando_counter;

typedef struct pando_server_info {
  size_t size;  // set by the caller
  uint64_t id;
  int64_t available, is_catalog;  // flags
  uint64_t region_bytes, free_bytes, used_bytes;
  const pando_counter* counters;  // until the list is closed
  uint64_t counters_count;
} pando_server_info;

// All are asked at once; waits for those that do not answer, up to connect_timeout_ms (a second
// more where other calls of this client were waited for first). None is available where nobody was
// asked, since those went on too long.
pando_code pando_list_servers(pando_client* client, pando_list** list);
pando_code pando_list_server(const pando_list* list, size_t index, pando_server_info* info);

// --- Owned trees (PANDO_FAILED_PRECONDITION for shared ones). Hints: owners come and go.

// An owner, and the keys low <= key < high that it has; high empty: to the end.
typedef struct pando_range_info {
  size_t size;  // set by the caller
  pando_bytes low, high;
  uint64_t compute_server;
  uint64_t incarnation;  // 0: the range has no owner
  const char* address;   // where its service answers; "": not known
} pando_range_info;

// A compute server with a redo log.
typedef struct pando_member_info {
  size_t size;  // set by the caller
  uint64_t compute_server, incarnation;
  const char* address;
  int64_t ended, recovering;               // flags
  uint64_t ranges, log_server, log_bytes;  // log_server 0: it has no log
} pando_member_info;

// The owner of the key: a list of one element, a range without its bounds.
pando_code pando_owner_of(pando_client* client, const pando_tree* tree, pando_bytes key,
                          pando_list** list);
// Sorted by key.
pando_code pando_list_ranges(pando_client* client, const pando_tree* tree, pando_list** list);
pando_code pando_list_range(const pando_list* list, size_t index, pando_range_info* info);
// Sorted by compute server.
pando_code pando_list_members(pando_client* client, pando_list** list);
pando_code pando_list_member(const pando_list* list, size_t index, pando_member_info* info);

// --- Counters since the client connected, of all its sessions. pando/stats.h explains each.

typedef struct pando_client_stats {
  size_t size;  // set by the caller
  // The fabric.
  uint64_t reads, writes, cas, faa, chains, round_trips, bytes_read, bytes_written, calls;
  // Trees.
  uint64_t cache_hits, cache_misses, cache_evictions, cache_bytes;
  uint64_t splits, root_splits, merges, root_shrinks, nodes_reused, separator_repairs;
  uint64_t torn_retries, stale_retries, moves_right, lock_attempts, lock_failures;
  uint64_t handovers, combined, repairs, redone, lock_recoveries, lost_races;
  // Its work as an owner of keys.
  uint64_t owned_hits, owned_misses, owned_ranges, owned_hot_bytes, owned_dirty_bytes;
  uint64_t owned_claims, owned_adoptions, owned_adopted_messages;
  uint64_t owned_log_batches, owned_log_messages, owned_log_bytes, owned_base_lines;
  uint64_t owned_flushed, owned_flush_rounds, owned_refused;
  uint64_t owned_splits, owned_given, owned_tombstones, owned_oldest_tombstone_ms;
  // Gets that found the value at its remembered place, and others; places held now, bytes.
  uint64_t place_hits, place_misses, place_bytes;
  uint64_t owned_forwarded, owned_served, owned_messages, owned_flushed_leaves;
  uint64_t owned_log_used_bytes, owned_log_capacity_bytes;
  uint64_t owned_lent;
} pando_client_stats;

pando_code pando_get_client_stats(const pando_client* client, pando_client_stats* stats);

// --- Upserts of the program's own.

// The new value of `key`, written to `result`, which has room for `result_capacity` bytes (at least
// the value_bytes_max of any tree); its length to `*result_size`. `present` NULL: the key is
// absent. Returns 0. Anything else refuses, as does a result longer than the tree's values: the
// operation is PANDO_CONDITION_FAILED and nothing is changed. Runs under a lock, on the thread of
// any session, on several threads at once, and again if its result could not be used. It must be
// thread-safe, quick, and a function of its arguments.
typedef int (*pando_upsert_function)(void* context, pando_bytes key, const pando_bytes* present,
                                     pando_bytes operand, void* result, size_t result_capacity,
                                     size_t* result_size);
// Registers it for pando_upsert() as `number`, from PANDO_UPSERT_FIRST_REGISTERED on, for the life
// of the client. `context` must live as long. PANDO_INVALID_ARGUMENT, PANDO_ALREADY_EXISTS.
pando_code pando_register_upsert(pando_client* client, uint32_t number,
                                 pando_upsert_function function, void* context);

#ifdef __cplusplus
}  // extern "C"
#endif
