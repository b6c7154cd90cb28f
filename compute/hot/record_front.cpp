#include "compute/hot/record_front.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "common/base/check.h"

namespace pando {
namespace {

constexpr size_t kCacheLineBytes = 64;
// Of so many that would like another one's place one may have it, if that is not used. So what is
// popular is hardly ever driven out, and what is used now and then hardly ever written.
constexpr uint64_t kRivals = 8;
constexpr size_t kSlotsMin = 8, kSlotsMax = size_t{1} << 24;

std::atomic<uint64_t> generations{0};  // numbers given so far, in this process

// A version: how many bytes key and value have, whether the slot is being written, how often that
// has begun or ended.
constexpr uint64_t kKeyBytesMask = 0xff, kBeingWritten = uint64_t{1} << 16;
constexpr int kValueBytesShift = 8, kCountShift = 16;

constexpr size_t KeyBytesOf(uint64_t version) { return version & kKeyBytesMask; }
constexpr size_t ValueBytesOf(uint64_t version) { return (version >> kValueBytesShift) & 0xff; }

uint64_t LoadWord(const char* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

constexpr size_t WordsOf(size_t bytes) { return (bytes + 7) / 8; }

}  // namespace

// Its slots follow.
struct alignas(kCacheLineBytes) RecordFront::Array {
  // Readers': they never change.
  uint32_t slots;       // a power of two
  uint32_t slot_words;  // each has
  // Behind the mutex, and in no line of readers.
  alignas(kCacheLineBytes) uint64_t rivals =
      0;  // records that would have liked another one's place

  static size_t BytesOf(size_t slots, size_t slot_words) {
    return sizeof(Array) + slots * slot_words * sizeof(Word);
  }
  size_t bytes() const { return BytesOf(slots, slot_words); }
  size_t record_bytes_max() const { return (slot_words - kRecord) * sizeof(Word); }
  Word* At(size_t slot) { return reinterpret_cast<Word*>(this + 1) + slot * slot_words; }
  Word* SlotOf(uint64_t hash) { return At((hash >> 32) & (slots - 1)); }
};

// Those that no front has.
class RecordFront::Arrays {
 public:
  // nullptr: there is no memory for it.
  Array* Take(uint32_t slots, uint32_t slot_words) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<Array*>& spare = spare_[{slots, slot_words}];
      if (!spare.empty()) {
        Array* const array = spare.back();
        spare.pop_back();
        array->rivals = 0;
        return array;
      }
    }
    // Zeros are free slots. calloc() has them from the system page by page, as they are used; to
    // write them would hold the partition's mutex for 100 ms where a front has 128 MiB. Nothing is
    // given back to it, so where it begins need not be known.
    void* memory = std::calloc(1, Array::BytesOf(slots, slot_words) + kCacheLineBytes);
    if (memory == nullptr) return nullptr;
    size_t room = SIZE_MAX;
    memory = std::align(kCacheLineBytes, 0, memory, room);
    return new (memory) Array{.slots = slots, .slot_words = slot_words};
  }
  void Give(Array* array) {
    const std::lock_guard lock(mutex_);
    spare_[{array->slots, array->slot_words}].push_back(array);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Array*>> spare_;
};

RecordFront::Arrays& RecordFront::SpareArrays() {
  static auto* const arrays = new Arrays();  // threads may end after statics
  return *arrays;
}

bool RecordFront::Find(std::string_view key, uint64_t hash, std::string* value, Lsn* lsn) const {
  const uint64_t generation = generation_.load(std::memory_order_acquire);
  if (generation == kClosed) return false;
  // Of that generation, or a later one, whose slots have other numbers.
  Array* const array = array_.load(std::memory_order_acquire);
  if (array == nullptr) return false;
  Word* const slot = array->SlotOf(hash);
  const uint64_t version = slot[kVersion].load(std::memory_order_acquire);
  if (KeyBytesOf(version) != key.size() || (version & kBeingWritten) != 0 ||
      slot[kGeneration].load(std::memory_order_acquire) != generation) {
    return false;
  }
  const Lsn seen = slot[kLsn].load(std::memory_order_acquire);
  std::array<uint64_t, kRecordBytesMax / sizeof(uint64_t)> words;
  const char* const record = reinterpret_cast<const char*>(words.data());
  const size_t value_bytes = ValueBytesOf(version);
  const size_t count = WordsOf(key.size() + value_bytes), key_words = key.size() / sizeof(uint64_t);
  size_t at = 0;
  for (; at < key_words; ++at) {
    words[at] = slot[kRecord + at].load(std::memory_order_acquire);
    if (words[at] != LoadWord(key.data() + at * sizeof(uint64_t))) return false;
  }
  for (; at < count; ++at) words[at] = slot[kRecord + at].load(std::memory_order_acquire);
  if (slot[kVersion].load(std::memory_order_relaxed) != version) return false;
  const size_t compared = key_words * sizeof(uint64_t);
  if (compared < key.size() &&
      std::memcmp(record + compared, key.data() + compared, key.size() - compared) != 0) {
    return false;
  }
  if (slot[kUsed].load(std::memory_order_relaxed) == 0) {
    slot[kUsed].store(1, std::memory_order_relaxed);
  }
  if (value != nullptr) value->assign(record + key.size(), value_bytes);
  *lsn = seen;
  return true;
}

void RecordFront::Prefetch(uint64_t hash) const {
  Array* const array = array_.load(std::memory_order_acquire);
  if (array != nullptr) __builtin_prefetch(array->SlotOf(hash));
}

RecordFront::Word* RecordFront::SlotOf(std::string_view key, uint64_t hash) const {
  const uint64_t generation = generation_.load(std::memory_order_relaxed);
  if (generation == kClosed) return nullptr;
  Word* const slot = array_.load(std::memory_order_relaxed)->SlotOf(hash);
  const uint64_t version = slot[kVersion].load(std::memory_order_relaxed);
  if (KeyBytesOf(version) != key.size() ||
      slot[kGeneration].load(std::memory_order_relaxed) != generation) {
    return nullptr;
  }
  for (size_t at = 0; at < key.size(); at += sizeof(uint64_t)) {
    const uint64_t word = slot[kRecord + at / sizeof(uint64_t)].load(std::memory_order_relaxed);
    if (std::memcmp(&word, key.data() + at, std::min(sizeof(word), key.size() - at)) != 0) {
      return nullptr;
    }
  }
  return slot;
}

void RecordFront::Write(Word* slot, uint64_t generation, std::string_view key,
                        std::string_view value, Lsn lsn) {
  std::array<uint64_t, kRecordBytesMax / sizeof(uint64_t)> words;
  const size_t count = WordsOf(key.size() + value.size());
  if (count > 0) words[count - 1] = 0;
  char* const record = reinterpret_cast<char*>(words.data());
  // Nothing is copied from nowhere: an empty one may have no address.
  if (!key.empty()) std::memcpy(record, key.data(), key.size());
  if (!value.empty()) std::memcpy(record + key.size(), value.data(), value.size());
  // A reader that has seen any of the words below sees this, when it looks again.
  const uint64_t writes = slot[kVersion].load(std::memory_order_relaxed) >> kCountShift;
  slot[kVersion].store((writes + 1) << kCountShift, std::memory_order_relaxed);
  slot[kGeneration].store(generation, std::memory_order_release);
  slot[kLsn].store(lsn, std::memory_order_release);
  for (size_t i = 0; i < count; ++i) slot[kRecord + i].store(words[i], std::memory_order_release);
  const uint64_t sizes = key.size() | value.size() << kValueBytesShift;
  slot[kVersion].store((writes + 2) << kCountShift | sizes, std::memory_order_release);
}

bool RecordFront::Prepare(size_t record_bytes, size_t bytes_max) {
  Array* array = array_.load(std::memory_order_relaxed);
  size_t slot_words = array == nullptr ? kCacheLineBytes / sizeof(Word) : array->slot_words;
  while ((slot_words - kRecord) * sizeof(Word) < record_bytes) slot_words *= 2;
  if (array != nullptr && slot_words > array->slot_words) {
    // Not for one.
    if (++too_long_ <= array->slots) return false;
  } else if (array != nullptr && array->bytes() * 2 > bytes_max) {
    return true;
  }
  size_t slots = kSlotsMin;
  while (slots < kSlotsMax && Array::BytesOf(slots * 2, slot_words) <= bytes_max) slots *= 2;
  if (array != nullptr && slot_words == array->slot_words && slots <= array->slots) return true;
  Clear();
  array = SpareArrays().Take(static_cast<uint32_t>(slots), static_cast<uint32_t>(slot_words));
  if (array == nullptr) return false;
  array_.store(array, std::memory_order_release);
  bytes_ = array->bytes();
  return true;
}

bool RecordFront::Show(std::string_view key, uint64_t hash, std::string_view value, Lsn lsn,
                       size_t bytes_max) {
  const size_t record_bytes = key.size() + value.size();
  if (record_bytes > kRecordBytesMax || !Prepare(record_bytes, bytes_max)) return false;
  uint64_t generation = generation_.load(std::memory_order_relaxed);
  const bool begins = generation == kClosed;
  if (begins) generation = generations.fetch_add(1, std::memory_order_relaxed) + 1;
  Array* const array = array_.load(std::memory_order_relaxed);
  Word* const slot = array->SlotOf(hash);
  if (slot[kGeneration].load(std::memory_order_relaxed) == generation) {
    if (SlotOf(key, hash) != nullptr) return true;
    if (++array->rivals % kRivals != 0) return false;
    if (slot[kUsed].load(std::memory_order_relaxed) != 0) {
      slot[kUsed].store(0, std::memory_order_relaxed);
      return false;
    }
  }
  Write(slot, generation, key, value, lsn);
  slot[kUsed].store(0, std::memory_order_relaxed);
  if (begins) generation_.store(generation, std::memory_order_release);
  return true;
}

bool RecordFront::Change(std::string_view key, uint64_t hash, std::string_view value, Lsn lsn) {
  Word* const slot = SlotOf(key, hash);
  if (slot == nullptr) return false;
  if (key.size() + value.size() > array_.load(std::memory_order_relaxed)->record_bytes_max()) {
    Write(slot, kClosed, {}, {}, kNoLsn);
    return false;
  }
  Write(slot, generation_.load(std::memory_order_relaxed), key, value, lsn);
  return true;
}

void RecordFront::Hide(std::string_view key, uint64_t hash) {
  if (Word* const slot = SlotOf(key, hash); slot != nullptr) Write(slot, kClosed, {}, {}, kNoLsn);
}

bool RecordFront::TakeUsed(std::string_view key, uint64_t hash) {
  Word* const slot = SlotOf(key, hash);
  if (slot == nullptr || slot[kUsed].load(std::memory_order_relaxed) == 0) return false;
  slot[kUsed].store(0, std::memory_order_relaxed);
  return true;
}

void RecordFront::Clear() {
  Close();
  Array* const array = array_.exchange(nullptr, std::memory_order_acq_rel);
  if (array != nullptr) SpareArrays().Give(array);
  bytes_ = too_long_ = 0;
}

void RecordFront::Shrink() {
  const Array* const array = array_.load(std::memory_order_relaxed);
  if (array != nullptr && array->slots > kSlotsMin) Clear();
}

void RecordFront::Check(
    absl::FunctionRef<void(std::string_view, std::string_view, Lsn)> see) const {
  const uint64_t generation = generation_.load(std::memory_order_relaxed);
  Array* const array = array_.load(std::memory_order_relaxed);
  PANDO_CHECK_EQ(bytes_, array == nullptr ? 0 : array->bytes());
  if (generation == kClosed) return;
  for (size_t i = 0; i < array->slots; ++i) {
    Word* const slot = array->At(i);
    if (slot[kGeneration].load(std::memory_order_relaxed) != generation) continue;
    const uint64_t version = slot[kVersion].load(std::memory_order_relaxed);
    const size_t key_bytes = KeyBytesOf(version), value_bytes = ValueBytesOf(version);
    std::string record;
    for (size_t word = 0; word < WordsOf(key_bytes + value_bytes); ++word) {
      const uint64_t bytes = slot[kRecord + word].load(std::memory_order_relaxed);
      record.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    }
    see(std::string_view(record).substr(0, key_bytes),
        std::string_view(record).substr(key_bytes, value_bytes),
        slot[kLsn].load(std::memory_order_relaxed));
  }
}

}  // namespace pando
