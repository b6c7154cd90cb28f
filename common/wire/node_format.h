// Byte offsets of header fields in a node, and of the fields of a slot. Internal to common/wire:
// everybody else goes through node_image.h and leaf.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/wire/line.h"
#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"
#include "common/wire/remote_address.h"

namespace pando::wire {

// Line 0.
inline constexpr uint32_t kMagicOffset = kLinePayloadOffset;
inline constexpr uint32_t kLevelOffset = kMagicOffset + 2;
inline constexpr uint32_t kStateOffset = kLevelOffset + 1;
inline constexpr uint32_t kTreeOffset = kStateOffset + 1;
inline constexpr uint32_t kLifeOffset = kTreeOffset + 4;
inline constexpr uint32_t kRightOffset = kLifeOffset + 4;
inline constexpr uint32_t kPeerOffset = kRightOffset + Reference::kWireBytes;
inline constexpr uint32_t kHighLengthOffset = kPeerOffset + Reference::kWireBytes;
inline constexpr uint32_t kHighOffset = kHighLengthOffset + 1;
static_assert(kHighOffset + kHighInLine0 == kCrcOffset);

// Line 1.
inline constexpr uint32_t kLeftmostOffset = kLineBytes + kLinePayloadOffset;
inline constexpr uint32_t kReserveOffset = kLeftmostOffset + Reference::kWireBytes;
inline constexpr uint32_t kLowLengthOffset = kReserveOffset + NodeHeader::kReserveBytes;
inline constexpr uint32_t kLowOffset = kLowLengthOffset + 1;
static_assert(kLowOffset + kLowInLine1 == kLineBytes + kCrcOffset);

// One of the two fences: a length, a first part in a fixed header line, the rest in lines of its
// own.
struct FenceField {
  uint32_t length_offset, offset, inline_bytes, rest_line, rest_lines;
};
inline FenceField LowField(const NodeLayout& layout) {
  return {kLowLengthOffset, kLowOffset, kLowInLine1, 2, layout.low_lines()};
}
inline FenceField HighField(const NodeLayout& layout) {
  return {kHighLengthOffset, kHighOffset, kHighInLine0, 2 + layout.low_lines(),
          layout.high_lines()};
}
// The length as stored: any byte.
inline uint32_t StoredLength(const std::byte* image, const FenceField& field) {
  return LoadAs<uint8_t>(image + field.length_offset);
}
// The fence; a length over `key_bytes_max` is cut to it. In the image, or in `scratch` where it
// continues.
inline std::string_view ReadFence(const std::byte* image, const NodeLayout& layout,
                                  const FenceField& field, char* scratch) {
  const uint32_t length = std::min(StoredLength(image, field), layout.key_bytes_max());
  const char* start = reinterpret_cast<const char*>(image + field.offset);
  if (length <= field.inline_bytes) return {start, length};
  std::memcpy(scratch, start, field.inline_bytes);
  ReadStream(image, field.rest_line, 0, length - field.inline_bytes, scratch + field.inline_bytes);
  return {scratch, length};
}

// The first eight bytes of a key as a number whose order is the key's; shorter keys are padded with
// zeros.
inline uint64_t KeyPrefix(std::string_view key) {
  const auto* at = reinterpret_cast<const std::byte*>(key.data());
  const size_t size = key.size();
  if (size >= 8) return __builtin_bswap64(LoadAs<uint64_t>(at));
  if (size >= 4) {  // two loads that overlap, instead of a copy of variable length
    const uint64_t tail = LoadAs<uint32_t>(at + size - 4);
    return __builtin_bswap64(LoadAs<uint32_t>(at) | tail << (8 * (size - 4)));
  }
  uint64_t word = 0;
  for (size_t i = 0; i < size; ++i) word |= uint64_t{LoadAs<uint8_t>(at + i)} << (8 * i);
  return __builtin_bswap64(word);
}
// memcmp order. Most keys differ in the first eight bytes.
inline bool KeyLess(std::string_view a, std::string_view b) {
  const uint64_t a_prefix = KeyPrefix(a), b_prefix = KeyPrefix(b);
  return a_prefix != b_prefix ? a_prefix < b_prefix : a < b;
}

}  // namespace pando::wire
