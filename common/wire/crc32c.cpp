#include "common/wire/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pando {
namespace {

// A line with the CPU's own instruction takes 13 ns; with ISA-L's wide folding, which is for long
// buffers, 28 ns.
constexpr size_t kShortBytes = 64;

#if defined(__x86_64__)
const bool kHasInstruction = __builtin_cpu_supports("sse4.2");

__attribute__((target("sse4.2"))) uint32_t CrcOfShort(const void* bytes, uint32_t previous) {
  uint64_t crc = previous;
  for (size_t at = 0; at < kShortBytes; at += 8) {
    uint64_t word;
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + at, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  return static_cast<uint32_t>(crc);
}

const bool kHasAvx = __builtin_cpu_supports("avx");

// With AVX-512 and 256 bytes or more, ISA-L returns with the upper halves of vector registers in
// use. Until somebody clears them, each SSE instruction of the thread, wherever it is, has to keep
// them: a call of pow() was seen to take seven times as long.
__attribute__((target("avx"))) void ClearUpperHalves() { _mm256_zeroupper(); }
#else
constexpr bool kHasInstruction = false;
constexpr bool kHasAvx = false;
uint32_t CrcOfShort(const void*, uint32_t) { return 0; }
void ClearUpperHalves() {}
#endif

}  // namespace

uint32_t Crc32cRaw(const void* bytes, size_t size, uint32_t previous) {
  if (size == kShortBytes && kHasInstruction) return CrcOfShort(bytes, previous);
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
  if (kHasAvx) ClearUpperHalves();
  return crc;
}

uint32_t Crc32c(const void* bytes, size_t size, uint32_t previous) {
  return ~Crc32cRaw(bytes, size, ~previous);
}

}  // namespace pando
