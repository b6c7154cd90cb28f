// What all of pando.h shares: codes, bytes and lists.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

// --- What came of a call.

typedef int32_t pando_code;
enum {
  PANDO_OK = 0,
  PANDO_CANCELLED = 1,          // a callback ended the call: nothing was done
  PANDO_OUTCOME_UNKNOWN = 2,    // the operation may or may not have had its effect
  PANDO_INVALID_ARGUMENT = 3,   // a handle, key, value, option or size that is no good
  PANDO_DEADLINE_EXCEEDED = 4,  // the time was over; the operation had no effect
  PANDO_NOT_FOUND = 5,          // no such key, or no such tree
  PANDO_ALREADY_EXISTS = 6,
  PANDO_PERMISSION_DENIED = 7,
  PANDO_RESOURCE_EXHAUSTED = 8,   // memory servers, an executor's queue or this process are full
  PANDO_FAILED_PRECONDITION = 9,  // other options for a tree that exists; a client that was fenced;
                                  // a call that is not allowed here (threads, callbacks)
  PANDO_ABORTED = 10,
  PANDO_OUT_OF_RANGE = 11,  // no more entries; a buffer or an index that does not fit
  PANDO_UNIMPLEMENTED = 12,
  PANDO_INTERNAL = 13,     // a bug of Pando's own
  PANDO_UNAVAILABLE = 14,  // a memory server is gone
  PANDO_DATA_LOSS = 15,    // damaged memory, or a memory server that lost what it had
  PANDO_UNAUTHENTICATED = 16,
  PANDO_CONDITION_FAILED = 32,  // the key has another value than expected, or the upsert's function
                                // refused: nothing was changed
  PANDO_CLOSED = 33             // the handle has been closed
};

// "NOT_FOUND" and so on; "?" for numbers that are no code. Static.
const char* pando_code_name(pando_code code);

// What the last call of this thread that failed said, without its code; "" before the first. Holds
// until the next call of this thread that fails, or until the thread ends. Calls that succeed leave
// it alone.
const char* pando_last_message(void);

// "MAJOR.MINOR.PATCH" of the library that the program runs with. Static.
const char* pando_version(void);

// Handles that are open in this process, lists included: for tests that look for leaks.
uint64_t pando_open_handles(void);

// --- Bytes.

// `data` may be NULL if `size` is 0. At most 1 MiB is taken anywhere (PANDO_INVALID_ARGUMENT).
typedef struct pando_bytes {
  const void* data;
  size_t size;
} pando_bytes;

static inline pando_bytes pando_view(const void* data, size_t size) {
  pando_bytes bytes;
  bytes.data = data;
  bytes.size = size;
  return bytes;
}
// The text without its end mark; NULL: no bytes.
static inline pando_bytes pando_text(const char* text) {
  return pando_view(text, text == NULL ? 0 : strlen(text));
}

// A key and its value.
typedef struct pando_row {
  pando_bytes key, value;
} pando_row;

// What came of one operation of many.
typedef struct pando_result {
  int64_t code;         // pando_code
  pando_bytes value;    // what was read or made; PANDO_CONDITION_FAILED: the present value
  pando_bytes message;  // what pando_last_message() would say; none with PANDO_OK
} pando_result;

// --- Handles.

typedef struct pando_client pando_client;
typedef struct pando_tree pando_tree;
typedef struct pando_session pando_session;
typedef struct pando_cursor pando_cursor;
typedef struct pando_executor pando_executor;
typedef struct pando_list pando_list;

// --- Lists: what calls with many answers give back. They never change.

pando_code pando_close_list(pando_list* list);
// How many elements it has.
pando_code pando_list_size(const pando_list* list, size_t* size);
// All of its results, of pando_multi_get() and so on, or rows, of pando_scan(): an array of
// pando_list_size() elements that holds, as all that it points to, until the list is closed.
// PANDO_INVALID_ARGUMENT: the list is one of something else.
pando_code pando_list_results(const pando_list* list, const pando_result** results);
pando_code pando_list_rows(const pando_list* list, const pando_row** rows);
// An element that is a text. It holds until the list is closed. PANDO_OUT_OF_RANGE: no such index.
// Elements of other types: pando_c/client.h.
pando_code pando_list_text(const pando_list* list, size_t index, const char** text);

#ifdef __cplusplus
}  // extern "C"
#endif
