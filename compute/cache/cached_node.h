// A decoded internal node, packed for search: one allocation, immutable once published.
//
// Of a separator it keeps what follows the prefix that all its separators share: the suffix. That
// begins with its head, two or four bytes that are compared as one big-endian integer, and mostly
// is no longer. A child takes four bytes: which of the node's places (server, life, upper bits of
// the offset) it lies in, and where there. In old trees nearly every child has a life of its own:
// where it takes less, places have the upper bits of lives, and children a fifth byte with the
// lower ones. So a search touches few lines, all near the beginning.
//
// What it leads to is a hint as ever: a node may have split, moved on or died since its image was
// read. Packing adds no error to that (1, 2): a search leads where the image led, to the whole
// address and the whole life, never to what merely looks alike in four bytes. The READ there says
// what the node itself is: after a split the next step is to the right, for another life or tree a
// descent from above (rules V1, V3).
//
// Thread safety: what is const, from any thread. Invariants:
//   1. ChildIndex() and ChildLow() are exact, whatever bytes keys and separators consist of: what
//      heads cannot tell, texts do (Form).
//   2. Child() returns the references that the node was made of. Where they lie in more than
//      kPlacesMax places, or 16 and 28 bits do not hold an offset, they are kept as on the wire.
//   3. bytes() is what was asked of the allocator; nothing else belongs to a node.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/wire/internal_node.h"
#include "common/wire/node_format.h"
#include "common/wire/remote_address.h"

namespace pando {

// A key to search for, with its first eight bytes as a big-endian integer (short keys padded with
// zeros), which orders like memcmp but for ties. Made once a descent. A view: the key outlives it.
struct SearchKey {
  explicit SearchKey(std::string_view key) : text(key), head(wire::KeyPrefix(key)) {}

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
  uint32_t child_count() const { return uint32_t{separator_count_} + 1; }
  uint64_t low_head() const { return low_start_.Head(); }
  std::string_view low() const { return TextOf(low_start_, low_bytes_, PrefixTextBytes()); }
  std::string_view high() const {  // empty: +infinity
    return TextOf(high_start_, high_bytes_, PrefixTextBytes() + TextBytes(low_bytes_));
  }
  bool Covers(const SearchKey& key) const {
    const uint64_t low_head = low_start_.Head(), high_head = high_start_.Head();
    if (key.head <= low_head && (key.head < low_head || key.text < low())) return false;
    if (key.head < high_head || high_bytes_ == 0) return true;
    return key.head == high_head && key.text < high();
  }

  // Index of the child that covers `key` (which the node covers), and references by index.
  uint32_t ChildIndex(const SearchKey& key) const;
  Reference Child(uint32_t index) const {
    if (place_count_ == 0 || has_life_bytes_) [[unlikely]]
      return ChildOfRareForm(index);
    return PackedChild(index, 0);
  }
  // The key from which on the child covers keys, as far as this node knows.
  std::string ChildLow(uint32_t index) const {
    return index == 0 ? std::string(low()) : SeparatorText(index - 1);
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
  static constexpr size_t kPlacesMax = 16;
  static constexpr int kUnitBits = 28;
  static constexpr uint32_t kUnitMask = (uint32_t{1} << kUnitBits) - 1;
  static constexpr int kUnitShiftMax = 31;

  // How suffixes are kept. One that is not text ends where the zeros at its head's end begin: so
  // none ends in a zero byte, unless all have the same length (same_bytes_).
  enum class Form : uint8_t {
    kHeads2,  // heads of two bytes are all there is: no two are the same
    kHeads4,  // heads of four bytes are
    kRests,   // heads of four bytes, and as text what follows
    kTexts,   // heads of four bytes, and all as text
  };
  // What children that differ in the lower bits of their offsets, and of their lives if these have
  // bytes of their own, have in common.
  struct Place {
    uint32_t life = 0;
    ServerId server = 0;
    uint16_t unit_high = 0;  // what is above kUnitBits

    friend bool operator==(const Place&, const Place&) = default;
  };
  static_assert(sizeof(Place) == 8);
  // The first bytes of a text, padded with zeros: all of most.
  struct Start {
    static constexpr size_t kBytes = 8;

    char bytes[kBytes] = {};
    uint64_t Head() const { return wire::KeyPrefix({bytes, kBytes}); }
  };
  class Builder;

  CachedNode() = default;

  // The first four bytes of what of a key follows the prefix. False: the key sorts before or behind
  // all separators, `*side` says.
  bool CutPrefix(const SearchKey& key, uint32_t* head, uint32_t* side) const;
  bool CutLongPrefix(const SearchKey& key, uint32_t* head, uint32_t* side) const;
  template <typename Head>
  uint32_t FindAmongHeads(const SearchKey& key, Head head) const;
  // Of `index` separators whose heads are not above the key's: how many are not above the key.
  uint32_t SettleTies(const SearchKey& key, uint32_t index) const;
  bool IsNotAbove(uint32_t separator, std::string_view suffix) const;  // of the same head
  std::string SeparatorText(uint32_t i) const;
  Reference ChildOfRareForm(uint32_t index) const;
  Reference PackedChild(uint32_t index, uint32_t lower_life) const {
    const uint32_t packed = PackedChildren()[index];
    const Place& place = Places()[packed >> kUnitBits];
    const uint64_t unit = (uint64_t{place.unit_high} << kUnitBits) | (packed & kUnitMask);
    const uint64_t server = uint64_t{place.server} << RemoteAddress::kOffsetBits;
    return {RemoteAddress::FromRaw(server | unit << unit_shift_), place.life | lower_life};
  }

  // Behind the object: places, children, heads, then, if the form has texts, where each separator's
  // text ends; then the lower bytes of lives, if they are kept, and texts: of the prefix, low and
  // high, where they are longer than a Start, and of the separators.
  bool has_short_heads() const { return form_ == Form::kHeads2; }
  bool has_texts() const { return form_ >= Form::kRests; }
  const Place* Places() const { return reinterpret_cast<const Place*>(this + 1); }
  const uint32_t* PackedChildren() const {
    return reinterpret_cast<const uint32_t*>(Places() + place_count_);
  }
  const char* WideChildren() const { return reinterpret_cast<const char*>(this + 1); }
  template <typename Head>
  const Head* Heads() const {
    const void* const end_of_children =
        place_count_ == 0 ? WideChildren() + size_t{child_count()} * Reference::kWireBytes
                          : reinterpret_cast<const char*>(PackedChildren() + child_count());
    return static_cast<const Head*>(end_of_children);
  }
  const uint16_t* TextEnds() const {  // where the form has texts
    return reinterpret_cast<const uint16_t*>(Heads<uint32_t>() + separator_count_);
  }
  const uint8_t* LifeBytes() const {
    if (has_short_heads()) {
      return reinterpret_cast<const uint8_t*>(Heads<uint16_t>() + separator_count_);
    }
    return reinterpret_cast<const uint8_t*>(TextEnds() + (has_texts() ? separator_count_ : 0));
  }
  const char* Text() const {
    return reinterpret_cast<const char*>(LifeBytes() + (has_life_bytes_ ? child_count() : 0));
  }
  static size_t TextBytes(size_t bytes) { return bytes <= Start::kBytes ? 0 : bytes; }
  size_t PrefixTextBytes() const { return TextBytes(prefix_bytes_); }
  std::string_view TextOf(const Start& start, size_t bytes, size_t offset) const {
    return {bytes <= Start::kBytes ? start.bytes : Text() + offset, bytes};
  }
  std::string_view Prefix() const { return TextOf(prefix_start_, prefix_bytes_, 0); }
  // What the form keeps as text of a separator.
  std::string_view SeparatorRest(uint32_t i) const {
    const size_t begin = i == 0 ? PrefixTextBytes() + TextBytes(low_bytes_) + TextBytes(high_bytes_)
                                : TextEnds()[i - 1];
    return {Text() + begin, TextEnds()[i] - begin};
  }

 public:
  std::atomic<CachedNode*> next_in_bucket{nullptr};  // IndexCache's

 private:
  RemoteAddress self_address_;
  Start low_start_, high_start_, prefix_start_;
  uint32_t self_life_ = 0;
  uint32_t tree_id_ = 0;
  uint32_t bytes_ = 0;

 public:
  // --- For IndexCache.
  mutable std::atomic<uint32_t> last_used{0};  // coarse; written only under eviction pressure
  uint32_t list_index = 0;                     // position in the eviction list
  uint32_t directory_slot = UINT32_MAX;        // in the tree's directory; UINT32_MAX: not there

 private:
  uint16_t separator_count_ = 0;
  uint8_t level_ = 0;
  uint8_t prefix_bytes_ = 0;  // shared by all separators
  uint8_t low_bytes_ = 0, high_bytes_ = 0;
  uint8_t place_count_ : 5 = 0;  // 0: children as on the wire
  uint8_t has_life_bytes_ : 1 = 0;
  Form form_ : 2 = Form::kHeads2;
  uint8_t unit_shift_ : 5 = 0;  // offsets are in units of 2^unit_shift_ bytes
  uint8_t same_bytes_ : 3 = 0;  // the length of all suffixes; 0: none ends in a zero byte
};

}  // namespace pando
