// Loading whole trees, looking at them, and asking how large they are. Part of pando.h.
#pragma once

#include "pando_c/base.h"
#include "pando_c/session.h"

#ifdef __cplusplus
extern "C" {
#endif

// Writes the next entry to `*row`, whose bytes have to hold until it is called again. Returns 1, 0
// at the end, -1: the load fails. On the thread of pando_bulk_load().
typedef int (*pando_next_row)(void* context, pando_row* row);
// Fills an empty tree from strictly ascending entries. PANDO_FAILED_PRECONDITION: it is not empty.
// PANDO_INVALID_ARGUMENT: the keys do not ascend, or an entry does not fit. PANDO_CANCELLED: `next`
// has said -1, or something that it may not. In all these cases the tree stays as it was.
pando_code pando_bulk_load(pando_session* session, const pando_tree* tree, pando_next_row next,
                           void* context);

typedef struct pando_size_estimate {
  size_t size;  // set by the caller
  uint64_t keys, key_bytes, value_bytes, leaves, nodes_bytes;
  double relative_error;  // 19 of 20 estimates of `keys` are off by no more; 0: all was counted
} pando_size_estimate;
// How large the tree is, about, from some of its leaves. reads_max: nodes that are read at most,
// one round trip each, at least 8; 0: 400.
pando_code pando_estimate_size(pando_session* session, const pando_tree* tree, int32_t reads_max,
                               const pando_operation_options* options,
                               pando_size_estimate* estimate);

typedef struct pando_check_options {
  size_t size;
  int64_t quiet_tree;     // flag: nobody works on the tree, nor will meanwhile
  int64_t recheck_ms;     // how long what looks wrong is looked at again
  uint64_t problems_max;  // it ends when it has found so many
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
} pando_check_report;
// Reads the whole tree and says what is wrong with it. `problems` may be NULL; else it becomes a
// list of texts (pando_list_text()), which the caller closes. An error: it could not be checked.
pando_code pando_check(pando_session* session, const pando_tree* tree,
                       const pando_check_options* options, pando_check_report* report,
                       pando_list** problems);

typedef struct pando_sweep_result {
  size_t size;  // set by the caller
  uint64_t freed, settled, left;
} pando_sweep_result;
// Gives back what dead clients left of this tree. Sessions do that by themselves: for tools and
// tests. `result` may be NULL.
pando_code pando_sweep(pando_session* session, const pando_tree* tree,
                       const pando_operation_options* options, pando_sweep_result* result);

#ifdef __cplusplus
}  // extern "C"
#endif
