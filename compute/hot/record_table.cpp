#include "compute/hot/record_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "common/base/check.h"

namespace pando {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;

uint64_t Load64(const void* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Both halves of the product.
uint64_t Mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// The high bit of each byte that is zero; perhaps of one above such a byte, too.
uint64_t ZeroBytes(uint64_t word) { return (word - kOnes) & ~word & kHighs; }

}  // namespace

// The way of wyhash: words of the key are multiplied with odd constants.
uint64_t HashOf(std::string_view key) {
  constexpr uint64_t kA = 0xa0761d6478bd642f, kB = 0xe7037ed1a0b428db, kC = 0x8ebc6af09c88c6e3;
  const char* at = key.data();
  size_t left = key.size();
  uint64_t hash = Mix(left ^ kA, kB);
  for (; left > 16; left -= 16, at += 16) hash = Mix(Load64(at) ^ hash ^ kB, Load64(at + 8) ^ kC);
  uint64_t first = 0, last = 0;
  if (left >= 8) {
    first = Load64(at);
    last = Load64(at + left - 8);
  } else if (left > 0) {
    std::memcpy(&first, at, left);
  }
  return Mix(Mix(first ^ hash ^ kB, last ^ kC), kA);
}

void RecordTable::Place::Set(const Page* page) {
  const auto address = reinterpret_cast<uintptr_t>(page);
  PANDO_CHECK_EQ(address >> kAddressBits, 0u);
  const uint64_t buckets = std::min(page->buckets_count, kBucketsMany);
  word_.store(address | buckets << kAddressBits, std::memory_order_relaxed);
}

RecordTable::RecordTable(const RecordPool* pool) : pool_(pool) { Clear(); }

RecordTable::~RecordTable() { FreePages(); }

void RecordTable::FreePages() {
  const Directory& directory = Current();
  const Page* last = nullptr;
  for (size_t i = 0; i < directory.size(); ++i) {
    Page* const page = directory.places[i].page();
    if (page != last) Free(page);
    last = page;
  }
}

void RecordTable::Clear() {
  if (directory_.load(std::memory_order_relaxed) != nullptr) FreePages();
  for (size_t depth = 0; depth < directories_.size(); ++depth) {
    if (counted_[depth]) bytes_ -= HeapBytes(*directories_[depth]);
  }
  counted_.reset();
  directory_.store(DirectoryOf(0), std::memory_order_release);
  SetPlaces(0, NewPage(1, 0));
}

RecordTable::Directory* RecordTable::DirectoryOf(int depth) {
  const auto index = static_cast<size_t>(depth);
  std::unique_ptr<Directory>& directory = directories_[index];
  if (directory == nullptr) directory = std::make_unique<Directory>(depth);
  if (!counted_[index]) bytes_ += HeapBytes(*directory);
  counted_.set(index);
  return directory.get();
}

template <typename Is>
RecordHandle* RecordTable::Search(uint64_t hash, Is is) const {
  const Place& place = Current().At(hash);
  Page* const page = place.page();
  Bucket* const buckets = page->buckets();
  uint32_t count = place.buckets();
  if (count == kBucketsMany) [[unlikely]]
    count = page->buckets_count;
  const uint32_t home = BucketOf(hash, count);
  const uint64_t tags = TagOf(hash) * kOnes;
  for (uint32_t at = home;;) {
    Bucket& bucket = buckets[at];
    uint64_t same = ZeroBytes(Load64(&bucket.tags[0]) ^ tags);
    for (; same != 0; same &= same - 1) {
      RecordHandle* const handle = &bucket.handles[static_cast<size_t>(std::countr_zero(same)) / 8];
      if (is(*handle)) return handle;
    }
    same = ZeroBytes(Load64(&bucket.tags[8]) ^ tags) & UINT32_MAX;
    for (; same != 0; same &= same - 1) {
      RecordHandle* const handle =
          &bucket.handles[8 + static_cast<size_t>(std::countr_zero(same)) / 8];
      if (is(*handle)) return handle;
    }
    if (bucket.gone_by == 0) return nullptr;
    if (++at == count) at = 0;
    if (at == home) return nullptr;
  }
}
static_assert(std::endian::native == std::endian::little);

RecordHandle* RecordTable::Find(std::string_view key, uint64_t hash) const {
  return Search(
      hash, [&](RecordHandle handle) { return handle != 0 && pool_->At(handle)->key() == key; });
}

RecordHandle* RecordTable::Find(RecordHandle record, uint64_t hash) const {
  return Search(hash, [record](RecordHandle handle) { return handle == record; });
}

void RecordTable::PrefetchRecord(uint64_t hash) const {
  (void)Search(hash, [this](RecordHandle handle) {
    pool_->Prefetch(handle);
    return true;
  });
}

RecordHandle* RecordTable::Insert(uint64_t hash, RecordHandle handle) {
  const Page* const page = PageOf(hash);
  if (page->records >= FullOf(page->buckets_count)) Grow(hash);
  return Add(PageOf(hash), hash, handle);
}

RecordHandle* RecordTable::Add(Page* page, uint64_t hash, RecordHandle handle) {
  Bucket* const buckets = page->buckets();
  for (uint32_t at = BucketOf(hash, page->buckets_count);;) {
    Bucket& bucket = buckets[at];
    for (size_t i = 0; i < kSlots; ++i) {
      if (bucket.tags[i] != 0) continue;
      bucket.tags[i] = TagOf(hash);
      bucket.handles[i] = handle;
      ++page->records;
      return &bucket.handles[i];
    }
    if (bucket.gone_by != UINT16_MAX) ++bucket.gone_by;
    if (++at == page->buckets_count) at = 0;
  }
}

void RecordTable::Erase(RecordHandle* handle, uint64_t hash) {
  Page* const page = PageOf(hash);
  Bucket* const buckets = page->buckets();
  const auto offset = static_cast<size_t>(reinterpret_cast<std::byte*>(handle) -
                                          reinterpret_cast<std::byte*>(buckets));
  Bucket& bucket = buckets[offset / sizeof(Bucket)];
  const auto slot = static_cast<size_t>(handle - bucket.handles.data());
  for (uint32_t at = BucketOf(hash, page->buckets_count); &buckets[at] != &bucket;) {
    // Of those that were counted no more, none is taken back.
    if (buckets[at].gone_by != UINT16_MAX) --buckets[at].gone_by;
    if (++at == page->buckets_count) at = 0;
  }
  bucket.tags[slot] = 0;
  bucket.handles[slot] = 0;
  --page->records;
  const uint32_t enough = page->buckets_count * 5 / 8;
  if (enough > 0 && page->records < FullOf(enough) * 3 / 4) Resize(hash, enough);
}

RecordTable::Page* RecordTable::NewPage(uint32_t buckets, uint8_t depth) {
  const size_t bytes = (buckets + 1) * sizeof(Bucket);
  void* const memory = ::operator new (bytes, std::align_val_t{alignof(Bucket)});
  std::memset(memory, 0, bytes);
  Page* const page = new (memory) Page{.buckets_count = buckets, .records = 0, .depth = depth};
  bytes_ += HeapBytes(buckets);
  ++pages_;
  return page;
}

void RecordTable::Free(Page* page) {
  bytes_ -= HeapBytes(page->buckets_count);
  --pages_;
  ::operator delete (page, std::align_val_t{alignof(Bucket)});
}

void RecordTable::SetPlaces(uint64_t hash, Page* page) {
  const Directory& directory = Current();
  const size_t places = size_t{1} << (directory.depth - page->depth);
  const size_t first = directory.IndexOf(hash) & ~(places - 1);
  for (size_t i = first; i < first + places; ++i) {
    directory.places[i].Set(page);
  }
}

template <typename Each>
void RecordTable::ForEach(Page* page, Each each) const {
  const auto for_bucket = [page](uint32_t at, auto of) {
    if (at >= page->buckets_count) return;
    const Bucket& bucket = page->buckets()[at];
    for (size_t i = 0; i < kSlots; ++i) {
      if (bucket.tags[i] != 0) of(bucket.handles[i]);
    }
  };
  const auto fetch = [this](RecordHandle handle) { __builtin_prefetch(pool_->At(handle)); };
  for_bucket(0, fetch);
  for (uint32_t at = 0; at < page->buckets_count; ++at) {
    for_bucket(at + 1, fetch);
    for_bucket(at, [&](RecordHandle handle) { each(handle, HashOf(pool_->At(handle)->key())); });
  }
}

void RecordTable::Grow(uint64_t hash) {
  const Page* const page = PageOf(hash);
  const Directory& directory = Current();
  const bool may_divide = page->depth < directory.depth ||
                          (directory.depth < kDepthMax && directory.size() < pages_ * kSpread);
  if (page->buckets_count >= kBucketsMax && may_divide) {
    Divide(hash);
    const Page* const half = PageOf(hash);
    if (half->records < FullOf(half->buckets_count)) return;
  }
  const uint32_t buckets = PageOf(hash)->buckets_count;
  Resize(hash, buckets + buckets / 4 + 1);
}

void RecordTable::Resize(uint64_t hash, uint32_t buckets) {
  Page* const old = PageOf(hash);
  Page* const page = NewPage(buckets, old->depth);
  ForEach(old, [page](RecordHandle handle, uint64_t of) { Add(page, of, handle); });
  SetPlaces(hash, page);
  Free(old);
}

void RecordTable::Divide(uint64_t hash) {
  Page* const old = PageOf(hash);
  if (old->depth == Current().depth) {
    const Directory& before = Current();
    Directory* const twice = DirectoryOf(before.depth + 1);
    for (size_t i = 0; i < twice->size(); ++i) {
      twice->places[i].Set(before.places[i / 2]);
    }
    directory_.store(twice, std::memory_order_release);
  }
  const auto depth = static_cast<uint8_t>(old->depth + 1);
  const uint64_t bit = uint64_t{1} << (64 - depth);
  std::array<uint32_t, 2> records{};
  ForEach(old, [&](RecordHandle, uint64_t of) { ++records[(of & bit) == 0 ? 0 : 1]; });
  std::array<Page*, 2> halves;
  for (size_t i = 0; i < 2; ++i) {
    // Room for what is there, and an eighth.
    const auto buckets =
        static_cast<uint32_t>((records[i] + records[i] / 8) * 16 / 15 / kSlots + 1);
    halves[i] = NewPage(buckets, depth);
  }
  ForEach(old, [&](RecordHandle handle, uint64_t of) {
    Add(halves[(of & bit) == 0 ? 0 : 1], of, handle);
  });
  SetPlaces(hash & ~bit, halves[0]);
  SetPlaces(hash | bit, halves[1]);
  Free(old);
}

size_t RecordTable::Check() const {
  size_t records = 0, bytes = 0, pages = 0;
  for (size_t depth = 0; depth < directories_.size(); ++depth) {
    if (counted_[depth]) bytes += HeapBytes(*directories_[depth]);
  }
  const Page* last = nullptr;
  for (size_t i = 0; i < Current().size(); ++i) {
    const Place& place = Current().places[i];
    Page* const page = place.page();
    PANDO_CHECK_EQ(std::min(page->buckets_count, kBucketsMany), place.buckets());
    if (page == last) continue;
    last = page;
    ++pages;
    bytes += HeapBytes(page->buckets_count);
    PANDO_CHECK_LE(page->records, FullOf(page->buckets_count));
    size_t found = 0;
    ForEach(page, [&](RecordHandle handle, uint64_t hash) {
      PANDO_CHECK(PageOf(hash) == page) << "a record in another page than its hash says";
      const RecordHandle* const by_key = Find(pool_->At(handle)->key(), hash);
      PANDO_CHECK(by_key != nullptr && *by_key == handle) << "a search misses its record";
      ++found;
    });
    PANDO_CHECK_EQ(found, page->records);
    records += found;
  }
  PANDO_CHECK_EQ(pages, pages_);
  PANDO_CHECK_EQ(bytes, bytes_);
  return records;
}

}  // namespace pando
