#include "compute/hot/record_pool.h"

#include <algorithm>

#include "common/base/check.h"

namespace pando {

size_t RecordPool::CountedBytes(size_t size_class, const SizeClass& size) {
  return SlotSize::BytesOf(size_class) * std::max(size.live, size.slots - size.slots / 4);
}

void RecordPool::Clear() {
  sizes_ = {};
  memory_.resize(1);
  chunks_.resize(1);
  gone_.clear();
  bytes_ = heap_bytes_ = 0;
}

RecordHandle RecordPool::Allocate(size_t bytes) {
  const size_t size_class = SlotSize::ClassOf(bytes);
  SizeClass& size = sizes_[size_class];
  if (size.first == 0) AddChunk(size_class);
  const size_t index = size.first;
  Chunk& chunk = chunks_[index];
  size_t slot = chunk.first_free;
  if (slot == kNoSlot) {
    slot = chunk.touched++;
  } else {
    chunk.first_free = At(HandleOf(index, slot))->next_free();
    // The next one comes nearer.
    if (chunk.first_free != kNoSlot) Prefetch(HandleOf(index, chunk.first_free));
  }
  if (++chunk.live == chunk.slots) Shut(index);
  bytes_ -= CountedBytes(size_class, size);
  ++size.live;
  bytes_ += CountedBytes(size_class, size);
  return HandleOf(index, slot);
}

void RecordPool::Free(RecordHandle handle) {
  const size_t index = handle >> kUnitBits;
  Chunk& chunk = chunks_[index];
  SizeClass& size = sizes_[chunk.size_class];
  At(handle)->MakeFree(chunk.first_free);
  chunk.first_free = static_cast<uint16_t>(size_t{handle & kUnitMask} * kUnitBytes /
                                           SlotSize::BytesOf(chunk.size_class));
  bytes_ -= CountedBytes(chunk.size_class, size);
  --size.live;
  bytes_ += CountedBytes(chunk.size_class, size);
  if (chunk.live-- == chunk.slots) Open(index);
  if (chunk.live == 0 && (size.first != index || chunk.next != 0)) RemoveChunk(index);
}

bool RecordPool::IsSparse(size_t chunk) const {
  const Chunk& c = chunks_[chunk];
  const SizeClass& size = sizes_[c.size_class];
  // With more free elsewhere than is to be moved, no new chunk is needed for it.
  return c.live > 0 && size.live < size.slots - size.slots / 4 && c.live <= c.slots - c.slots / 4 &&
         size.slots - size.live >= c.slots;
}

void RecordPool::Close(size_t chunk) {
  if (chunks_[chunk].open) Shut(chunk);
}

void RecordPool::AddChunk(size_t size_class) {
  SizeClass& size = sizes_[size_class];
  const size_t slot_bytes = SlotSize::BytesOf(size_class);
  const size_t slots = std::clamp(size.slots / 8, kChunkSlotsMin, kChunkBytes / slot_bytes);
  size_t index = chunks_.size();
  if (gone_.empty()) {
    PANDO_CHECK_LT(index, kChunksMax) << "a partition's records exceed what handles can name";
    chunks_.emplace_back();
    memory_.emplace_back();
  } else {
    index = gone_.back();
    gone_.pop_back();
  }
  chunks_[index] = {.slots = static_cast<uint16_t>(slots),
                    .size_class = static_cast<uint8_t>(size_class)};
  memory_[index].reset(new std::byte[slots * slot_bytes]);
  heap_bytes_ += slots * slot_bytes;
  bytes_ -= CountedBytes(size_class, size);
  size.slots += slots;
  bytes_ += CountedBytes(size_class, size);
  Open(index);
}

void RecordPool::RemoveChunk(size_t index) {
  Chunk& chunk = chunks_[index];
  SizeClass& size = sizes_[chunk.size_class];
  if (chunk.open) Shut(index);
  bytes_ -= CountedBytes(chunk.size_class, size);
  size.slots -= chunk.slots;
  bytes_ += CountedBytes(chunk.size_class, size);
  heap_bytes_ -= chunk.slots * SlotSize::BytesOf(chunk.size_class);
  memory_[index].reset();
  chunk = {};
  gone_.push_back(static_cast<uint32_t>(index));
}

void RecordPool::Open(size_t index) {
  Chunk& chunk = chunks_[index];
  SizeClass& size = sizes_[chunk.size_class];
  chunk.open = true;
  chunk.previous = 0;
  chunk.next = size.first;
  if (size.first != 0) chunks_[size.first].previous = static_cast<uint32_t>(index);
  size.first = static_cast<uint32_t>(index);
}

void RecordPool::Shut(size_t index) {
  Chunk& chunk = chunks_[index];
  chunk.open = false;
  (chunk.previous == 0 ? sizes_[chunk.size_class].first : chunks_[chunk.previous].next) =
      chunk.next;
  if (chunk.next != 0) chunks_[chunk.next].previous = chunk.previous;
}

}  // namespace pando
