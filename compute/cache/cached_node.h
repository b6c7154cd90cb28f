// A decoded internal node, laid out for search: one allocation, immutable once published.
//
// Keys are compared by their first four bytes after the prefix that all separators share, as one
// big-endian integer; only ties look at the texts. Children on one server and of one life, the
// common case, take four bytes each. So a search touches few lines, all near the node's beginning.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/wire/internal_node.h"
#include "common/wire/remote_address.h"

namespace pando {

// A key to search for, with its first eight bytes as a big-endian integer (short keys padded with
// zeros), which orders like memcmp but for ties. Made once a descent. A view: the key outlives it.
struct SearchKey {
  explicit SearchKey(std::string_view key) : text(key), head(Head(key)) {}
  static uint64_t Head(std::string_view text);

  std::string_view text;
  uint64_t head;
};

class CachedNode {
 public:
  // Copies `node` into a new allocation; freed by Destroy().
  static CachedNode* Create(uint32_t tree_id, const Reference& self, const InternalNode& node);
  static void Destroy(void* node);

  Reference self() const { return {self_address_, self_life_}; }
  RemoteAddress address() const { return self_address_; }
  uint32_t life() const { return self_life_; }
  uint32_t tree_id() const { return tree_id_; }
  uint8_t level() const { return level_; }
  size_t bytes() const { return bytes_; }  // of the allocation
  uint32_t child_count() const { return separator_count_ + 1; }
  const Reference& right() const { return right_; }
  uint64_t low_head() const { return low_head_; }
  std::string_view low() const { return {Text() + low_offset_, low_bytes_}; }
  std::string_view high() const {
    return {Text() + high_offset_, high_bytes_};
  }  // empty: +infinity
  bool Covers(const SearchKey& key) const {
    if (key.head <= low_head_ && (key.head < low_head_ || key.text < low())) return false;
    if (key.head < high_head_ || high_bytes_ == 0) return true;
    return key.head == high_head_ && key.text < high();
  }

  // Index of the child that covers `key` (which the node covers), and references by index.
  uint32_t ChildIndex(const SearchKey& key) const;
  Reference Child(uint32_t index) const {
    if (children_are_packed_) [[likely]] {
      return {RemoteAddress::FromRaw(child_base_ + uint64_t{PackedChildren()[index]} * kChildUnit),
              child_life_};
    }
    return Reference::Load(WideChildren() + size_t{index} * Reference::kWireBytes);
  }
  // The key from which on the child covers keys, as far as this node knows.
  std::string_view ChildLow(uint32_t index) const {
    return index == 0 ? low() : SeparatorText(index - 1);
  }
  // Fetches what a search of a node of 8/8 touches: all misses at once.
  static void Prefetch(const CachedNode* node) {
    for (size_t i = 0; i < kSearchLines; ++i) {
      __builtin_prefetch(reinterpret_cast<const char*>(node) + i * kAlignment);
    }
  }

 private:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kSearchLines = 6;
  static constexpr uint64_t kChildUnit = 64;  // nodes start at lines

  CachedNode() = default;
  // The key's eight bytes after the common prefix. False: the key sorts before or after all
  // separators, `*side` says.
  bool HeadAfterPrefix(const SearchKey& key, uint64_t* head, uint32_t* side) const;
  const uint32_t* Heads() const { return reinterpret_cast<const uint32_t*>(this + 1); }
  const uint32_t* PackedChildren() const { return Heads() + separator_count_; }
  const char* WideChildren() const { return reinterpret_cast<const char*>(PackedChildren()); }
  // Ends of the separators' texts, relative to Text().
  const uint32_t* Ends() const {
    return reinterpret_cast<const uint32_t*>(
        WideChildren() + child_count() * (children_are_packed_ ? 4 : Reference::kWireBytes));
  }
  const char* Text() const { return reinterpret_cast<const char*>(Ends() + separator_count_ + 1); }
  std::string_view SeparatorText(uint32_t i) const {
    return {Text() + Ends()[i], Ends()[i + 1] - Ends()[i]};
  }

  // What a search touches comes first: one line.
 public:
  std::atomic<CachedNode*> next_in_bucket{nullptr};  // IndexCache's

 private:
  RemoteAddress self_address_;
  uint64_t low_head_ = 0, high_head_ = 0;
  uint64_t prefix_head_ = 0;  // the prefix's first eight bytes
  uint64_t child_base_ = 0;   // packed children: the least raw address, and the life of all
  uint32_t child_life_ = 0;
  uint32_t self_life_ = 0;
  uint16_t separator_count_ = 0;
  uint8_t level_ = 0;
  uint8_t prefix_bytes_ = 0;  // shared by all separators
  uint8_t low_bytes_ = 0, high_bytes_ = 0;
  bool children_are_packed_ = false;
  uint32_t tree_id_ = 0;
  uint32_t bytes_ = 0;
  uint32_t low_offset_ = 0, high_offset_ = 0;
  Reference right_;

 public:
  // --- For IndexCache.
  mutable std::atomic<uint32_t> last_used{0};  // coarse; written only under eviction pressure
  uint32_t level1_index = 0;                   // position in the eviction list
  uint32_t directory_slot = UINT32_MAX;        // in the tree's directory; UINT32_MAX: not there
};

}  // namespace pando
