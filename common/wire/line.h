// One line of a node or record (rule F1), and byte streams that run across the payloads of adjacent
// lines. Internal to common/wire. Everything is read and written through memcpy: images may have
// any alignment.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/base/rule.h"
#include "common/wire/crc32c.h"
#include "common/wire/node_layout.h"

namespace pando::wire {

static_assert(std::endian::native == std::endian::little,
              "formats are little-endian, copied as is");

inline constexpr uint32_t kFrontEvOffset = 0;
inline constexpr uint32_t kCrcOffset = kLinePayloadOffset + kLinePayloadBytes;
inline constexpr uint32_t kNvOffset = kCrcOffset + 4;
inline constexpr uint32_t kRearEvOffset = kNvOffset + 2;
static_assert(kCrcOffset == 57 && kNvOffset == 61 && kRearEvOffset == kLineBytes - 1);

template <typename T>
T LoadAs(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
void StoreAs(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

inline uint8_t FrontEv(const std::byte* line) { return LoadAs<uint8_t>(line + kFrontEvOffset); }
inline uint8_t RearEv(const std::byte* line) { return LoadAs<uint8_t>(line + kRearEvOffset); }
inline uint16_t Nv(const std::byte* line) { return LoadAs<uint16_t>(line + kNvOffset); }

// What the checksum field of `line` has to hold: its own four bytes count as zero. `before`: what
// the checksum goes on from (CrcBefore()).
inline uint32_t LineCrc(const std::byte* line, uint32_t before = 0) {
  std::byte copy[kLineBytes];
  std::memcpy(copy, line, kLineBytes);
  StoreAs<uint32_t>(copy + kCrcOffset, 0);
  return Crc32cRaw(copy, kLineBytes, before);
}
// Rule F2: the checksum of a slot's second line goes on from its first line's, and so forth, so
// that lines of two writes of a slot do not go together even where their EV came around. `index`:
// the line's place among those of its slot that begin at `lines`.
inline uint32_t CrcBefore(const std::byte* lines, uint32_t index) {
  if (index == 0 || !RuleHolds(Rule::kF2Slow)) return 0;
  return LoadAs<uint32_t>(lines + (index - 1) * kLineBytes + kCrcOffset);
}
inline bool LineCrcHolds(const std::byte* line, uint32_t before = 0) {
  return LoadAs<uint32_t>(line + kCrcOffset) == LineCrc(line, before);
}
inline void SealLine(std::byte* line, uint8_t ev, uint16_t nv, bool crc, uint32_t before = 0) {
  StoreAs(line + kFrontEvOffset, ev);
  StoreAs(line + kNvOffset, nv);
  StoreAs(line + kRearEvOffset, ev);
  StoreAs<uint32_t>(line + kCrcOffset, crc ? LineCrc(line, before) : 0);
}

// Serial arithmetic: 0 is newer than 65535.
constexpr bool SeriallyNewer(uint16_t a, uint16_t b) {
  return static_cast<int16_t>(static_cast<uint16_t>(a - b)) > 0;
}
static_assert(SeriallyNewer(0, 65535) && SeriallyNewer(1, 0) && !SeriallyNewer(0, 1));

// Rule F2: an EV that differs from the front and rear EV of every one of these lines.
uint8_t NextEv(const std::byte* lines, uint32_t line_count);
// Rule F2: an NV serially newer than that of every one of these lines (where they, being arbitrary
// bytes, allow no such value: one that differs from all).
uint16_t NextNv(const std::byte* lines, uint32_t line_count);

// Calls piece(position in node, position in the run of bytes, length) for each contiguous piece of
// the `bytes` payload bytes that start `offset` payload bytes behind the start of `first_line`.
template <typename Piece>
void ForEachPiece(uint32_t first_line, uint32_t offset, uint32_t bytes, Piece piece) {
  uint32_t done = 0;
  while (done < bytes) {
    const uint32_t at = offset + done;
    const uint32_t in_line = at % kLinePayloadBytes;
    const uint32_t length = std::min(kLinePayloadBytes - in_line, bytes - done);
    piece((first_line + at / kLinePayloadBytes) * kLineBytes + kLinePayloadOffset + in_line, done,
          length);
    done += length;
  }
}
inline void ReadStream(const std::byte* image, uint32_t first_line, uint32_t offset, uint32_t bytes,
                       void* to) {
  ForEachPiece(first_line, offset, bytes, [&](uint32_t at, uint32_t done, uint32_t length) {
    std::memcpy(static_cast<char*>(to) + done, image + at, length);
  });
}
inline void WriteStream(std::byte* image, uint32_t first_line, uint32_t offset, uint32_t bytes,
                        const void* from) {
  ForEachPiece(first_line, offset, bytes, [&](uint32_t at, uint32_t done, uint32_t length) {
    std::memcpy(image + at, static_cast<const char*>(from) + done, length);
  });
}
inline void ZeroStream(std::byte* image, uint32_t first_line, uint32_t offset, uint32_t bytes) {
  ForEachPiece(first_line, offset, bytes,
               [&](uint32_t at, uint32_t, uint32_t length) { std::memset(image + at, 0, length); });
}

}  // namespace pando::wire
