// Operations from any thread, answers by callback. Part of pando.h.
#pragma once

#include "pando_c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pando_executor_options {
  size_t size;
  int64_t workers;     // threads with a session each, 1 to 1024
  uint64_t queue_max;  // operations that have not ended; beyond it: PANDO_RESOURCE_EXHAUSTED
} pando_executor_options;
#define PANDO_EXECUTOR_OPTIONS_INIT \
  { sizeof(pando_executor_options), 2, 64 << 10 }

enum {
  PANDO_OPERATION_GET = 0,
  PANDO_OPERATION_PUT = 1,
  PANDO_OPERATION_INSERT = 2,
  PANDO_OPERATION_UPDATE = 3,
  PANDO_OPERATION_ERASE = 4,
  PANDO_OPERATION_SCAN = 5,
  PANDO_OPERATION_REPLACE = 6,
  PANDO_OPERATION_ERASE_IF = 7,
  PANDO_OPERATION_UPSERT = 8
};

typedef struct pando_operation {
  size_t size;
  int64_t kind;          // PANDO_OPERATION_...
  pando_bytes key;       // scan: from
  pando_bytes value;     // writes; replace: the desired value, upsert: the operand
  pando_bytes expected;  // replace, erase_if
  uint64_t function;     // upsert: PANDO_UPSERT_..., or one that was registered
  uint64_t limit;        // scan: rows at most; 0 by PANDO_OPERATION_INIT, UINT64_MAX: all
  pando_bytes to;        // scan: keys below this one only
  int64_t has_to;        // flag; 0: `to` is ignored
  int64_t reverse;       // flag; scan: the greatest keys first
  int64_t timeout_ms;    // from pando_submit() on; 0: the client's operation_timeout_ms
} pando_operation;
#define PANDO_OPERATION_INIT                                                             \
  {                                                                                      \
    sizeof(pando_operation), PANDO_OPERATION_GET, {NULL, 0}, {NULL, 0}, {NULL, 0}, 1, 0, \
        {NULL, 0}, 0, 0, 0                                                               \
  }

// The result of an operation; valid during the callback only.
typedef struct pando_answer {
  size_t size;  // the library's sizeof: later fields exist if it covers them
  pando_result result;
  const pando_row* rows;  // scan
  uint64_t rows_count;
} pando_answer;

// Called once, on a worker's thread. It must not block.
typedef void (*pando_callback)(void* context, const pando_answer* answer);

// options NULL: the defaults.
pando_code pando_open_executor(pando_client* client, const pando_executor_options* options,
                               pando_executor** executor);
// Waits until all submitted operations have ended and their callbacks have returned.
pando_code pando_close_executor(pando_executor* executor);

// Begins an operation. PANDO_OK: Pando will call `callback`, perhaps before this returns. Another
// code: it will not. Writes that wait at the same time may be executed together. Operations that
// have not ended have no order among each other. `context` may be NULL.
pando_code pando_submit(pando_executor* executor, const pando_tree* tree,
                        const pando_operation* operation, pando_callback callback, void* context);
// Executes an operation and waits for it: a list of one result, for a scan a list of its rows.
// PANDO_OK: there is a list, whatever the result says. A scan that failed returns its code, and no
// list.
pando_code pando_execute(pando_executor* executor, const pando_tree* tree,
                         const pando_operation* operation, pando_list** list);

#ifdef __cplusplus
}  // extern "C"
#endif
