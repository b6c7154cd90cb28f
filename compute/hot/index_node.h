// A node of a RecordIndex in memory: header, prefix, entries. Internal to compute/hot.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

#include "compute/hot/record.h"

namespace pando {

struct IndexNode {
  uint16_t count, capacity;
  uint8_t level;         // 0: a leaf
  uint8_t prefix_bytes;  // 0 where there are no keys
  uint8_t entries_at;    // in units of 8 bytes
  uint8_t unused;
  uint32_t records;  // below
  char prefix[4];    // and on

  template <typename Entry>
  Entry* entries() {
    return reinterpret_cast<Entry*>(reinterpret_cast<std::byte*>(this) + entries_at * size_t{8});
  }
  template <typename Entry>
  const Entry* entries() const {
    return const_cast<IndexNode*>(this)->entries<Entry>();
  }
  template <typename Entry>
  std::span<const Entry> all() const {
    return {entries<Entry>(), count};
  }
};

// Of a leaf. The head is the upper half, so that entries are compared as they are.
struct IndexLeafEntry {
  static constexpr bool kFirstHasKey = true;

  uint64_t word;

  uint64_t order() const { return word >> 32 << 32; }
  // Of a key's first eight bytes behind the prefix.
  static uint64_t OrderOf(uint64_t head) { return head >> 32 << 32; }
  void SetHead(uint64_t head) { word = OrderOf(head) | handle(); }
  RecordHandle handle() const { return static_cast<RecordHandle>(word); }
};

// Of an inner node. That of the first child has no key: what is below all others is there.
struct InnerEntry {
  static constexpr bool kFirstHasKey = false;

  uint64_t head;
  IndexNode* child;

  uint64_t order() const { return head; }
  static uint64_t OrderOf(uint64_t of) { return of; }
  void SetHead(uint64_t to) { head = to; }
};

template <typename Entry>
constexpr uint32_t kFirstKey = Entry::kFirstHasKey ? 0 : 1;

// The eight bytes of a key from there on, first byte first, zeros behind its end.
inline uint64_t HeadOf(std::string_view key, size_t from) {
  const size_t left = key.size() - from;
  uint64_t head = 0;
  if (left >= 8) {
    std::memcpy(&head, key.data() + from, 8);
  } else if (key.size() >= 8) {
    // One load that ends where the key does; what lies before `from` is shifted out.
    if (left == 0) return 0;
    std::memcpy(&head, key.data() + key.size() - 8, 8);
    return __builtin_bswap64(head) << (8 * (8 - left));
  } else if (left > 0) {
    std::memcpy(&head, key.data() + from, left);
  }
  return __builtin_bswap64(head);
}
static_assert(std::endian::native == std::endian::little);

// Order of the key and all keys that begin with the prefix: 0 if it does so itself.
inline int ComparePrefix(const IndexNode* node, std::string_view key) {
  const size_t bytes = node->prefix_bytes;
  if (bytes == 0 || key.empty()) return bytes == 0 ? 0 : -1;
  const int order = std::memcmp(key.data(), node->prefix, std::min(bytes, key.size()));
  return order == 0 && key.size() < bytes ? -1 : order;
}

// How many of the entries are below.
template <typename Entry>
uint32_t CountBelow(const Entry* entries, uint32_t count, uint64_t order) {
  const Entry* first = entries;
  while (count > 0) {
    const uint32_t half = (count + 1) / 2;
    // No branch: nobody can predict it.
    first += first[half - 1].order() < order ? half : 0;
    count -= half;
  }
  return static_cast<uint32_t>(first - entries);
}

}  // namespace pando
