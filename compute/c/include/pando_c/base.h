// Codes, bytes and lists: shared by all of pando.h.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

// --- The result of a call.

typedef int32_t pando_code;
enum {
  PANDO_OK = 0,
  PANDO_CANCELLED = 1,          // a callback ended the call; how much it has done, the call says
  PANDO_OUTCOME_UNKNOWN = 2,    // the operation may or may not have had its effect
  PANDO_INVALID_ARGUMENT = 3,   // an invalid handle, key, value, option or size
  PANDO_DEADLINE_EXCEEDED = 4,  // the deadline passed; the operation had no effect
  PANDO_NOT_FOUND = 5,          // no such key, or no such tree (any more)
  PANDO_ALREADY_EXISTS = 6,
  PANDO_PERMISSION_DENIED = 7,
  PANDO_RESOURCE_EXHAUSTED = 8,   // memory servers, an executor's queue or this process are full
                                  // (where its memory ends inside an operation, the process ends)
  PANDO_FAILED_PRECONDITION = 9,  // an existing tree has other options, or was dropped; the client
                                  // was fenced; the call is not allowed here (threads, callbacks)
  PANDO_ABORTED = 10,
  PANDO_OUT_OF_RANGE = 11,  // no more entries; a buffer that is too small; no such index
  PANDO_UNIMPLEMENTED = 12,
  PANDO_INTERNAL = 13,     // a bug of Pando itself
  PANDO_UNAVAILABLE = 14,  // a memory server is gone
  PANDO_DATA_LOSS = 15,    // memory is damaged, or a memory server restarted without its data
  PANDO_UNAUTHENTICATED = 16,
  PANDO_CONDITION_FAILED = 32,  // the key does not have the expected value, or the upsert's
                                // function refused: nothing was changed
  PANDO_CLOSED = 33             // the handle has been closed
};

// "NOT_FOUND" and so on; "?" for a number that is not a code. Static.
const char* pando_code_name(pando_code code);

// The message of this thread's last failed call, without the code; "" before the first. It is valid
// until the next failed call of this thread, or until the thread ends. Successful calls do not
// change it.
const char* pando_last_message(void);

// "MAJOR.MINOR.PATCH" of the library that the program runs with. Static.
const char* pando_version(void);

// The number of open handles in this process, with lists: for tests that look for leaks.
uint64_t pando_open_handles(void);

// --- Bytes.

// `data` may be NULL if `size` is 0. No function takes more than 1 MiB (PANDO_INVALID_ARGUMENT).
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
// The text without its terminator. NULL: no bytes.
static inline pando_bytes pando_text(const char* text) {
  return pando_view(text, text == NULL ? 0 : strlen(text));
}

// A key and its value.
typedef struct pando_row {
  pando_bytes key, value;
} pando_row;

// The result of one operation of many.
typedef struct pando_result {
  int64_t code;         // pando_code
  pando_bytes value;    // read or computed; PANDO_CONDITION_FAILED: the present value
  pando_bytes message;  // as pando_last_message() has it; none with PANDO_OK
} pando_result;

// --- Handles.

typedef struct pando_client pando_client;
typedef struct pando_tree pando_tree;
typedef struct pando_session pando_session;
typedef struct pando_cursor pando_cursor;
typedef struct pando_executor pando_executor;
typedef struct pando_list pando_list;

// --- Lists: results of calls with many answers. They never change.

pando_code pando_close_list(pando_list* list);
// The number of elements.
pando_code pando_list_size(const pando_list* list, size_t* size);
// All results (of pando_multi_get() and so on), or all rows (of pando_scan()): an array of
// pando_list_size() elements. It and all that it points to are valid until the list is closed.
// PANDO_INVALID_ARGUMENT: the list has elements of another type.
pando_code pando_list_results(const pando_list* list, const pando_result** results);
pando_code pando_list_rows(const pando_list* list, const pando_row** rows);
// An element that is a text, valid until the list is closed. PANDO_OUT_OF_RANGE: no such index.
// Elements of other types: pando_c/client.h.
pando_code pando_list_text(const pando_list* list, size_t index, const char** text);

#ifdef __cplusplus
}  // extern "C"
#endif
