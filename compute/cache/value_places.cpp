#include "compute/cache/value_places.h"

#include <sys/mman.h>

#include <algorithm>

#include "common/wire/lock_word.h"
#include "common/wire/slot.h"

namespace pando {
namespace {

constexpr int kPlaceLengthBits = 17;  // kLargeValueBytesMax is the first number that needs them all
static_assert(kLargeValueBytesMax >> kPlaceLengthBits == 0);
constexpr uint64_t kPlaceLengthMask = (uint64_t{1} << kPlaceLengthBits) - 1;
constexpr int kPlaceHandShift = 16;
constexpr size_t kPlaceBucketsMax = size_t{1} << 32;

// Each word is whole; whether all of a place are of one Remember() the bucket's version says. An
// acquired word brings along what its writer has seen to before: the odd version.
uint64_t LoadWord(uint64_t& word) {
  return std::atomic_ref<uint64_t>(word).load(std::memory_order_acquire);
}
void SetWord(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}
std::atomic_ref<uint32_t> AtomicOf(uint32_t& word) { return std::atomic_ref<uint32_t>(word); }

bool HasTagOf(uint64_t tag_bytes, uint64_t hash) {
  return (tag_bytes ^ (hash << kPlaceLengthBits)) >> kPlaceLengthBits == 0;
}

}  // namespace

ValuePlaces::ValuePlaces(size_t bytes_max)
    : bucket_count_(std::min(bytes_max / sizeof(Bucket), kPlaceBucketsMax)) {
  if (bucket_count_ == 0) return;
  void* const mapped = mmap(nullptr, bucket_count_ * sizeof(Bucket), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    bucket_count_ = 0;
  } else {
    buckets_ = static_cast<Bucket*>(mapped);
  }
}

ValuePlaces::~ValuePlaces() {
  if (buckets_ != nullptr) munmap(buckets_, bucket_count_ * sizeof(Bucket));
}

uint64_t ValuePlaces::HashOf(uint32_t tree_id, std::string_view key) {
  return MixAddress(wire::HashKey(key) + tree_id);
}

std::optional<CellReference> ValuePlaces::Find(uint64_t hash) const {
  if (!enabled()) return std::nullopt;
  Bucket* const bucket = BucketOf(hash);
  const uint32_t version = AtomicOf(bucket->version).load(std::memory_order_acquire);
  if (version % 2 != 0) return std::nullopt;
  const size_t way = WayOf(bucket, hash);
  if (way == kWays) return std::nullopt;
  Place& place = bucket->places[way];
  const uint64_t tag_bytes = LoadWord(place.tag_bytes),
                 life_checksum = LoadWord(place.life_checksum);
  const CellReference cell = {
      .cell = {RemoteAddress::FromRaw(LoadWord(place.address)),
               static_cast<uint32_t>(life_checksum >> 32)},
      .value_bytes = static_cast<uint32_t>(tag_bytes & kPlaceLengthMask),
      .checksum = static_cast<uint32_t>(life_checksum),
  };
  if (AtomicOf(bucket->version).load(std::memory_order_relaxed) != version) return std::nullopt;
  const uint32_t mark = uint32_t{1} << way;
  if ((AtomicOf(bucket->marks).load(std::memory_order_relaxed) & mark) == 0) {
    AtomicOf(bucket->marks).fetch_or(mark, std::memory_order_relaxed);
  }
  return cell;
}

std::optional<CellReference> ValuePlaces::Try(uint64_t hash) {
  if (tries_few_.load(std::memory_order_relaxed)) [[unlikely]] {
    if (not_tried_.fetch_add(1, std::memory_order_relaxed) % kTriedOneIn != 0) return std::nullopt;
  }
  return Find(hash);
}

// Of several at once some may be lost: they are hints.
void ValuePlaces::NoteTried(bool was_there) {
  const uint32_t credit = credit_.load(std::memory_order_relaxed);
  const uint32_t next = was_there ? std::min(credit + kCreditOfRight, kCreditMax)
                                  : credit - std::min<uint32_t>(credit, 1);
  if (next == credit) return;
  credit_.store(next, std::memory_order_relaxed);
  if (next == 0) tries_few_.store(true, std::memory_order_relaxed);
  if (next >= kCreditAgain && tries_few_.load(std::memory_order_relaxed))
    tries_few_.store(false, std::memory_order_relaxed);
}

void ValuePlaces::Remember(uint64_t hash, const CellReference& cell) {
  if (!enabled()) return;
  Bucket* const bucket = BucketOf(hash);
  uint32_t version = 0;
  if (!TryLock(bucket, &version)) return;
  size_t way = WayOf(bucket, hash);
  if (way == kWays) way = FreeWay(bucket);
  Place& place = bucket->places[way];
  if (LoadWord(place.address) == 0) held_.fetch_add(1, std::memory_order_relaxed);
  SetWord(&place.address, cell.cell.address.raw());
  SetWord(&place.life_checksum, uint64_t{cell.cell.life} << 32 | cell.checksum);
  SetWord(&place.tag_bytes, hash << kPlaceLengthBits | cell.value_bytes);
  Unlock(bucket, version);
}

void ValuePlaces::Forget(uint64_t hash) {
  if (!enabled()) return;
  Bucket* const bucket = BucketOf(hash);
  uint32_t version = 0;
  if (WayOf(bucket, hash) == kWays || !TryLock(bucket, &version)) return;
  const size_t way = WayOf(bucket, hash);
  if (way < kWays) {
    SetWord(&bucket->places[way].address, 0);
    held_.fetch_sub(1, std::memory_order_relaxed);
  }
  Unlock(bucket, version);
}

size_t ValuePlaces::bytes() const {
  return held_.load(std::memory_order_relaxed) * sizeof(Bucket) / kWays;
}

bool ValuePlaces::TryLock(Bucket* bucket, uint32_t* version) {
  *version = AtomicOf(bucket->version).load(std::memory_order_relaxed);
  return *version % 2 == 0 &&
         AtomicOf(bucket->version)
             .compare_exchange_strong(*version, *version + 1, std::memory_order_acquire,
                                      std::memory_order_relaxed);
}

void ValuePlaces::Unlock(Bucket* bucket, uint32_t version) {
  AtomicOf(bucket->version).store(version + 2, std::memory_order_release);
}

size_t ValuePlaces::WayOf(Bucket* bucket, uint64_t hash) {
  for (size_t way = 0; way < kWays; ++way) {
    Place& place = bucket->places[way];
    if (HasTagOf(LoadWord(place.tag_bytes), hash) && LoadWord(place.address) != 0) return way;
  }
  return kWays;
}

size_t ValuePlaces::FreeWay(Bucket* bucket) {
  for (size_t way = 0; way < kWays; ++way) {
    if (LoadWord(bucket->places[way].address) == 0) return way;
  }
  // A clock: a place that was found gets another round. Lookups meanwhile do not hold it up.
  size_t way = 0;
  for (size_t steps = 0; steps <= kWays; ++steps) {
    const uint32_t marks =
        AtomicOf(bucket->marks)
            .fetch_add(uint32_t{1} << kPlaceHandShift, std::memory_order_relaxed);
    way = (marks >> kPlaceHandShift) % kWays;
    const uint32_t mark = uint32_t{1} << way;
    if ((marks & mark) == 0) break;
    AtomicOf(bucket->marks).fetch_and(~mark, std::memory_order_relaxed);
  }
  return way;
}

}  // namespace pando
