#include "common/wire/internal_node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/wire/line.h"
#include "common/wire/node_format.h"

namespace pando {
namespace {

constexpr uint32_t kCountBytes = 2;

// Reads the entries' byte stream and never past its end.
class EntryReader {
 public:
  EntryReader(const std::byte* image, const NodeLayout& layout) : image_(image), layout_(layout) {}

  bool Read(uint32_t bytes, void* to) {
    if (bytes > layout_.internal_payload_bytes() - position_) return false;
    wire::ReadStream(image_, layout_.header_lines(), position_, bytes, to);
    position_ += bytes;
    return true;
  }
  bool ReadSeparator(Separator* separator) {
    uint8_t key_bytes = 0;
    char reference[Reference::kWireBytes];
    if (!Read(1, &key_bytes) || key_bytes == 0 || key_bytes > layout_.key_bytes_max()) return false;
    separator->key.resize(key_bytes);
    if (!Read(key_bytes, separator->key.data()) || !Read(sizeof(reference), reference))
      return false;
    separator->child = Reference::Load(reference);
    return !separator->child.is_null();
  }

 private:
  const std::byte* const image_;
  const NodeLayout& layout_;
  uint32_t position_ = 0;
};

absl::Status Malformed(const NodeHeader& header, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("internal node of tree ", header.tree_id, ", level ",
                                          header.level, ", life ", header.life, ": ", what));
}

bool KeyBefore(const Separator& separator, std::string_view key) {
  return wire::KeyLess(separator.key, key);
}

}  // namespace

size_t InternalNode::StreamBytes() const {
  size_t bytes = kCountBytes;
  for (const Separator& entry : entries) bytes += EntryBytes(entry.key);
  return bytes;
}

const Reference& InternalNode::ChildFor(std::string_view key) const {
  const auto after = std::upper_bound(
      entries.begin(), entries.end(), key,
      [](std::string_view k, const Separator& entry) { return wire::KeyLess(k, entry.key); });
  return after == entries.begin() ? header.leftmost : std::prev(after)->child;
}

int InternalNode::FindSeparator(std::string_view key) const {
  const auto at = std::lower_bound(entries.begin(), entries.end(), key, KeyBefore);
  return at != entries.end() && at->key == key ? static_cast<int>(at - entries.begin()) : -1;
}

void InternalNode::Insert(std::string_view key, const Reference& child) {
  const auto at = std::lower_bound(entries.begin(), entries.end(), key, KeyBefore);
  PANDO_CHECK(at == entries.end() || at->key != key) << "separator is already there";
  entries.insert(at, {std::string(key), child});
}

absl::Status DecodeInternal(const std::byte* image, const NodeLayout& layout, InternalNode* node) {
  node->header = ReadHeader(image, layout);
  const NodeHeader& header = node->header;
  if (header.level == 0) return Malformed(header, "is a leaf");
  if (header.leftmost.is_null()) return Malformed(header, "no leftmost child");
  EntryReader reader(image, layout);
  uint16_t count = 0;
  reader.Read(kCountBytes, &count);
  if (kCountBytes + count * InternalNode::EntryBytes("k") > layout.internal_payload_bytes()) {
    return Malformed(header, absl::StrCat(count, " separators do not fit"));
  }
  node->entries.resize(count);
  std::string_view previous = header.low;
  for (Separator& entry : node->entries) {
    if (!reader.ReadSeparator(&entry)) return Malformed(header, "a separator's lengths or child");
    const bool ascending = wire::KeyLess(previous, entry.key) &&
                           (header.high.empty() || wire::KeyLess(entry.key, header.high));
    if (!ascending) return Malformed(header, "separators out of order or out of fence");
    previous = entry.key;
  }
  return absl::OkStatus();
}

void EncodeInternal(const InternalNode& node, const NodeLayout& layout, const std::byte* old_image,
                    bool crc, std::byte* image) {
  PANDO_CHECK(node.Fits(layout)) << node.entries.size() << " separators do not fit the node";
  WriteHeader(image, layout, node.header);
  uint32_t position = 0;
  const auto append = [&](const void* from, uint32_t bytes) {
    wire::WriteStream(image, layout.header_lines(), position, bytes, from);
    position += bytes;
  };
  const auto count = static_cast<uint16_t>(node.entries.size());
  append(&count, kCountBytes);
  for (const Separator& entry : node.entries) {
    PANDO_CHECK(!entry.key.empty() && entry.key.size() <= layout.key_bytes_max());
    const auto key_bytes = static_cast<uint8_t>(entry.key.size());
    char reference[Reference::kWireBytes];
    entry.child.Store(reference);
    append(&key_bytes, 1);
    append(entry.key.data(), key_bytes);
    append(reference, sizeof(reference));
  }
  wire::ZeroStream(image, layout.header_lines(), position,
                   layout.internal_payload_bytes() - position);
  SealNodeLevel(image, old_image, layout, crc);
}

}  // namespace pando
