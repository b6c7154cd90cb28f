// When what was appended to a member's log, by notes of the time: how old a tombstone is (rule B5),
// which keeps its age where it gets a new message.
//
// Not thread-safe: in coroutines of the member's session.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "common/wire/lsn.h"

namespace pando {

class AppendTimes {
 public:
  // Beyond so many notes every second one goes.
  static constexpr size_t kNotesMax = 256;

  // `time_ns`: before the log was asked for its next LSN. Whatever has that, or a higher one, is
  // younger.
  void Note(int64_t time_ns, Lsn next) {
    if (!notes_.empty() && notes_.back().lsn == next) notes_.pop_back();  // nothing came since
    notes_.push_back({next, time_ns});
    if (notes_.size() <= kNotesMax) return;
    for (size_t i = 1; i < notes_.size() / 2; ++i) notes_[i] = notes_[2 * i];
    notes_.resize(notes_.size() / 2);
  }
  // Whatever gets a new message is as old as any from now on.
  void NoteAppendedAgain() {
    if (!notes_.empty()) notes_.resize(1);
  }
  // Nobody asks for what is older than this any more.
  void Forget(Lsn below) {
    size_t useless = 0;
    while (useless + 1 < notes_.size() && notes_[useless + 1].lsn <= below) ++useless;
    notes_.erase(notes_.begin(), notes_.begin() + static_cast<std::ptrdiff_t>(useless));
  }

  // That message was appended at this time, or later. 0: nothing is known of it.
  int64_t After(Lsn lsn) const {
    const auto note = std::upper_bound(notes_.begin(), notes_.end(), lsn,
                                       [](Lsn of, const Noted& other) { return of < other.lsn; });
    return note == notes_.begin() ? 0 : std::prev(note)->time_ns;
  }
  // All messages that were appended before that time have lower ones. `next`: of the log now.
  Lsn Before(int64_t time_ns, Lsn next) const {
    const auto note =
        std::lower_bound(notes_.begin(), notes_.end(), time_ns,
                         [](const Noted& other, int64_t of) { return other.time_ns < of; });
    return note == notes_.end() ? next : note->lsn;
  }

 private:
  struct Noted {
    Lsn lsn;
    int64_t time_ns;
  };

  std::vector<Noted> notes_;  // ascending
};

}  // namespace pando
