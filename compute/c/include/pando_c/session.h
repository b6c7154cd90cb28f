// Operations. Part of pando.h. Operations on one key are linearizable. Keys have 1 to key_bytes_max
// bytes, values 0 to value_bytes_max of the tree; else PANDO_INVALID_ARGUMENT.
//
// Besides the codes that its comment names, any operation may return PANDO_DEADLINE_EXCEEDED,
// PANDO_UNAVAILABLE, PANDO_DATA_LOSS, PANDO_FAILED_PRECONDITION (the client is fenced, the session
// is in use); a write also PANDO_OUTCOME_UNKNOWN, PANDO_RESOURCE_EXHAUSTED (memory servers are
// full).
#pragma once

#include "pando_c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// For one thread at a time. A session has its own memory and, on verbs, its own queue pairs.
// PANDO_RESOURCE_EXHAUSTED: this process has no room for one more.
pando_code pando_open_session(pando_client* client, pando_session** session);
// Closes its cursors, too.
pando_code pando_close_session(pando_session* session);

// The sum of what operations cost.
typedef struct pando_operation_cost {
  uint64_t round_trips, verbs, bytes_read, bytes_written;
} pando_operation_cost;

// Options of each call below. NULL: the defaults.
typedef struct pando_operation_options {
  size_t size;
  int64_t timeout_ms;          // of the whole call; 0: the client's operation_timeout_ms
  pando_operation_cost* cost;  // the call adds its cost to this; may be NULL
} pando_operation_options;
#define PANDO_OPERATION_OPTIONS_INIT \
  { sizeof(pando_operation_options), 0, NULL }

// Writes the value to `value`, which has room for `capacity` bytes, and its length to
// `*value_size`. PANDO_NOT_FOUND. PANDO_OUT_OF_RANGE: the value is longer than `capacity`;
// `*value_size` gets its length, and `value` is not touched. value_bytes_max is always enough.
pando_code pando_get(pando_session* session, const pando_tree* tree, pando_bytes key, void* value,
                     size_t capacity, size_t* value_size, const pando_operation_options* options);

// Stores the value, whether the key was present or not.
pando_code pando_put(pando_session* session, const pando_tree* tree, pando_bytes key,
                     pando_bytes value, const pando_operation_options* options);
// PANDO_ALREADY_EXISTS: the key was present.
pando_code pando_insert(pando_session* session, const pando_tree* tree, pando_bytes key,
                        pando_bytes value, const pando_operation_options* options);
// PANDO_NOT_FOUND: the key was absent.
pando_code pando_update(pando_session* session, const pando_tree* tree, pando_bytes key,
                        pando_bytes value, const pando_operation_options* options);
// PANDO_NOT_FOUND.
pando_code pando_erase(pando_session* session, const pando_tree* tree, pando_bytes key,
                       const pando_operation_options* options);

// Compare and set, or erase, in one step. PANDO_NOT_FOUND: there is no such key.
// PANDO_CONDITION_FAILED: the key has another value than `expected`; the call writes it to `actual`
// as pando_get() does. `actual` may be NULL. Else `capacity` must be at least the tree's
// value_bytes_max: PANDO_INVALID_ARGUMENT, without effect.
pando_code pando_replace(pando_session* session, const pando_tree* tree, pando_bytes key,
                         pando_bytes expected, pando_bytes desired, void* actual, size_t capacity,
                         size_t* actual_size, const pando_operation_options* options);
pando_code pando_erase_if(pando_session* session, const pando_tree* tree, pando_bytes key,
                          pando_bytes expected, void* actual, size_t capacity, size_t* actual_size,
                          const pando_operation_options* options);

// Functions of pando_upsert(). They make the new value from the present value and the operand. The
// first three take 64-bit integers, 8 bytes, little-endian, in two's complement; sums wrap around.
// An absent key gets the operand.
enum {
  PANDO_UPSERT_ADD = 1,
  PANDO_UPSERT_MIN = 2,
  PANDO_UPSERT_MAX = 3,
  PANDO_UPSERT_APPEND = 4,              // the operand after the present value
  PANDO_UPSERT_FIRST_REGISTERED = 1024  // from here on: pando_register_upsert()
};
// PANDO_OK: the function was applied once. Another code: it was not applied, unless
// PANDO_OUTCOME_UNKNOWN. The call writes the new value, or with PANDO_CONDITION_FAILED the present
// one, to `value`, as to `actual` above. PANDO_INVALID_ARGUMENT: there is no such function, or it
// does not take this operand.
pando_code pando_upsert(pando_session* session, const pando_tree* tree, pando_bytes key,
                        uint32_t function, pando_bytes operand, void* value, size_t capacity,
                        size_t* value_size, const pando_operation_options* options);

// --- Many operations in one call, in flight together, each of them independent. The calls return
// PANDO_OK and a list with one result each, in order (pando_list_results()), even if operations
// failed. `count` may be 0.

pando_code pando_multi_get(pando_session* session, const pando_tree* tree, const pando_bytes* keys,
                           size_t count, const pando_operation_options* options,
                           pando_list** results);
pando_code pando_multi_put(pando_session* session, const pando_tree* tree, const pando_row* rows,
                           size_t count, const pando_operation_options* options,
                           pando_list** results);
pando_code pando_multi_erase(pando_session* session, const pando_tree* tree,
                             const pando_bytes* keys, size_t count,
                             const pando_operation_options* options, pando_list** results);

enum {
  PANDO_WRITE_PUT = 0,
  PANDO_WRITE_INSERT = 1,
  PANDO_WRITE_UPDATE = 2,
  PANDO_WRITE_ERASE = 3,
  PANDO_WRITE_REPLACE = 4,
  PANDO_WRITE_ERASE_IF = 5,
  PANDO_WRITE_UPSERT = 6
};
typedef struct pando_write {
  int64_t kind;  // PANDO_WRITE_...
  pando_bytes key;
  pando_bytes value;     // replace: the desired value, upsert: the operand; unused by erases
  pando_bytes expected;  // replace, erase_if
  uint64_t function;     // upsert
} pando_write;
// Writes to one key take effect in the order given. An invalid key, value, operand or function is
// an error of that write alone. An unknown kind, or impossible bytes (pando_bytes), is
// PANDO_INVALID_ARGUMENT of the whole call, without effect.
pando_code pando_write_many(pando_session* session, const pando_tree* tree,
                            const pando_write* writes, size_t count,
                            const pando_operation_options* options, pando_list** results);

// Owned trees: when this returns, the tree's leaves have every write that this client, as an owner,
// acknowledged before.
pando_code pando_flush(pando_session* session, const pando_tree* tree,
                       const pando_operation_options* options);

#ifdef __cplusplus
}  // extern "C"
#endif
