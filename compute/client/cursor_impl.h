// The inside of a Cursor: a piece of the range that has been READ, and a place in it.
//
// All places and neighbours here are in ascending order; `reverse` only says which way is "next".
// Not thread-safe. Invariants:
//   1. The piece holds all entries between its two cuts, as READ (RangeReader): going on at one
//      of its ends neither skips nor repeats a key.
//   2. A fetch that fails changes nothing.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "compute/client/session_impl.h"
#include "compute/route/routed_tree.h"
#include "pando/cursor.h"

namespace pando {

// InvalidArgument.
absl::Status CheckCursorOptions(const CursorOptions& options);

class CursorImpl {
 public:
  CursorImpl(SessionImpl* session, const Tree& tree, const CursorOptions& options);
  ~CursorImpl();
  CursorImpl(const CursorImpl&) = delete;
  CursorImpl& operator=(const CursorImpl&) = delete;

  bool SeekToFirst() { return StandAt(options_.reverse ? range_.high : range_.low) && Next(); }
  bool SeekToLast();
  bool Seek(std::string_view key);
  bool Next();
  bool Prev();

  bool valid() const { return valid_; }
  const LeafEntry& entry() const;
  const absl::Status& status() const { return status_; }

 private:
  // Forgets what was READ. False: the options are wrong.
  bool StandAt(const KeyCut& place);
  // Takes the place behind or before the entry, and goes on to the next entry upwards or downwards.
  bool Move(bool up);
  // The place is at the end of the piece: READs on from there.
  absl::Status Fetch(OperationContext& context, bool up);
  size_t LeavesToRead(bool up);

  SessionImpl& session_;
  const Tree& tree_;
  const CursorOptions options_;
  const KeyRange range_;
  absl::Status refusal_;  // of the options
  absl::Status status_;
  RangeReader reader_;

  // The piece: entries_[0, count_), ascending, between two cuts. What is behind `count_` is memory
  // for others.
  KeyCut low_, high_;
  std::vector<LeafEntry> entries_;
  size_t count_ = 0;
  bool valid_ = false;
  size_t at_ = 0;  // of the entry; not valid: of the one above the place
  // How many entries lie between what a Seek*() has found and this one, or the one that Next() goes
  // to.
  int64_t rank_ = 0;
  size_t leaves_ahead_;  // of the next fetch, where nobody has chosen
  bool last_up_ = true;  // where the last fetch went
};

}  // namespace pando
