// Pando in C: an ordered index over the memory of memory servers. For C11, and for C++.
//
//   pando_client* client;
//   pando_client_options options = PANDO_CLIENT_OPTIONS_INIT;
//   options.registry = "/run/user/1000/pando";
//   if (pando_connect(&options, &client) != PANDO_OK) puts(pando_last_message());
//   pando_tree* tree;
//   pando_create_tree(client, "words", NULL, &tree);
//   pando_session* session;                                        // one per thread
//   pando_open_session(client, &session);
//   pando_put(session, tree, pando_text("key"), pando_text("value"), NULL);
//   char value[8];
//   size_t size;
//   pando_get(session, tree, pando_text("key"), value, sizeof(value), &size, NULL);
//   pando_close_client(client);                                    // and all its handles
//
// Errors. Every function returns a code: PANDO_OK, or what went wrong. pando_last_message() is the
// sentence for that error. No function lets a C++ exception out. A function writes results through
// pointers only with the codes that its comment names. With other codes it leaves them alone,
// except handles, which it sets to NULL. errno may change. The library's log goes to standard error
// (pando_set_log_sink()). The process ends where it has no more memory in the middle of an
// operation, which cannot be left half done, and where Pando finds a bug of its own; never else.
//
// Handles (pando_client and so on) are numbers with pointer types; do not dereference them. Pando
// detects a handle that was closed (PANDO_CLOSED), or that never existed (PANDO_INVALID_ARGUMENT).
// NULL is PANDO_INVALID_ARGUMENT, except for pando_close_*(), which do nothing and return
// PANDO_OK.
//
// Ownership. Arguments stay the caller's. Pando needs them during the call only: it copies keys,
// values, texts and options, also in pando_submit(). The caller closes what a function makes
// (`client`, `tree`, `session`, `cursor`, `executor`, `list`) with the pando_close_*() of its type.
// Closing a client closes all trees, sessions, cursors and executors that it made; closing a
// session closes its cursors. Only the caller closes lists. Cursors keep their tree open until they
// are closed, and executors until the operations on it have ended, even if the tree's handle is
// closed before. Closing waits until calls of other threads that use the handle have returned.
// Closing an executor or its client also waits until its operations have ended, all by their
// deadlines. PANDO_CLOSED from pando_close_*(): another call has closed it, or is still waiting for
// that.
//
// Threads. Any thread may call any function. A session and its cursors serve one thread at a time:
// a call while another thread is inside one of theirs is PANDO_FAILED_PRECONDITION. Clients, trees,
// executors and lists serve any number of threads at once. After fork() the child can neither use
// nor close its parent's handles (PANDO_FAILED_PRECONDITION); it opens a new connection.
//
// Callbacks. The comment of each says on which thread Pando calls it. A callback may call only
// pando_last_message() and the functions of lists, and that of pando_submit() also pando_submit();
// all others return PANDO_FAILED_PRECONDITION. A callback must return (no longjmp). A C++ exception
// counts as a refusal; where there is nothing to refuse, Pando logs it. A callback has 128 KiB of
// stack, of which Pando uses some, and no thread of its own to wait on: it must be quick.
//
// Stable ABI. Symbols are of the version PANDO_1, later ones of PANDO_2. Structs that begin with
// `size` may get more fields at their end: `size` is sizeof(the struct) of the program's own
// headers (PANDO_..._INIT sets it). Fields that an older program does not have get their defaults.
// A newer program's fields that this library does not know must be 0, else
// PANDO_INVALID_ARGUMENT. All their fields have 8 bytes, or are a pando_bytes. Structs without
// `size`, and values of constants, never change. Fields that are flags are 0 or 1.
//
// Units are in names (_bytes, _ms). Keys and values have no terminator, and may contain zero bytes;
// their sizes are in bytes. Names, addresses and options are texts that end with a zero byte.
//
// Unlike in C++, a session has no tasks (Session::Spawn). To have many operations in flight, use
// pando_multi_get() and the like, or an executor.
#pragma once

#include "pando_c/base.h"      // codes, bytes, lists
#include "pando_c/client.h"    // connecting, trees, owners, counters
#include "pando_c/cursor.h"    // reading in the order of keys
#include "pando_c/executor.h"  // operations from any thread, answers by callback
#include "pando_c/log.h"       // the library's log in the program's own
#include "pando_c/session.h"   // operations
#include "pando_c/upkeep.h"    // loading, erasing ranges, checking, sizes
