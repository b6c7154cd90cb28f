// Loading whole trees, erasing ranges, checks, and asking how large trees are. Part of pando.h.
#pragma once

#include "pando_c/base.h"
#include "pando_c/session.h"

#ifdef __cplusplus
extern "C" {
#endif

// Writes the next entry to `*row`; its bytes must stay valid until the next call. Returns 1, or 0
// at the end, or -1 to fail the load. Runs on the thread of pando_bulk_load().
typedef int (*pando_next_row)(void* context, pando_row* row);
// Fills an empty tree from strictly ascending entries. PANDO_FAILED_PRECONDITION: the tree is not
// empty. PANDO_INVALID_ARGUMENT: the keys do not ascend, or an entry does not fit. PANDO_CANCELLED:
// `next` returned -1, or an invalid number, or threw. In all these cases the tree stays as it was.
pando_code pando_bulk_load(pando_session* session, const pando_tree* tree, pando_next_row next,
                           void* context);

// How far pando_erase_range() got.
typedef struct pando_range_erased {
  size_t size;      // set by the caller
  uint64_t erased;  // keys that are erased for sure
  int64_t done;     // flag: the whole range is finished
  // The call is finished with all keys below this one; pando_erase_range() from here on does the
  // rest. Any bytes, valid until the session's next call, or the end of the callback.
  pando_bytes next;
} pando_range_erased;
// Called on the thread of pando_erase_range(), after every few leaves. Returns 0 to go on; else the
// call ends.
typedef int (*pando_erase_progress)(void* context, const pando_range_erased* so_far);
// Erases all keys with from <= key < to, both any bytes; `to` NULL: to the end. Leaf by leaf, in
// owned trees by the keys' owners; not atomic: each key has its own moment. A call that ends early
// (PANDO_CANCELLED: `progress` ended it) has erased some keys and not others. `progress` and
// `result` may be NULL. The call sets `*result` whatever code it returns, provided that `from` and
// `to` are valid, and that it is not inside a callback.
pando_code pando_erase_range(pando_session* session, const pando_tree* tree, pando_bytes from,
                             const pando_bytes* to, pando_erase_progress progress, void* context,
                             const pando_operation_options* options, pando_range_erased* result);

typedef struct pando_size_estimate {
  size_t size;  // set by the caller
  uint64_t keys, key_bytes, value_bytes, leaves, nodes_bytes;
  double relative_error;  // 19 of 20 estimates of `keys` are off by no more; 0: exact count
  uint64_t cells_bytes;   // of values outside the leaves; not part of nodes_bytes
} pando_size_estimate;
// Estimates the tree's size from some of its leaves. It reads at most `reads_max` nodes, one round
// trip each: at least 8; 0: 400.
pando_code pando_estimate_size(pando_session* session, const pando_tree* tree, int32_t reads_max,
                               const pando_operation_options* options,
                               pando_size_estimate* estimate);

typedef struct pando_check_options {
  size_t size;
  int64_t quiet_tree;     // flag: the caller promises that no client uses the tree meanwhile
  int64_t recheck_ms;     // how long to look again at what seems wrong
  uint64_t problems_max;  // the check ends when it has found this many; at least 1
  int64_t timeout_ms;     // 0: as long as it takes
} pando_check_options;
#define PANDO_CHECK_OPTIONS_INIT \
  { sizeof(pando_check_options), 0, 1000, 20, 0 }

typedef struct pando_check_report {
  size_t size;  // set by the caller
  uint64_t problems, levels, leaves;
  uint64_t keys, key_bytes, value_bytes, nodes_bytes;
  uint64_t missing_separators, locks_held, looked_again;
  uint64_t nodes_reachable, nodes_held, nodes_free, nodes_orphans;
  // Values in memory of their own, the bytes they take, and such memory that nothing refers to.
  uint64_t cells, cells_bytes, cells_unused;
} pando_check_report;
// Reads the whole tree and reports what is wrong with it. `problems` may be NULL; else it becomes a
// list of texts (pando_list_text()), which the caller closes. An error: the check failed
// (PANDO_NOT_FOUND: the tree was dropped). Of an owned tree it flushes first what this client owns:
// PANDO_RESOURCE_EXHAUSTED as pando_flush().
pando_code pando_check(pando_session* session, const pando_tree* tree,
                       const pando_check_options* options, pando_check_report* report,
                       pando_list** problems);

typedef struct pando_sweep_result {
  size_t size;  // set by the caller
  uint64_t freed, settled, left;
} pando_sweep_result;
// Cleans up after dead clients in this tree. Sessions do that by themselves; this is for tools and
// tests. `result` may be NULL.
pando_code pando_sweep(pando_session* session, const pando_tree* tree,
                       const pando_operation_options* options, pando_sweep_result* result);

#ifdef __cplusplus
}  // extern "C"
#endif
