#include "compute/cache/cached_node.h"

#include <algorithm>
#include <array>
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

uint32_t HeadOf(std::string_view suffix) {
  return static_cast<uint32_t>(wire::KeyPrefix(suffix) >> 32);
}

// How many of `n` ascending heads, one at least, are not above `head`; without branches that depend
// on the data.
template <typename Head>
[[gnu::always_inline]] inline uint32_t CountNotAbove(const Head* heads, uint32_t n, Head head) {
  const Head* first = heads;
  while (n > 1) {
    const uint32_t half = n / 2;
    const Head* const second = first + half;
    first = __builtin_expect_with_probability(second[-1] <= head, 1, 0.5) ? second : first;
    n -= half;
  }
  return static_cast<uint32_t>(first - heads) + (*first <= head ? 1 : 0);
}

}  // namespace

// Decides how a node is kept, then fills it in.
class CachedNode::Builder {
 public:
  explicit Builder(const InternalNode& node) : node_(node) {
    // Separators are sorted, so the first and the last share what all share.
    if (!node.entries.empty()) {
      prefix_bytes_ = CommonPrefix(node.entries.front().key, node.entries.back().key);
    }
    ChooseForm();
    FindPlaces();
  }

  CachedNode* Build(uint32_t tree_id, const Reference& self) const;

 private:
  static constexpr uint32_t kLifeByteMask = UINT8_MAX;

  std::string_view Suffix(const Separator& entry) const {
    return std::string_view(entry.key).substr(prefix_bytes_);
  }
  bool HasTexts() const { return form_ >= Form::kRests; }
  size_t TextBytesInHead() const { return form_ == Form::kRests ? sizeof(uint32_t) : 0; }
  std::string_view Rest(const Separator& entry) const {
    const std::string_view suffix = Suffix(entry);
    return suffix.substr(std::min(suffix.size(), TextBytesInHead()));
  }
  // Where the child is not kept as on the wire: what it has in common with others.
  Place PlaceOf(const Reference& child) const {
    return {.life = has_life_bytes_ ? child.life & ~kLifeByteMask : child.life,
            .server = child.address.server(),
            .unit_high = static_cast<uint16_t>(child.address.offset() >> unit_shift_ >> kUnitBits)};
  }
  uint32_t Pack(const Reference& child) const;
  void ChooseForm();
  void FindPlaces();
  void CollectPlaces();
  bool AddPlace(const Reference& child);
  size_t ChildrenBytes() const;
  size_t Bytes(size_t text_bytes) const;
  void Fill(CachedNode* cached) const;
  void FillTexts(CachedNode* cached) const;

  const InternalNode& node_;
  size_t prefix_bytes_ = 0;
  Form form_ = Form::kHeads2;
  uint8_t same_bytes_ = 0;
  int unit_shift_ = 0;
  bool has_life_bytes_ = false;
  size_t place_count_ = 0;
  std::array<Place, kPlacesMax> places_;
};

void CachedNode::Builder::ChooseForm() {
  size_t shortest = SIZE_MAX, longest = 0;
  bool ends_in_zero = false;  // one that heads alone could hold
  for (const Separator& entry : node_.entries) {
    const std::string_view suffix = Suffix(entry);
    shortest = std::min(shortest, suffix.size());
    longest = std::max(longest, suffix.size());
    ends_in_zero |= !suffix.empty() && suffix.size() <= sizeof(uint32_t) && suffix.back() == '\0';
  }
  if (longest <= sizeof(uint32_t) && (!ends_in_zero || shortest == longest)) {
    form_ = longest <= sizeof(uint16_t) ? Form::kHeads2 : Form::kHeads4;
    same_bytes_ = ends_in_zero ? static_cast<uint8_t>(longest) : 0;
  } else {
    form_ = ends_in_zero ? Form::kTexts : Form::kRests;
  }
}

void CachedNode::Builder::FindPlaces() {
  uint64_t offsets = node_.header.leftmost.address.offset();
  for (const Separator& entry : node_.entries) offsets |= entry.child.address.offset();
  unit_shift_ = std::min(std::countr_zero(offsets), kUnitShiftMax);
  CollectPlaces();
  const size_t bytes = ChildrenBytes();
  if (place_count_ == 1) return;
  has_life_bytes_ = true;
  CollectPlaces();
  if (place_count_ != 0 && ChildrenBytes() < bytes) return;
  has_life_bytes_ = false;
  CollectPlaces();
}

void CachedNode::Builder::CollectPlaces() {
  place_count_ = 0;
  bool fit = AddPlace(node_.header.leftmost);
  for (const Separator& entry : node_.entries) fit = fit && AddPlace(entry.child);
  if (!fit) place_count_ = 0;
}

bool CachedNode::Builder::AddPlace(const Reference& child) {
  if (child.address.offset() >> unit_shift_ >> kUnitBits > UINT16_MAX) return false;
  const Place place = PlaceOf(child);
  const auto end = places_.begin() + static_cast<std::ptrdiff_t>(place_count_);
  if (std::find(places_.begin(), end, place) != end) return true;
  if (place_count_ == kPlacesMax) return false;
  places_[place_count_++] = place;
  return true;
}

uint32_t CachedNode::Builder::Pack(const Reference& child) const {
  const auto place = std::find(places_.begin(), places_.end(), PlaceOf(child)) - places_.begin();
  const uint64_t unit = child.address.offset() >> unit_shift_;
  return static_cast<uint32_t>(place) << kUnitBits | (static_cast<uint32_t>(unit) & kUnitMask);
}

size_t CachedNode::Builder::ChildrenBytes() const {
  const size_t n = node_.entries.size() + 1;
  if (place_count_ == 0) return n * Reference::kWireBytes;
  return place_count_ * sizeof(Place) + n * (sizeof(uint32_t) + (has_life_bytes_ ? 1 : 0));
}

size_t CachedNode::Builder::Bytes(size_t text_bytes) const {
  const size_t n = node_.entries.size();
  return sizeof(CachedNode) + ChildrenBytes() +
         n * (form_ == Form::kHeads2 ? sizeof(uint16_t) : sizeof(uint32_t)) +
         (HasTexts() ? n * sizeof(uint16_t) : 0) + text_bytes;
}

CachedNode* CachedNode::Builder::Build(uint32_t tree_id, const Reference& self) const {
  const NodeHeader& header = node_.header;
  size_t text_bytes =
      TextBytes(prefix_bytes_) + TextBytes(header.low.size()) + TextBytes(header.high.size());
  if (HasTexts()) {
    for (const Separator& entry : node_.entries) text_bytes += Rest(entry).size();
  }
  // Nodes take up to kNodeBytesMax with all their separators.
  PANDO_CHECK_LE(text_bytes, size_t{UINT16_MAX});
  PANDO_CHECK_LE(node_.entries.size(), size_t{UINT16_MAX});
  const size_t bytes = Bytes(text_bytes);
  CachedNode* cached = new (::operator new (bytes, std::align_val_t{kAlignment})) CachedNode;
  cached->self_address_ = self.address;
  cached->self_life_ = self.life;
  cached->tree_id_ = tree_id;
  cached->bytes_ = static_cast<uint32_t>(bytes);
  cached->level_ = header.level;
  cached->separator_count_ = static_cast<uint16_t>(node_.entries.size());
  cached->prefix_bytes_ = static_cast<uint8_t>(prefix_bytes_);
  cached->low_bytes_ = static_cast<uint8_t>(header.low.size());
  cached->high_bytes_ = static_cast<uint8_t>(header.high.size());
  cached->place_count_ = static_cast<uint8_t>(place_count_) & 0x1f;
  cached->same_bytes_ = same_bytes_ & 0x7;
  cached->unit_shift_ = static_cast<uint8_t>(unit_shift_) & 0x1f;
  cached->has_life_bytes_ = has_life_bytes_ ? 1 : 0;
  cached->form_ = form_;
  Fill(cached);
  FillTexts(cached);
  return cached;
}

void CachedNode::Builder::Fill(CachedNode* cached) const {
  std::copy_n(places_.begin(), place_count_, const_cast<Place*>(cached->Places()));
  auto* const packed_children = const_cast<uint32_t*>(cached->PackedChildren());
  auto* const wide_children = const_cast<char*>(cached->WideChildren());
  auto* const life_bytes = const_cast<uint8_t*>(cached->LifeBytes());
  const auto set_child = [&](size_t i, const Reference& child) {
    if (place_count_ == 0) {
      child.Store(wide_children + i * Reference::kWireBytes);
      return;
    }
    packed_children[i] = Pack(child);
    if (has_life_bytes_) life_bytes[i] = static_cast<uint8_t>(child.life & kLifeByteMask);
  };
  set_child(0, node_.header.leftmost);
  auto* const short_heads = const_cast<uint16_t*>(cached->Heads<uint16_t>());
  auto* const heads = const_cast<uint32_t*>(cached->Heads<uint32_t>());
  for (size_t i = 0; i < node_.entries.size(); ++i) {
    const uint32_t head = HeadOf(Suffix(node_.entries[i]));
    if (form_ == Form::kHeads2) {
      short_heads[i] = static_cast<uint16_t>(head >> 16);
    } else {
      heads[i] = head;
    }
    set_child(i + 1, node_.entries[i].child);
  }
}

void CachedNode::Builder::FillTexts(CachedNode* cached) const {
  char* const text = const_cast<char*>(cached->Text());
  size_t end = 0;
  const auto append = [&](std::string_view piece) {
    std::memcpy(text + end, piece.data(), piece.size());
    end += piece.size();
  };
  const auto set_start = [&](std::string_view fence, Start* start) {
    std::memcpy(start->bytes, fence.data(), std::min(fence.size(), Start::kBytes));
    if (fence.size() > Start::kBytes) append(fence);
  };
  if (!node_.entries.empty()) {
    set_start(std::string_view(node_.entries.front().key).substr(0, prefix_bytes_),
              &cached->prefix_start_);
  }
  set_start(node_.header.low, &cached->low_start_);
  set_start(node_.header.high, &cached->high_start_);
  if (!HasTexts()) return;
  auto* const ends = const_cast<uint16_t*>(cached->TextEnds());
  for (size_t i = 0; i < node_.entries.size(); ++i) {
    append(Rest(node_.entries[i]));
    ends[i] = static_cast<uint16_t>(end);
  }
}

CachedNode* CachedNode::Create(uint32_t tree_id, const Reference& self, const InternalNode& node) {
  return Builder(node).Build(tree_id, self);
}

void CachedNode::Destroy(void* node) {
  static_cast<CachedNode*>(node)->~CachedNode();
  ::operator delete (node, std::align_val_t{kAlignment});
}

[[gnu::always_inline]] inline bool CachedNode::CutPrefix(const SearchKey& key, uint32_t* head,
                                                         uint32_t* side) const {
  const size_t prefix_bytes = prefix_bytes_, key_bytes = key.text.size();
  if (prefix_bytes + sizeof(*head) > Start::kBytes &&
      std::max(prefix_bytes, key_bytes) > Start::kBytes) {
    return CutLongPrefix(key, head, side);
  }
  if (prefix_bytes > 0) {
    const size_t bits_behind = 8 * (Start::kBytes - prefix_bytes);
    const uint64_t start = prefix_start_.Head(), key_start = key.head >> bits_behind << bits_behind;
    if (key_start != start || key_bytes < prefix_bytes) {  // of a short key, the zeros are the same
      *side = key_start <= start ? 0 : separator_count_;
      return false;
    }
  }
  *head = static_cast<uint32_t>(key.head << 4 * prefix_bytes << 4 * prefix_bytes >> 32);
  return true;
}

bool CachedNode::CutLongPrefix(const SearchKey& key, uint32_t* head, uint32_t* side) const {
  const int order = key.text.substr(0, prefix_bytes_).compare(Prefix());
  if (order != 0) {
    *side = order < 0 ? 0 : separator_count_;
    return false;
  }
  *head = HeadOf(key.text.substr(prefix_bytes_));
  return true;
}

// At most one head is the same as the key's: what ends there is not above what goes on.
template <typename Head>
uint32_t CachedNode::FindAmongHeads(const SearchKey& key, Head head) const {
  const Head* const heads = Heads<Head>();
  const uint32_t index = CountNotAbove(heads, separator_count_, head);
  if (same_bytes_ == 0) [[likely]]
    return index;
  const bool key_ends_before = key.text.size() - prefix_bytes_ < same_bytes_;
  return key_ends_before && index > 0 && heads[index - 1] == head ? index - 1 : index;
}

uint32_t CachedNode::ChildIndex(const SearchKey& key) const {
  if (separator_count_ == 0) return 0;
  uint32_t head = 0, side = 0;
  if (!CutPrefix(key, &head, &side)) return side;
  if (has_short_heads()) return FindAmongHeads(key, static_cast<uint16_t>(head >> 16));
  const uint32_t index = FindAmongHeads(key, head);
  return has_texts() ? SettleTies(key, index) : index;
}

Reference CachedNode::ChildOfRareForm(uint32_t index) const {
  if (place_count_ != 0) return PackedChild(index, LifeBytes()[index]);
  return Reference::Load(WideChildren() + size_t{index} * Reference::kWireBytes);
}

bool CachedNode::IsNotAbove(uint32_t separator, std::string_view suffix) const {
  const std::string_view rest = SeparatorRest(separator);
  if (form_ == Form::kTexts) return rest <= suffix;
  constexpr size_t kHeadBytes = sizeof(uint32_t);
  return rest.empty() || (suffix.size() >= kHeadBytes && rest <= suffix.substr(kHeadBytes));
}

uint32_t CachedNode::SettleTies(const SearchKey& key, uint32_t index) const {
  const std::string_view suffix = key.text.substr(prefix_bytes_);
  const uint32_t head = HeadOf(suffix);
  uint32_t first_tie = index;
  while (first_tie > 0 && Heads<uint32_t>()[first_tie - 1] == head) --first_tie;
  while (index > first_tie) {
    const uint32_t middle = first_tie + (index - first_tie) / 2;
    if (IsNotAbove(middle, suffix)) {
      first_tie = middle + 1;
    } else {
      index = middle;
    }
  }
  return index;
}

std::string CachedNode::SeparatorText(uint32_t i) const {
  std::string text(Prefix());
  const std::string_view rest = has_texts() ? SeparatorRest(i) : std::string_view();
  if (form_ != Form::kTexts) {
    const uint32_t head =
        has_short_heads() ? uint32_t{Heads<uint16_t>()[i]} << 16 : Heads<uint32_t>()[i];
    size_t bytes = same_bytes_;
    if (!rest.empty()) {
      bytes = sizeof(head);
    } else if (bytes == 0) {
      bytes = sizeof(head) - std::min<size_t>(std::countr_zero(head) / 8, sizeof(head));
    }
    for (size_t b = 0; b < bytes; ++b) text.push_back(static_cast<char>(head >> (24 - 8 * b)));
  }
  text.append(rest);
  return text;
}

}  // namespace pando
