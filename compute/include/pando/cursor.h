// Reading a tree in the order of its keys, upwards or downwards, entry by entry.
//
//   auto cursor = session->NewCursor(tree, {.prefix = "user:"});
//   while (cursor->Next()) Use(cursor->key(), cursor->value());
//   if (!cursor->status().ok()) ...                    // else the range is over
//
//   cursor->Seek("user:4711");                         // the first entry from there on
//
// What a cursor promises while others write: keys come in order, none twice; every key of the range
// that is there throughout is seen; each pair was current at some moment since the last Seek*(), or
// since the cursor was made. It is no snapshot. Entries are READ leaves at a time, so a pair may be
// as old as the call that READ it; Seek*() forgets what was READ before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "pando/options.h"

namespace pando {

class CursorImpl;
class SessionImpl;
class Tree;

// A range of a tree's entries, and how to go through it.
struct CursorOptions {
  // The keys: from <= key < to. Any bytes of any length, also such as no key of the tree can be.
  std::string from;               // "": from the smallest key
  std::optional<std::string> to;  // not given: to the greatest key; "": no key is below that
  bool from_exclusive = false;    // from < key
  bool to_inclusive = false;      // key <= to
  std::string prefix;             // and only keys that begin so
  // Downwards: the first entry is the one with the greatest key, Next() goes to smaller keys.
  bool reverse = false;
  // Next() goes through so many entries at most, with the one that Seek*() has found; Prev() takes
  // back what Next() has used up.
  size_t limit = SIZE_MAX;
  // Leaves that are READ at once, all in flight together: 1 to kReadAheadMax; also what the cursor
  // keeps in memory. 0: two at first, and more as the cursor goes on, up to 16. None beyond the
  // range, and not many more than the limit asks for.
  static constexpr int kReadAheadMax = 256;
  int read_ahead = 0;
  // The deadline is of each call. The cost of all of them is added up: `cost` outlives the cursor.
  OperationOptions operation;
};

// A place in a range: on an entry, or between two, or before the first or behind the last. "First",
// "next" and so on are in the cursor's own order, which CursorOptions::reverse turns around.
//
// A new cursor stands before the first entry. All moves return Valid(): whether the cursor is on an
// entry now. If not, status() says why: OK means that there is none. A call READs only where it
// leaves what has been READ.
//
// A call that fails (DeadlineExceeded, Unavailable, DataLoss, FailedPrecondition as all operations)
// leaves the cursor between two entries, behind the one that it was on (Next) or before it (Prev):
// the same call again goes on from there, and nothing is skipped or seen twice. A Seek*() that
// failed goes on with Next(), SeekToLast() with Prev(). What went wrong before does not matter to
// the next call. InvalidArgument: the options are wrong, no call succeeds.
//
// Not thread-safe: belongs to its session's thread. Like operations, calls block outside the
// session's tasks and suspend the task inside; not from two tasks at once. The session (CHECKed)
// and the tree's handle must outlive it.
class Cursor {
 public:
  ~Cursor();
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  bool SeekToFirst();
  bool SeekToLast();
  // The first entry whose key is not before `key`, which may be any bytes: key >= `key`, in a
  // reverse cursor key <= `key`. Outside the range: as if it were at its border.
  bool Seek(std::string_view key);
  // The entry behind this one, or behind the place between entries. Behind the last: none; Prev()
  // goes back to it.
  bool Next();
  // The entry before. Before the first: none; Next() goes back to it. The direction may be changed
  // at any time.
  bool Prev();

  bool Valid() const;
  // Of the entry; needs Valid() (CHECKed). They hold until the next call that moves the cursor.
  std::string_view key() const;
  std::string_view value() const;
  // Of the last move.
  const absl::Status& status() const;

 private:
  friend class Session;
  explicit Cursor(std::unique_ptr<CursorImpl> impl);

  std::unique_ptr<CursorImpl> impl_;
};

}  // namespace pando
