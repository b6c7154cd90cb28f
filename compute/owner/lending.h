// What an owner has lent of a range (rule O15): for a read lease's length others may read its
// leaves without asking, and the owner decides no write. A range is lent while nobody writes to it
// and its leaves have all of it.
//
// Read leases: Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed
// file cache consistency" (SOSP'89). Here the holder keeps no copy, only the right to look.
//
// Not thread-safe: the mutex of the range's partition. Times: of the serving lease's clock.
// Invariants:
//   1. Nothing is lent between a write that was told to wait and the end of what was lent before.
//   2. What is lent to a reader ends, by the reader's clock, before until_ns(), if the rates of
//      clocks differ by less than a tenth.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pando {

class Lending {
 public:
  // For so much longer than a reader reads its owner waits: clocks' rates differ.
  static constexpr int64_t WaitNs(int64_t lease_ns) { return lease_ns + lease_ns / 4; }

  // A write is about to be decided. False: not before until_ns(), see Over() and NoteWait().
  bool MayWrite() {
    wrote_ = true;
    lends_ = false;
    waits_ = until_ns_ != 0;
    return !waits_;
  }
  int64_t until_ns() const { return until_ns_; }  // 0: nothing is lent
  // until_ns() has passed.
  void Over() {
    until_ns_ = 0;
    waits_ = false;
  }
  // A write waits: where one does soon after the range was lent, it takes longer the next time.
  void NoteWait(int64_t now_ns, int64_t lease_ns);

  // A reader asks. `after_ns`: for how long nobody wrote before the range is lent; 0: it is
  // whenever its leaves have all of it (`is_clean`); below 0: never.
  bool Lend(int64_t now_ns, int64_t lease_ns, int64_t after_ns, bool is_clean) {
    was_asked_ = true;
    if (waits_ || !is_clean || after_ns < 0 || (after_ns > 0 && !lends_)) return false;
    until_ns_ = std::max(until_ns_, now_ns + WaitNs(lease_ns));
    if (lent_since_ns_ == 0) lent_since_ns_ = now_ns;
    return true;
  }
  // Every now and then. True: it was asked, and would be lent if its leaves had all of it.
  bool Look(int64_t now_ns, int64_t after_ns, bool is_clean);

 private:
  bool wrote_ = true;  // since the last look
  bool lends_ = false;
  bool was_asked_ = false;
  bool waits_ = false;  // a write, for what is lent
  int64_t until_ns_ = 0;
  int64_t quiet_since_ns_ = 0;
  int64_t lent_since_ns_ = 0;  // 0: it was not, since the last write that waited
  int64_t factor_ = 1;         // of what Look() was told
};

}  // namespace pando
