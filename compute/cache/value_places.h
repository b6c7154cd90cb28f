// Where a client has last met the values that lie in cells: references by key, of all trees, so
// that a get READs slot and cell together (rule K5). A hint, never more: what the slot says counts.
//
// Bounded: buckets of two cache lines with five places each; where one is full a place goes that no
// get has found since the last one went. Pages are touched as places come.
//
// Thread-safe, and nobody waits: who meets a writer in a bucket finds nothing there, or remembers
// nothing. Invariants:
//   1. What Find() gives was given to Remember() as a whole, and of that tree and key, but for keys
//      with equal hashes.
//   2. What Remember(), Forget() and Try() do is a function of the calls in their order, not of
//      addresses or time: runs of the simulator repeat.
//   3. Where less than a quarter of the places that were tried were right, for long, one in
//      kTriedOneIn is tried, until more are: a wrong one costs a READ as long as its value.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/wire/value_cell.h"

namespace pando {

class ValuePlaces {
 public:
  // Below the size of a bucket, 128 bytes, or where there is no memory: remembers nothing.
  explicit ValuePlaces(size_t bytes_max);
  ~ValuePlaces();
  ValuePlaces(const ValuePlaces&) = delete;
  ValuePlaces& operator=(const ValuePlaces&) = delete;

  bool enabled() const { return bucket_count_ > 0; }
  static uint64_t HashOf(uint32_t tree_id, std::string_view key);

  // `hash` is HashOf() everywhere.
  std::optional<CellReference> Find(uint64_t hash) const;
  // What Find() gives, or nothing where trying it is not worth it now (invariant 3). The caller
  // says whether the value was there.
  std::optional<CellReference> Try(uint64_t hash);
  void NoteTried(bool was_there);
  void Remember(uint64_t hash, const CellReference& cell);
  void Forget(uint64_t hash);

  // Of the places that are remembered now, with their part of the buckets' heads.
  size_t bytes() const;

 private:
  static constexpr size_t kWays = 5;
  static constexpr uint32_t kTriedOneIn = 16;
  // Three for one that was right, less one for one that was not. At 0 most are not tried any more,
  // from kCreditAgain on all are.
  static constexpr uint32_t kCreditMax = 1024, kCreditOfRight = 3, kCreditAgain = 16;
  struct Place {
    uint64_t address;        // 0: none
    uint64_t life_checksum;  // 32 bits each
    uint64_t tag_bytes;      // of the hash 47 bits, of the value's length 17
  };
  // All zero at first. Words are accessed by atomic_ref alone.
  struct alignas(128) Bucket {
    uint32_t version;  // odd: somebody writes
    uint32_t marks;    // a bit a place: found since the hand came by; then: the hand
    Place places[kWays];
  };
  static_assert(sizeof(Bucket) == 128);
  Bucket* BucketOf(uint64_t hash) const {
    return buckets_ + (((hash >> 32) * bucket_count_) >> 32);
  }
  // Ends with Unlock(). False: somebody else writes there.
  static bool TryLock(Bucket* bucket, uint32_t* version);
  static void Unlock(Bucket* bucket, uint32_t version);
  // Where the hash is, or kWays.
  static size_t WayOf(Bucket* bucket, uint64_t hash);
  // An empty one, or one that has not been found for long. Locked.
  static size_t FreeWay(Bucket* bucket);

  size_t bucket_count_;
  Bucket* buckets_ = nullptr;
  std::atomic<uint64_t> held_{0};
  // Read by each Try(), written only while some places are wrong.
  std::atomic<uint32_t> credit_{kCreditMax};
  std::atomic<bool> tries_few_{false};
  std::atomic<uint32_t> not_tried_{0};
};

}  // namespace pando
