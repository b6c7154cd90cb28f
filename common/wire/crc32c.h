// CRC32C (Castagnoli) from ISA-L, in the two forms the formats use.
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pando {

// The standard checksum ("123456789" -> 0xe3069283). `previous`: checksum of the bytes before
// these.
uint32_t Crc32c(const void* bytes, size_t size, uint32_t previous = 0);

// The bare polynomial remainder, without the standard's inversions: zero bytes give 0, so that a
// line of fresh memory is consistent (rule F2). For fields of fixed size it detects what the
// standard form detects.
uint32_t Crc32cRaw(const void* bytes, size_t size, uint32_t previous = 0);

}  // namespace pando
