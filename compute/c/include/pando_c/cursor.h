// Reading a tree in the order of its keys. Part of pando.h. A scan or cursor shows every key of the
// range that is present throughout, and none twice. Each pair was current at some moment of the
// scan, or since the last seek of the cursor. It is not a snapshot.
#pragma once

#include "pando_c/base.h"
#include "pando_c/session.h"

#ifdef __cplusplus
extern "C" {
#endif

// The keys from <= key < to. Bounds are any bytes.
typedef struct pando_cursor_options {
  size_t size;
  pando_bytes from;  // none: from the smallest key
  pando_bytes to;
  int64_t has_to;                        // flag; 0: to the greatest key, `to` is ignored
  int64_t from_exclusive, to_inclusive;  // flags: from < key, key <= to
  pando_bytes prefix;                    // and only keys that begin so
  int64_t reverse;                       // flag: the greatest key first
  uint64_t limit;                        // entries at most; UINT64_MAX: all
  int64_t read_ahead;                    // leaves that are read at once, 1 to 256; 0: as is useful
  int64_t timeout_ms;                    // of each call; 0: the client's operation_timeout_ms
  pando_operation_cost* cost;            // each call adds its cost to this; may be NULL; has to
                                         // outlive a cursor
} pando_cursor_options;
#define PANDO_CURSOR_OPTIONS_INIT                                                                \
  {                                                                                              \
    sizeof(pando_cursor_options), {NULL, 0}, {NULL, 0}, 0, 0, 0, {NULL, 0}, 0, UINT64_MAX, 0, 0, \
        NULL                                                                                     \
  }

// All entries of the range: pando_list_rows(). options NULL: the whole tree. An error: there is no
// list.
pando_code pando_scan(pando_session* session, const pando_tree* tree,
                      const pando_cursor_options* options, pando_list** rows);

// A place in the range, before its first entry. No round trip. PANDO_INVALID_ARGUMENT: the options
// are wrong. The cursor belongs to its session and to that session's thread.
pando_code pando_open_cursor(pando_session* session, const pando_tree* tree,
                             const pando_cursor_options* options, pando_cursor** cursor);
pando_code pando_close_cursor(pando_cursor* cursor);

// Moves. PANDO_OK: the cursor is on an entry. The call writes it to `*row` (unless that is NULL);
// it is valid until the next call with this cursor. PANDO_OUT_OF_RANGE: there is no entry; the
// other direction goes back. Another code: an error. Repeat the move to go on: it skips nothing and
// shows nothing twice. After a failed seek go on with pando_cursor_next() (to_last: prev).
pando_code pando_cursor_next(pando_cursor* cursor, pando_row* row);
pando_code pando_cursor_prev(pando_cursor* cursor, pando_row* row);
// In the cursor's own order, which `reverse` turns around.
pando_code pando_cursor_seek_to_first(pando_cursor* cursor, pando_row* row);
pando_code pando_cursor_seek_to_last(pando_cursor* cursor, pando_row* row);
// The first entry that is not before `key`.
pando_code pando_cursor_seek(pando_cursor* cursor, pando_bytes key, pando_row* row);

// The same moves where another thread may move or close the cursor, its session or its client: the
// row is shown to `take`, on this thread, while none of them can. Valid during the callback only,
// which is called if the result is PANDO_OK, or PANDO_CANCELLED: it has thrown a C++ exception, and
// the cursor has moved all the same. `key`: of PANDO_MOVE_SEEK.
enum {
  PANDO_MOVE_NEXT = 0,
  PANDO_MOVE_PREV = 1,
  PANDO_MOVE_TO_FIRST = 2,
  PANDO_MOVE_TO_LAST = 3,
  PANDO_MOVE_SEEK = 4
};
typedef void (*pando_take_row)(void* context, const pando_row* row);
pando_code pando_cursor_take(pando_cursor* cursor, int64_t move, pando_bytes key,
                             pando_take_row take, void* context);

#ifdef __cplusplus
}  // extern "C"
#endif
