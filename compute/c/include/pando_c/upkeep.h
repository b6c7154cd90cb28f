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
// `next` returned -1, or an invalid number. In all these cases the tree stays as it was.
pando_code pando_bulk_load(pando_session* session, const pando_tree* tree, pando_next_row next,
                           void* context);

// How far an erasing has come.
typedef struct pando_range_erased {
  size_t size;      // set by the caller
  uint64_t erased;  // keys, for sure
  int64_t done;     // flag: the whole range was gone through
  // All keys of the range below this one were: pando_erase_range() from here on does the rest. Any
  // bytes; they hold until the session's next call, or the end of the callback.
  pando_bytes next;
} pando_range_erased;
// On the thread of pando_erase_range(), after each few leaves. Returns 0 to go on; else the call
// ends.
typedef int (*pando_erase_progress)(void* context, const pando_range_erased* so_far);
// Erases all keys with from <= key < to, both any bytes; `to` NULL: to the end. By leaf, or in
// owned trees by the keys' owners, some leaves at a time; each key at a moment of its own. Where it
// ends early (PANDO_CANCELLED: `progress` has said so) some are erased, and others are not.
// `progress` and `result` may be NULL; `result` counts whatever is returned, once `from`, `to` and
// the options are good.
pando_code pando_erase_range(pando_session* session, const pando_tree* tree, pando_bytes from,
                             const pando_bytes* to, pando_erase_progress progress, void* context,
                             const pando_operation_options* options, pando_range_erased* result);

typedef struct pando_size_estimate {
  size_t size;  // set by the caller
  uint64_t keys, key_bytes, value_bytes, leaves, nodes_bytes;
  double relative_error;  // 19 of 20 estimates of `keys` are off by no more; 0: exact count
  uint64_t cells_bytes;   // of values beside the leaves; nodes_bytes does not have them
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
  uint64_t problems_max;  // the check ends when it has found this many
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
  // Values in memory of their own, what they take there, and such memory that nothing refers to.
  uint64_t cells, cells_bytes, cells_unused;
} pando_check_report;
// Reads the whole tree and reports what is wrong with it. `problems` may be NULL; else it becomes a
// list of texts (pando_list_text()), which the caller closes. An error: the check failed.
pando_code pando_check(pando_session* session, const pando_tree* tree,
                       const pando_check_options* options, pando_check_report* report,
                       pando_list** problems);

typedef struct pando_sweep_result {
  size_t size;  // set by the caller
  uint64_t freed, settled, left;
} pando_sweep_result;
// Gives back what dead clients left of this tree. Sessions do that by themselves; this is for tools
// and tests. `result` may be NULL.
pando_code pando_sweep(pando_session* session, const pando_tree* tree,
                       const pando_operation_options* options, pando_sweep_result* result);

#ifdef __cplusplus
}  // extern "C"
#endif
