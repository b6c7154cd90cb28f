// Internal nodes: sorted separators, always written at node level (rule F4).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"

namespace pando {

struct Separator {
  std::string key;
  Reference child;  // covers [key, next separator)
};

// A decoded internal node. Not thread-safe; plain data.
struct InternalNode {
  NodeHeader header;
  // Strictly ascending, all > header.low and (high empty or < high).
  std::vector<Separator> entries;

  // Bytes that the entries take in the stream (count included).
  static size_t EntryBytes(std::string_view key) { return 1 + key.size() + Reference::kWireBytes; }
  size_t StreamBytes() const;
  bool Fits(const NodeLayout& layout) const {
    return StreamBytes() <= layout.internal_payload_bytes();
  }
  // The child covering `key`.
  const Reference& ChildFor(std::string_view key) const;
  // Position of the separator equal to `key`, or -1.
  int FindSeparator(std::string_view key) const;
  // Inserts in order. CHECK-fails if it is already there.
  void Insert(std::string_view key, const Reference& child);
};

// Decodes an image that Classify() accepted. DataLoss if the stream is malformed (counts, lengths,
// order, fences).
absl::Status DecodeInternal(const std::byte* image, const NodeLayout& layout, InternalNode* node);

// Writes header and entries and seals at node level over `old_image` (which may equal `image`).
void EncodeInternal(const InternalNode& node, const NodeLayout& layout, const std::byte* old_image,
                    bool crc, std::byte* image);

}  // namespace pando
