#include "compute/cache/cached_node.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "common/base/check.h"

namespace pando {
namespace {

size_t CommonPrefix(std::string_view a, std::string_view b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

uint32_t ShortHead(uint64_t head) { return static_cast<uint32_t>(head >> 32); }

uint64_t LeastAddress(const InternalNode& node) {
  uint64_t least = node.header.leftmost.address.raw();
  for (const Separator& entry : node.entries) least = std::min(least, entry.child.address.raw());
  return least;
}

// Whether four bytes a child will do: one server, one life, near each other, all at lines.
bool CanPack(const InternalNode& node, uint64_t base) {
  const uint32_t life = node.header.leftmost.life;
  const auto fits = [&](const Reference& child) {
    const uint64_t distance = child.address.raw() - base;
    return child.life == life && distance % kLineBytes == 0 && distance / kLineBytes <= UINT32_MAX;
  };
  return fits(node.header.leftmost) &&
         std::all_of(node.entries.begin(), node.entries.end(),
                     [&](const Separator& entry) { return fits(entry.child); });
}

}  // namespace

uint64_t SearchKey::Head(std::string_view text) {
  uint64_t head = 0;
  if (text.size() >= 8) [[likely]] {
    std::memcpy(&head, text.data(), 8);
    return std::endian::native == std::endian::little ? __builtin_bswap64(head) : head;
  }
  for (const char c : text) head = (head << 8) | static_cast<uint8_t>(c);
  return text.empty() ? 0 : head << (8 * (8 - text.size()));
}

CachedNode* CachedNode::Create(uint32_t tree_id, const Reference& self, const InternalNode& node) {
  const size_t count = node.entries.size();
  size_t text_bytes = node.header.low.size() + node.header.high.size();
  for (const Separator& entry : node.entries) text_bytes += entry.key.size();
  const uint64_t base = LeastAddress(node);
  const bool packed = CanPack(node, base);
  const size_t bytes = sizeof(CachedNode) + count * sizeof(uint32_t) +
                       (count + 1) * (packed ? sizeof(uint32_t) : Reference::kWireBytes) +
                       (count + 1) * sizeof(uint32_t) + text_bytes;

  CachedNode* cached = new (::operator new (bytes, std::align_val_t{kAlignment})) CachedNode;
  cached->self_address_ = self.address;
  cached->self_life_ = self.life;
  cached->right_ = node.header.right;
  cached->tree_id_ = tree_id;
  cached->bytes_ = static_cast<uint32_t>(bytes);
  cached->separator_count_ = static_cast<uint16_t>(count);
  cached->level_ = node.header.level;
  cached->children_are_packed_ = packed;
  cached->child_base_ = base;
  cached->child_life_ = node.header.leftmost.life;
  // Separators are sorted, so the first and the last share what all share.
  if (count > 0) {
    cached->prefix_bytes_ =
        static_cast<uint8_t>(CommonPrefix(node.entries.front().key, node.entries.back().key));
  }

  auto* heads = const_cast<uint32_t*>(cached->Heads());
  auto* packed_children = const_cast<uint32_t*>(cached->PackedChildren());
  auto* wide_children = const_cast<char*>(cached->WideChildren());
  auto* ends = const_cast<uint32_t*>(cached->Ends());
  auto* text = const_cast<char*>(cached->Text());
  const auto set_child = [&](size_t i, const Reference& child) {
    if (packed) {
      packed_children[i] = static_cast<uint32_t>((child.address.raw() - base) / kChildUnit);
    } else {
      child.Store(wide_children + i * Reference::kWireBytes);
    }
  };
  set_child(0, node.header.leftmost);
  uint32_t end = 0;
  ends[0] = 0;
  for (size_t i = 0; i < count; ++i) {
    const std::string& key = node.entries[i].key;
    heads[i] = ShortHead(SearchKey::Head(std::string_view(key).substr(cached->prefix_bytes_)));
    set_child(i + 1, node.entries[i].child);
    std::memcpy(text + end, key.data(), key.size());
    end += static_cast<uint32_t>(key.size());
    ends[i + 1] = end;
  }
  const auto append = [&](const std::string& fence, uint32_t* offset, uint8_t* length) {
    *offset = end;
    *length = static_cast<uint8_t>(fence.size());
    std::memcpy(text + end, fence.data(), fence.size());
    end += static_cast<uint32_t>(fence.size());
  };
  append(node.header.low, &cached->low_offset_, &cached->low_bytes_);
  append(node.header.high, &cached->high_offset_, &cached->high_bytes_);
  cached->low_head_ = SearchKey::Head(node.header.low);
  cached->high_head_ = SearchKey::Head(node.header.high);
  if (count > 0) {
    const std::string_view prefix =
        std::string_view(node.entries.front().key).substr(0, cached->prefix_bytes_);
    cached->prefix_head_ = SearchKey::Head(prefix);
  }
  return cached;
}

void CachedNode::Destroy(void* node) {
  static_cast<CachedNode*>(node)->~CachedNode();
  ::operator delete (node, std::align_val_t{kAlignment});
}

bool CachedNode::HeadAfterPrefix(const SearchKey& key, uint64_t* head, uint32_t* side) const {
  const uint32_t prefix_bytes = prefix_bytes_;
  if (prefix_bytes == 0) {
    *head = key.head;
    return true;
  }
  // A key shorter than the prefix is padded with zeros here; ties on the head are settled by the
  // texts.
  const uint32_t in_head = std::min<uint32_t>(prefix_bytes, 8);
  const uint64_t mask = ~uint64_t{0} << (8 * (8 - in_head));
  if ((key.head & mask) != prefix_head_) {
    *side = (key.head & mask) < prefix_head_ ? 0 : separator_count_;
    return false;
  }
  if (prefix_bytes > 8) {
    const int order =
        key.text.substr(0, prefix_bytes).compare(SeparatorText(0).substr(0, prefix_bytes));
    if (order != 0) {
      *side = order < 0 ? 0 : separator_count_;
      return false;
    }
  }
  if (key.text.size() <= 8) {
    *head = prefix_bytes < 8 ? key.head << (8 * prefix_bytes) : 0;
  } else {
    *head = SearchKey::Head(key.text.substr(std::min<size_t>(prefix_bytes, key.text.size())));
  }
  return true;
}

uint32_t CachedNode::ChildIndex(const SearchKey& key) const {
  if (separator_count_ == 0) return 0;
  uint64_t head = 0;
  uint32_t side = 0;
  if (!HeadAfterPrefix(key, &head, &side)) return side;
  const uint32_t short_head = ShortHead(head);
  // Number of separators with head <= the key's, without branches that depend on the data.
  const uint32_t* base = Heads();
  uint32_t n = separator_count_;
  while (n > 1) {
    const uint32_t half = n / 2;
    base += (base[half - 1] <= short_head) * half;
    n -= half;
  }
  uint32_t index = static_cast<uint32_t>(base - Heads()) + (*base <= short_head ? 1 : 0);
  // Ties on the head: step back over separators that are greater in what follows.
  uint32_t first_tie = index;
  while (first_tie > 0 && Heads()[first_tie - 1] == short_head) --first_tie;
  while (index > first_tie) {
    const uint32_t middle = first_tie + (index - first_tie) / 2;
    if (SeparatorText(middle) <= key.text) {
      first_tie = middle + 1;
    } else {
      index = middle;
    }
  }
  return index;
}

}  // namespace pando
