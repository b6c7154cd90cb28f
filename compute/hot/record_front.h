// Popular records of a partition, copied to where they are read without its mutex (rule T9): a
// direct-mapped table by the hash of the key. Readers do not lock, and write no shared line in the
// steady state: they validate, as with optimistic lock coupling (Leis et al., DaMoN 2016) and
// FaRM's versions (NSDI 2014). A slot is a seqlock whose words are all atomic, so that it needs no
// fences and has no data race (Boehm, "Can seqlocks get along with programming language memory
// models?", MSPC 2012).
//
// Thread safety: Find() and Prefetch() are any thread's, at any time of this object's life.
// Everything else is for the holder of the partition's mutex.
// Invariants:
//   1. A slot of the current generation has what Show() or Change() has last said of its key. No
//      number of a generation is used twice in the process. So what Find() finds was said of the
//      key in the generation that was the current one when Find() began: it was so then, or has
//      come to be so since, while that generation was the current one. What has changed meanwhile
//      need not be looked at again.
//   2. An array of slots that is not used any more goes to a list, for other fronts of the process,
//      and never back to the heap: a reader may still be in it. It keeps its shape, and the
//      versions of its slots only rise. So such a reader reads slots, of no matter whom, and finds
//      no slot of its generation with another one's record.
//   3. Find() allocates nothing but what the value needs, and never waits: what is being written
//      is not found.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "common/wire/lsn.h"

namespace pando {

class alignas(64) RecordFront {
 public:
  // Records whose key and value have more together are not shown.
  static constexpr size_t kRecordBytesMax = 224;

  RecordFront() = default;
  ~RecordFront() { Clear(); }
  RecordFront(const RecordFront&) = delete;
  RecordFront& operator=(const RecordFront&) = delete;

  // True: it is shown, with this value (nullptr: not asked for) and LSN. False says nothing.
  bool Find(std::string_view key, uint64_t hash, std::string* value, Lsn* lsn) const;

  // What Find() and Change() will look at comes nearer.
  void Prefetch(uint64_t hash) const;

  // It is shown from now on. False: it is not, as it is too long, or as somebody has found what is
  // in its place since the last one came by. Begins a generation if there is none, or if the front
  // grows: it may have so many bytes (but always those of a few slots), and then is empty.
  bool Show(std::string_view key, uint64_t hash, std::string_view value, Lsn lsn, size_t bytes_max);
  // If the key is shown, then with this from now on. False: it is not (any more).
  bool Change(std::string_view key, uint64_t hash, std::string_view value, Lsn lsn);
  // The key is not shown.
  void Hide(std::string_view key, uint64_t hash);
  // Whether the key is shown and was found since this was last asked.
  bool TakeUsed(std::string_view key, uint64_t hash);
  // Nothing is shown until Show() begins another generation.
  void Close() { generation_.store(kClosed, std::memory_order_release); }
  // The same, and its memory goes.
  void Clear();
  // The same, unless it has no more than it always may have.
  void Shrink();

  size_t bytes() const { return bytes_; }

  // For tests: calls `see` with everything that is shown.
  void Check(absl::FunctionRef<void(std::string_view, std::string_view, Lsn)> see) const;

 private:
  using Word = std::atomic<uint64_t>;
  // Of a slot; then key and value.
  enum : size_t { kVersion, kGeneration, kLsn, kUsed, kRecord };
  static constexpr uint64_t kClosed = 0;  // no slot's generation, but an empty one's

  struct Array;
  class Arrays;

  static Arrays& SpareArrays();
  // Of the key, if it is shown, else nullptr.
  Word* SlotOf(std::string_view key, uint64_t hash) const;
  static void Write(Word* slot, uint64_t generation, std::string_view key, std::string_view value,
                    Lsn lsn);
  // For records of so many bytes; false: there is no room for that.
  bool Prepare(size_t record_bytes, size_t bytes_max);

  std::atomic<uint64_t> generation_{kClosed};
  std::atomic<Array*> array_{nullptr};
  // Behind the mutex, and hardly ever written.
  size_t bytes_ = 0;
  size_t too_long_ = 0;  // for the slots there are
};

}  // namespace pando
