#include "common/wire/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace pando {

uint32_t Crc32cRaw(const void* bytes, size_t size, uint32_t previous) {
  // ISA-L takes an int length and a non-const pointer that it only reads.
  constexpr size_t kStepBytes = size_t{1} << 30;
  auto* at = static_cast<unsigned char*>(const_cast<void*>(bytes));
  uint32_t crc = previous;
  while (size > 0) {
    const size_t step = std::min(size, kStepBytes);
    crc = crc32_iscsi(at, static_cast<int>(step), crc);
    at += step;
    size -= step;
  }
  return crc;
}

uint32_t Crc32c(const void* bytes, size_t size, uint32_t previous) {
  return ~Crc32cRaw(bytes, size, ~previous);
}

}  // namespace pando
