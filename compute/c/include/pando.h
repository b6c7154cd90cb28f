// Pando in C: an ordered index over the memory of memory servers. For C11, and for C++.
//
//   pando_client* client;
//   pando_client_options options = PANDO_CLIENT_OPTIONS_INIT;
//   options.registry = "/run/user/1000/pando";
//   if (pando_connect(&options, &client) != PANDO_OK) puts(pando_last_message());
//   pando_tree* tree;
//   pando_create_tree(client, "words", NULL, &tree);
//   pando_session* session;                                        // one a thread
//   pando_open_session(client, &session);
//   pando_put(session, tree, pando_text("key"), pando_text("value"), NULL);
//   char value[8];
//   size_t size;
//   pando_get(session, tree, pando_text("key"), value, sizeof(value), &size, NULL);
//   pando_close_client(client);                                    // and all that came of it
//
// Errors. Every function returns a code, PANDO_OK or what went wrong; pando_last_message() is the
// sentence that goes with it. No function ends the process, sets errno, prints, or lets a C++
// exception out. What a function gives back through pointers counts only with the codes that its
// comment names; with others it is not touched, but for handles, which are NULL then.
//
// Handles (pando_client and so on) are numbers in the shape of pointers: nobody but Pando can
// follow them. One that was closed, or that is none, is noticed: PANDO_CLOSED,
// PANDO_INVALID_ARGUMENT. NULL is PANDO_INVALID_ARGUMENT, but for pando_close_*(), which do nothing
// and return PANDO_OK.
//
// Who owns what. What is passed in stays the caller's and is needed during the call only: keys,
// values, texts and options are copied, also by pando_submit(). What a function makes (`client`,
// `tree`, `session`, `cursor`, `executor`, `list`) is the caller's to close with the
// pando_close_*() of its type. To close a client closes all trees, sessions, cursors and executors
// that came of it, to close a session its cursors. Lists belong to nobody else. Cursors and
// executors go on when the handle of a tree is closed that they work on, and keep the tree open
// until they are closed. To close something waits until calls of other threads that use it have
// returned, and to close an executor or its client until operations have ended, all by their
// deadlines.
//
// Threads. Every function may be called from every thread. A session and its cursors serve one
// thread at a time: a call while another thread is inside one of theirs is
// PANDO_FAILED_PRECONDITION. Clients, trees, executors and lists serve any number at once. After
// fork() the child cannot use its parent's handles, nor close them (PANDO_FAILED_PRECONDITION), and
// connects anew.
//
// Callbacks are called by Pando, on threads that each says. Inside one only pando_last_message()
// and functions of lists may be called, and pando_submit() inside that of pando_submit(); all
// others are PANDO_FAILED_PRECONDITION. A callback returns (no longjmp); where it is C++ and
// throws, that is as if it had refused, or noticed in the library's log where there is nothing to
// refuse. It has 128 KiB of stack, of which Pando uses some, and no thread of its own to wait on:
// it is quick.
//
// Stable ABI. Symbols are of the version PANDO_1. Structs that begin with `size` may get more
// fields at their end: `size` is sizeof(the struct) of the program's own headers (PANDO_..._INIT
// does that). What an older program does not have gets its default; a newer program's fields that
// this library does not know have to be 0, else PANDO_INVALID_ARGUMENT. All their fields are of 8
// bytes, or a pando_bytes. Structs without `size`, and values of constants, never change. Fields
// that are flags are 0 or 1.
//
// Units are in names (_bytes, _ms). Sizes of keys and values are in bytes without any end mark:
// they may hold zero bytes. Names, addresses and options are texts that end with a zero byte.
//
// Against the C++ interface: there are no tasks in a session (Session::Spawn); many operations in
// flight are for pando_multi_get() and its like, or an executor. Session::EraseRange(),
// Client::Leave() and the options narrow_reads, delete_persistence_ms and spread_ranges have no
// counterpart yet.
#pragma once

#include "pando_c/base.h"      // codes, bytes, lists
#include "pando_c/client.h"    // connecting, trees, owners, counters
#include "pando_c/cursor.h"    // reading in the order of keys
#include "pando_c/executor.h"  // operations from any thread, answers by callback
#include "pando_c/log.h"       // the library's log in the program's own
#include "pando_c/session.h"   // operations
#include "pando_c/upkeep.h"    // loading, checking, sizes
