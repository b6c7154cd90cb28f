// Where a partition's records are, by key: a hash table of their handles. A lookup is two cache
// misses, of a bucket and of the record.
//
// Buckets of a cache line have a byte of each key's hash beside the handle. They lie in pages; a
// page grows by a quarter at a time, and is divided in two when it is large (extendible hashing:
// Fagin, Nievergelt, Pippenger, Strong, TODS 1979). So no insertion moves more than one page's
// handles, and there is never much more room than is used.
//
// Thread safety: Prefetch() is any thread's, at any time of this object's life. Everything else:
// none (the partition's mutex).
// Invariants:
//   1. A record is in its bucket or, where that was full when it came, in one behind it in its
//      page, and all buckets between count it as gone by: a search ends at one that none has.
//   2. A page is at most 15/16 full, and at least about half, but for its last bucket.
//   3. Where many keys have the same hash their page grows beyond its limit instead of being
//      divided for ever: the directory has at most kSpread places for each page.
//   4. A directory is kept as long as this object: Prefetch() may look at it. What it finds there
//      may be gone, but a prefetch of no matter what does no harm. bytes() counts those that there
//      have been since Clear(): a table that was cleared counts as much as a new one, so that who
//      adds and takes back what it counts comes out even.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "compute/hot/record_pool.h"

namespace pando {

// The same on every machine. Who wants to can find keys that have the same: they are slow, no more.
uint64_t HashOf(std::string_view key);

class RecordTable {
 public:
  explicit RecordTable(const RecordPool* pool);
  ~RecordTable();
  RecordTable(const RecordTable&) = delete;
  RecordTable& operator=(const RecordTable&) = delete;

  void Clear();

  // `hash` is HashOf(key), everywhere. The handle may be replaced by that of the same key's record
  // elsewhere. Good until an Insert() or Erase(); nullptr: there is no record.
  RecordHandle* Find(std::string_view key, uint64_t hash) const;
  // That of a record that is there.
  RecordHandle* Find(RecordHandle record, uint64_t hash) const;
  // There is no record of the key.
  RecordHandle* Insert(uint64_t hash, RecordHandle handle);
  void Erase(RecordHandle* handle, uint64_t hash);
  // What Find() will look at first comes nearer.
  void Prefetch(uint64_t hash) const {
    __builtin_prefetch(directory_.load(std::memory_order_acquire)->At(hash).NearBucket(hash));
  }

  // The same of the record that it will find, mostly. With the partition's mutex.
  void PrefetchRecord(uint64_t hash) const;

  size_t bytes() const { return bytes_; }  // of the heap (4.)

  // For tests: aborts unless the invariants hold. Returns the number of records.
  size_t Check() const;

 private:
  static constexpr size_t kSlots = 12;
  struct alignas(64) Bucket {
    std::array<uint8_t, kSlots> tags;  // 0: free
    uint16_t gone_by;                  // records that did not fit; UINT16_MAX: who knows how many
    uint16_t unused;
    std::array<RecordHandle, kSlots> handles;
  };
  static_assert(sizeof(Bucket) == 64);
  struct alignas(64) Page {
    uint32_t buckets_count;
    uint32_t records;
    uint8_t depth;  // how many bits of the hash its keys have in common

    Bucket* buckets() { return reinterpret_cast<Bucket*>(this + 1); }
  };
  // Of a directory: a page and its buckets, so that the page need not be looked at. In one word:
  // all directories that there were are kept.
  class Place {
   public:
    void Set(const Page* page);
    void Set(const Place& other) { word_.store(other.word(), std::memory_order_relaxed); }
    Page* page() const { return PageIn(word()); }
    // Of a page with so many that they have no room here 65,535: they only say what to fetch.
    uint32_t buckets() const { return static_cast<uint32_t>(word() >> kAddressBits); }
    // Where the bucket of the hash is, or was.
    const void* NearBucket(uint64_t hash) const {
      const uint64_t word = this->word();
      const uint32_t bucket = BucketOf(hash, static_cast<uint32_t>(word >> kAddressBits));
      const auto page = reinterpret_cast<uintptr_t>(PageIn(word));
      return reinterpret_cast<const void*>(page + (bucket + 1) * sizeof(Bucket));
    }

   private:
    // Of addresses in user space, on x86-64 and AArch64.
    static constexpr int kAddressBits = 48;
    static Page* PageIn(uint64_t word) {
      return reinterpret_cast<Page*>(word & ((uint64_t{1} << kAddressBits) - 1));
    }
    uint64_t word() const { return word_.load(std::memory_order_relaxed); }

    std::atomic<uint64_t> word_{0};
  };
  // Places by the first bits of the hash.
  struct Directory {
    explicit Directory(int depth)
        : depth(depth), places(std::make_unique<Place[]>(size_t{1} << depth)) {}

    size_t size() const { return size_t{1} << depth; }
    // Not by 64 bits at once.
    size_t IndexOf(uint64_t hash) const { return hash >> 1 >> (63 - depth); }
    Place& At(uint64_t hash) const { return places[IndexOf(hash)]; }

    const int depth;  // how many bits
    const std::unique_ptr<Place[]> places;
  };
  static constexpr uint32_t kBucketsMax = 64, kSpread = 64;
  static constexpr uint32_t kBucketsMany = 65'535;  // or more, in a place
  static constexpr int kDepthMax = 24;

  static uint8_t TagOf(uint64_t hash) {
    const auto tag = static_cast<uint8_t>(hash);
    return tag == 0 ? 1 : tag;
  }
  static uint32_t BucketOf(uint64_t hash, uint32_t buckets) {
    return static_cast<uint32_t>((uint64_t{static_cast<uint32_t>(hash >> 8)} * buckets) >> 32);
  }
  static uint32_t FullOf(uint32_t buckets) {  // how many records, at most
    return static_cast<uint32_t>(buckets * kSlots * size_t{15} / 16);
  }
  static size_t HeapBytes(uint32_t buckets) { return (buckets + 1) * sizeof(Bucket) + 16; }
  static size_t HeapBytes(const Directory& directory) {
    return sizeof(Directory) + directory.size() * sizeof(Place) + 2 * 16;
  }

  Directory& Current() const { return *directory_.load(std::memory_order_relaxed); }
  // Of the hash.
  Page* PageOf(uint64_t hash) const { return Current().At(hash).page(); }
  // The one with so many bits, whose places are anything.
  Directory* DirectoryOf(int depth);
  template <typename Is>
  RecordHandle* Search(uint64_t hash, Is is) const;

  Page* NewPage(uint32_t buckets, uint8_t depth);
  void Free(Page* page);
  void FreePages();
  // Into a page with room.
  static RecordHandle* Add(Page* page, uint64_t hash, RecordHandle handle);
  // Calls `each` with the records of a page, and their hashes.
  template <typename Each>
  void ForEach(Page* page, Each each) const;
  // The page of the hash has room for one more afterwards.
  void Grow(uint64_t hash);
  void Resize(uint64_t hash, uint32_t buckets);
  void Divide(uint64_t hash);
  // In all places of the directory for keys with the hash's first bits.
  void SetPlaces(uint64_t hash, Page* page);

  const RecordPool* const pool_;
  std::atomic<Directory*> directory_{nullptr};
  std::array<std::unique_ptr<Directory>, kDepthMax + 1> directories_;  // by their depth
  std::bitset<kDepthMax + 1> counted_;                                 // of them, in bytes_
  size_t pages_ = 0;
  size_t bytes_ = 0;
};

}  // namespace pando
