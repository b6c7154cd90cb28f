// Memory of one partition's records: chunks of equal slots, with 32-bit handles. Slots have a size
// of a multiple of 4 up to 64 bytes, of 8 beyond; a chunk is an eighth of what its size has, up to
// 64 KiB.
//
// Thread safety: none (the partition's mutex).
// Invariants:
//   1. A slot keeps its place from Allocate() to Free(); no other record gets it meanwhile.
//   2. A chunk without records is given back, unless it is the only one of its size with free
//      slots.
//   3. bytes() counts a size as at least 3/4 used: a quarter of its slots may be free at no cost,
//      what is free beyond is IsSparse()'s to find and the partition's to move together. So the
//      heap holds at most 4/3 of bytes(), and a few slots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compute/hot/record.h"

namespace pando {

// Sizes of slots, by number.
struct SlotSize {
  static constexpr size_t kFineBytes = 64;

  static constexpr size_t ClassOf(size_t bytes) {
    return bytes <= kFineBytes ? (bytes + 3) / 4 : kFineBytes / 4 + (bytes - kFineBytes + 7) / 8;
  }
  static constexpr size_t BytesOf(size_t size_class) {
    return size_class <= kFineBytes / 4 ? size_class * 4
                                        : kFineBytes + (size_class - kFineBytes / 4) * 8;
  }
};

class RecordPool {
 public:
  // As much as handles can name.
  static constexpr size_t kBytesMax = size_t{4} << 32;

  RecordPool() = default;
  RecordPool(const RecordPool&) = delete;
  RecordPool& operator=(const RecordPool&) = delete;

  HotRecord* At(RecordHandle handle) const {
    return reinterpret_cast<HotRecord*>(memory_[handle >> kUnitBits].get() +
                                        size_t{handle & kUnitMask} * kUnitBytes);
  }
  void Prefetch(RecordHandle handle) const { __builtin_prefetch(At(handle)); }
  void Clear();

  // The contents are anything.
  RecordHandle Allocate(size_t bytes);
  void Free(RecordHandle handle);

  static size_t SlotBytes(size_t bytes) { return SlotSize::BytesOf(SlotSize::ClassOf(bytes)); }
  size_t bytes() const { return bytes_; }
  size_t heap_bytes() const { return heap_bytes_; }

  // --- For the clock and for moving records together: by chunk and slot.
  size_t chunks() const { return chunks_.size(); }  // some may be gone: without slots
  size_t SlotsOf(size_t chunk) const { return chunks_[chunk].touched; }  // some may be free
  RecordHandle HandleOf(size_t chunk, size_t slot) const {
    return static_cast<RecordHandle>(
        (chunk << kUnitBits) + slot * SlotSize::BytesOf(chunks_[chunk].size_class) / kUnitBytes);
  }
  // Its size has more than a quarter free, and so has it: its records are better moved elsewhere.
  bool IsSparse(size_t chunk) const;
  // The chunk takes no more records until it is gone: for moving what it has.
  void Close(size_t chunk);

 private:
  static constexpr size_t kUnitBytes = 4, kUnitBits = 14, kUnitMask = (1 << kUnitBits) - 1;
  static constexpr size_t kChunkBytes = kUnitBytes << kUnitBits,
                          kChunksMax = size_t{1} << (32 - kUnitBits);
  static constexpr size_t kChunkSlotsMin = 8;
  static constexpr uint16_t kNoSlot = UINT16_MAX;

  struct Chunk {
    uint16_t slots = 0;
    uint16_t live = 0;
    uint16_t touched = 0;  // those from here on were never used
    uint16_t first_free = kNoSlot;
    uint8_t size_class = 0;
    bool open = false;  // in its size's list of chunks with free slots
    uint32_t previous = 0, next = 0;
  };
  struct SizeClass {
    size_t slots = 0, live = 0;
    uint32_t first = 0;  // chunk with free slots; 0: none
  };

  static size_t CountedBytes(size_t size_class, const SizeClass& size);

  void AddChunk(size_t size_class);
  void RemoveChunk(size_t chunk);
  void Open(size_t chunk);
  void Shut(size_t chunk);

  static constexpr size_t kClasses =
      SlotSize::ClassOf(HotRecord::BytesOf(RecordState::kDirty, HotRecord::kKeyBytesMax,
                                           HotRecord::kValueBytesMax)) +
      1;

  std::array<SizeClass, kClasses> sizes_;
  std::vector<std::unique_ptr<std::byte[]>> memory_{
      1};  // chunk 0 is none, so that handle 0 is none
  std::vector<Chunk> chunks_{1};
  std::vector<uint32_t> gone_;  // numbers of chunks that were given back
  size_t bytes_ = 0, heap_bytes_ = 0;
};

}  // namespace pando
