// What a redo log has in its ring (rules W2, W3, W5): which bytes go where, which are promised,
// which may be used again. Decides everything about the log that needs no memory server and no
// waiting.
//
// Positions count the bytes that have gone to the ring, fillers included, since the log began; what
// lies at a position is at position % ring bytes. Not thread-safe: the log's mutex is held.
// Invariants:
//   1. A message that is appended has a reservation, and a reservation is lines of its own for one
//      message: whatever shares a batch takes no more. Used and promised bytes together fit the
//      ring less one batch, which is for the filler that ends a turn of the ring; there is never
//      more than one in use. So appending never fails.
//   2. Batches are closed in order, have their bytes, place and checksum from then on, and never
//      change.
//   3. durable(): the last LSN of which it and all before it are in batches that are written.
//   4. A byte is used again only when it is below the base that a complete base line names, and no
//      chain may still be in flight to a batch at or below it, though it be written by another
//      (rule W3).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "common/wire/log_format.h"
#include "common/wire/lsn.h"

namespace pando {

// One batch: open (it takes messages), then closed. Its writer holds a reference, and reads its
// bytes.
struct LogBatch {
  std::vector<std::byte> bytes;  // header and messages; whole lines once closed
  std::array<std::byte, kLogLineBytes> filler;
  Lsn first_lsn = kNoLsn;
  uint32_t messages = 0;
  uint32_t message_bytes = 0;
  uint64_t promised = 0;  // bytes that its messages had reserved

  // Once closed.
  uint64_t number = 0;    // among those of the ring
  uint64_t start = 0;     // position of the filler before it, if any, else of the batch
  uint64_t position = 0;  // of the batch
  bool posted = false;    // somebody writes it, or has written it
  bool written = false;
  int chains = 0;         // that may be in flight to it
  int suspects = 0;       // of these, that have failed (rule W4)
  int64_t posted_ns = 0;  // last

  bool has_filler() const { return start != position; }
  Lsn end_lsn() const { return first_lsn + messages; }
};

class LogRing {
 public:
  struct Shape {
    uint64_t ring_bytes = 0;       // whole lines
    uint32_t batch_bytes_max = 0;  // whole lines; at most an eighth of the ring
  };
  LogRing(const Shape& shape, const LogPlace& first);

  // Begins anew in a larger ring, or one as large, with all batches that are not durable and
  // whatever is promised (rule W6). Batches with a writer are no longer of this ring.
  void MoveTo(const Shape& shape, uint32_t epoch);

  const Shape& shape() const { return shape_; }
  // Of one message on its own.
  static uint64_t CostOf(uint32_t message_bytes) {
    return LogLinesBytes(kLogBatchHeaderBytes + message_bytes);
  }
  // False: it is too full. `last`: the last sixteenth may be used, too (rule W5).
  bool TryPromise(uint64_t cost, bool last);
  void TakeBack(uint64_t cost) { promised_ -= cost; }
  // `cost` has been promised.
  Lsn Append(const LogMessage& message, uint64_t cost);

  Lsn next_lsn() const { return open_->first_lsn + open_->messages; }
  Lsn durable() const { return durable_; }
  // The oldest batch without a writer; nullptr: only the open one may be left.
  LogBatch* FirstClosed() const;
  uint32_t open_messages() const { return open_->messages; }
  // The first LSN of a batch without a writer; next_lsn(): there is none.
  Lsn FirstUnposted() const;
  // Returns the oldest batch without a writer, and marks it as posted. If there is none, closes the
  // open batch, which has messages.
  std::shared_ptr<LogBatch> Take();
  // Batches that are posted and not written; the oldest one, nullptr: there is none.
  int in_flight() const { return in_flight_; }
  std::shared_ptr<LogBatch> OldestInFlight() const;
  void NotePutBack(LogBatch* batch);  // nothing of it was posted
  void NoteWritten(LogBatch* batch);
  // A chain to the batch has ended, or is known never to land.
  void NoteChainOver(LogBatch* batch);

  // A place to read the log from.
  struct Mark {
    uint64_t position = 0;
    LogPlace place;
  };
  // The last one at or below an LSN of which all before is durable.
  Mark MarkAt(Lsn base) const;
  // The base line that names it is complete.
  void NoteBase(const Mark& mark);

  // From the oldest byte that is in use to the end.
  uint64_t used_bytes() const { return tail_ - free_until_; }
  uint64_t promised_bytes() const { return promised_; }
  // What used and promised bytes may be at most.
  uint64_t capacity_bytes() const { return shape_.ring_bytes - shape_.batch_bytes_max; }
  uint64_t padding_bytes() const { return padding_; }

 private:
  void Open(Lsn first);
  void Close();
  // Gives the batch its place at the end.
  void Place(std::shared_ptr<LogBatch> batch);
  void FreeBytes();
  void KeepBytes(std::vector<std::byte> bytes);
  LogBatch* At(uint64_t number) const { return closed_[number - closed_.front()->number].get(); }

  Shape shape_;
  std::shared_ptr<LogBatch> open_;
  std::deque<std::shared_ptr<LogBatch>>
      closed_;  // from the oldest that holds bytes in use by a chain on
  uint64_t next_number_ = 0, unwritten_ = 0;  // numbers; of the first that is not written
  int in_flight_ = 0;
  LogPlace next_;  // of the next batch to close
  uint64_t tail_ = 0, base_position_ = 0, free_until_ = 0, promised_ = 0, padding_ = 0;
  Lsn durable_;
  std::deque<Mark> marks_;  // the first one is the base's
  std::vector<std::vector<std::byte>> spare_bytes_;
};

}  // namespace pando
