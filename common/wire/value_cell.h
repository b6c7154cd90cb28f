// Values that are too long for a slot (rules K1, K3): the cell in memory of its own that holds one,
// and what stands for it in its slot.
//
//   cell      line 0 (node_layout.h): magic 2, level 1 (kCellLevel), state 1 (live), tree id 4,
//             life 4, 24 zero, key length 1, value length 4, checksum 4, zero
//             from byte 64 on: the key, the value
//   slot      0, the value: up to the tree's inline limit
//             1, address 8, life 4, value length 4, checksum 4: a value in a cell
//
// The checksum is CRC32C of tree id, life, key length, value length, key and value. A cell is
// written once in a life, before anything refers to it.
//
// Pure functions, of any bytes (fuzzed: cell_fuzz). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/wire/node_layout.h"
#include "common/wire/remote_address.h"

namespace pando {

inline constexpr uint32_t kLargeValueBytesMax = 64 * 1024;
inline constexpr uint8_t kCellLevel = 0xfe;  // of no node
inline constexpr uint32_t kCellHeaderBytes = kLineBytes;
inline constexpr uint32_t kStoredReferenceBytes = 21;
// The most lines that a cell has.
inline constexpr uint32_t kCellLinesMax =
    (kCellHeaderBytes + kKeyBytesLimit + kLargeValueBytesMax) / kLineBytes * 9 / 8;

// Lines of the cell for so long a key and value: up to 32 lines any number, above that eight sizes
// a doubling, so that at most a ninth is lost and all sizes together are few.
uint32_t CellLines(size_t key_bytes, size_t value_bytes);
// Whether CellLines() ever gives it.
bool IsCellSize(uint32_t lines);

// What a slot has of a value that lies in a cell.
struct CellReference {
  Reference cell;
  uint32_t value_bytes = 0;
  uint32_t checksum = 0;
  friend bool operator==(const CellReference&, const CellReference&) = default;
};

// The first CellLines() lines of `image`; bytes behind the value are zero. `crc`: of line 0, as the
// server's lines have it.
void WriteCell(std::byte* image, uint32_t tree_id, uint32_t life, std::string_view key,
               std::string_view value, bool crc, CellReference* reference);
// Bytes from the cell's start on that a reader of the value needs.
inline uint32_t CellReadBytes(size_t key_bytes, const CellReference& reference) {
  const auto bytes = static_cast<uint32_t>(kCellHeaderBytes + key_bytes + reference.value_bytes);
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}
// The value, a view of `image`, if that is the cell that the reference means (rule K3). `image` has
// CellReadBytes() bytes.
std::optional<std::string_view> ValueInCell(const std::byte* image, uint32_t tree_id,
                                            std::string_view key, const CellReference& reference);
// Whose value a cell was written for, for sweeps (rule K4): of its first bytes, kCellGlanceBytes
// where it has as many. A key that is not all there yet is any bytes.
inline constexpr uint32_t kCellGlanceBytes = kCellHeaderBytes + 256;
std::optional<std::string_view> KeyOfCell(const std::byte* image, uint32_t bytes, uint32_t tree_id,
                                          uint32_t life);

// --- What a slot holds.
struct StoredValue {
  std::string_view inlined;  // a view of what was parsed
  std::optional<CellReference> reference;
};
void StoreInline(std::string_view value, std::string* stored);
void StoreReference(const CellReference& reference, std::string* stored);
// Nothing: it is neither.
std::optional<StoredValue> ParseStored(std::string_view stored);
// Of a reference its cell; nothing of anything else.
inline std::optional<CellReference> CellOfStored(std::string_view stored) {
  const std::optional<StoredValue> parsed = ParseStored(stored);
  return parsed.has_value() ? parsed->reference : std::nullopt;
}

}  // namespace pando
