// Reading a tree in the order of its keys, upwards or downwards, entry by entry.
//
//   auto cursor = session->NewCursor(tree, {.prefix = "user:"});
//   while (cursor->Next()) Use(cursor->key(), cursor->value());
//   if (!cursor->status().ok()) ...                    // else the range is over
//
//   cursor->Seek("user:4711");                         // the first entry from there on
//
// What a cursor promises while others write: keys come in order, none twice. It shows every key of
// the range that is present throughout. Each pair was current at some moment since the last
// Seek*(), or since the cursor was made. It is not a snapshot. The cursor READs whole leaves ahead,
// so a pair may be as old as the call that READ it; Seek*() forgets what was READ before.
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

// A range of a tree's entries, and the order in which to read it.
struct CursorOptions {
  // The keys: from <= key < to. Any bytes of any length, even if no key of the tree can be so long.
  std::string from = {};               // "": from the smallest key
  std::optional<std::string> to = {};  // not given: to the greatest key; "": no key is below that
  bool from_exclusive = false;         // from < key
  bool to_inclusive = false;           // key <= to
  std::string prefix = {};             // and only keys that begin so
  // Downwards: the first entry has the greatest key, and Next() goes to smaller keys.
  bool reverse = false;
  // Next() returns at most this many entries, counting the one that Seek*() found; each Prev()
  // gives one back.
  size_t limit = SIZE_MAX;
  // Leaves that the cursor READs at once, all in flight together, and keeps in memory: 1 to
  // kReadAheadMax. 0: two at first, and more as the cursor goes on, up to 16. It READs none beyond
  // the range, and not many more than the limit needs.
  static constexpr int kReadAheadMax = 256;
  int read_ahead = 0;
  // The deadline is for each call. `cost` adds up the cost of all calls, and must outlive the
  // cursor.
  OperationOptions operation = {};
};

// A place in a range: on an entry, between two, before the first or after the last. "First",
// "next" and so on follow the cursor's own order, which CursorOptions::reverse turns around.
//
// A new cursor stands before the first entry. All moves return Valid(): whether the cursor is on an
// entry now. If not, status() says why: OK means that there is no entry. A call READs only when it
// leaves the leaves that were READ before.
//
// A call that fails (DeadlineExceeded, Unavailable, DataLoss, FailedPrecondition as all operations)
// leaves the cursor between two entries, after the one that it was on (Next) or before it (Prev).
// Repeat the call to go on from there: it skips nothing and shows nothing twice. After a failed
// Seek*() go on with Next(), after SeekToLast() with Prev(). An earlier error does not affect the
// next call. InvalidArgument: the options are wrong, and no call succeeds.
//
// Not thread-safe: belongs to its session's thread. Like operations, calls block outside the
// session's tasks and suspend the task inside. Two tasks must not use it at once. The session
// (CHECKed) and the tree's handle must outlive it.
class Cursor {
 public:
  ~Cursor();
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  bool SeekToFirst();
  bool SeekToLast();
  // The first entry whose key is not before `key`, which may be any bytes: key >= `key`, in a
  // reverse cursor key <= `key`. A `key` outside the range counts as the border of the range.
  bool Seek(std::string_view key);
  // The entry after this one, or after the place between entries. After the last entry there is
  // none; Prev() goes back to it.
  bool Next();
  // The entry before. Before the first there is none; Next() goes back to the first. You may change
  // the direction at any time.
  bool Prev();

  bool Valid() const;
  // Key and value of the entry. Needs Valid() (CHECKed). The views are valid until the cursor
  // moves.
  std::string_view key() const;
  std::string_view value() const;
  // The status of the last move.
  const absl::Status& status() const;

 private:
  friend class Session;
  explicit Cursor(std::unique_ptr<CursorImpl> impl);

  std::unique_ptr<CursorImpl> impl_;
};

}  // namespace pando
