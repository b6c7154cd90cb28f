#include "common/wire/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "common/wire/line.h"

namespace pando {
namespace {

TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c("", 0), 0u);
  const std::string zeros(32, '\0'), ones(32, '\xff');  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(zeros.data(), zeros.size()), 0x8a9136aau);
  EXPECT_EQ(Crc32c(ones.data(), ones.size()), 0x62a8ab43u);
}

TEST(Crc32cTest, Continues) {
  const std::string text = "a node is whole 64-byte lines";
  for (size_t i = 0; i <= text.size(); ++i) {
    const uint32_t first = Crc32c(text.data(), i);
    EXPECT_EQ(Crc32c(text.data() + i, text.size() - i, first), Crc32c(text.data(), text.size()));
  }
}

TEST(Crc32cTest, OfALineAsOfItsHalves) {
  std::string line(64, '\0');
  for (size_t i = 0; i < line.size(); ++i) line[i] = static_cast<char>(i * 37 + 11);
  for (const uint32_t previous : {0u, 0x12345678u}) {
    const uint32_t half = Crc32cRaw(line.data(), 32, previous);
    EXPECT_EQ(Crc32cRaw(line.data(), 64, previous), Crc32cRaw(line.data() + 32, 32, half));
  }
}

TEST(Crc32cTest, RawOfZerosIsZero) {
  const std::string zeros(64, '\0');
  EXPECT_EQ(Crc32cRaw(zeros.data(), zeros.size()), 0u);
}

#if defined(__x86_64__)
// Whether upper halves of vector registers are in use (XGETBV of 1: state components 2 and 6);
// nullopt: this machine does not say.
__attribute__((target("avx,xsave"))) std::optional<bool> UpperHalvesInUse() {
  uint32_t a, b, c, d;
  if (!__builtin_cpu_supports("avx") || __get_cpuid_count(13, 1, &a, &b, &c, &d) == 0) {
    return std::nullopt;
  }
  constexpr uint32_t kCanTell = 1 << 2;
  if ((a & kCanTell) == 0) return std::nullopt;
  return (_xgetbv(1) & (1 << 2 | 1 << 6)) != 0;
}
__attribute__((target("avx"))) void UseUpperHalves() {
  asm volatile("vpcmpeqd %%xmm7, %%xmm7, %%xmm7; vinsertf128 $1, %%xmm7, %%ymm7, %%ymm7" ::
                   : "xmm7");
}
__attribute__((target("avx"))) void ClearUpperHalves() { asm volatile("vzeroupper"); }

TEST(Crc32cTest, LeavesNoUpperHalvesInUse) {
  if (!UpperHalvesInUse().has_value()) GTEST_SKIP() << "this processor does not tell";
  UseUpperHalves();
  const bool sees_them = *UpperHalvesInUse();
  ClearUpperHalves();
  if (!sees_them || *UpperHalvesInUse()) GTEST_SKIP() << "this processor tells something else";
  const std::string bytes(4096, 'x');
  for (const size_t size : {64u, 100u, 255u, 256u, 1000u, 4096u}) {
    (void)Crc32c(bytes.data(), size);
    EXPECT_FALSE(*UpperHalvesInUse()) << "after " << size << " bytes";
  }
}
#endif

TEST(Crc32cTest, LineChecksumSeesEveryBit) {
  std::byte line[kLineBytes];
  for (uint32_t i = 0; i < kLineBytes; ++i) line[i] = static_cast<std::byte>(i * 7);
  wire::SealLine(line, 9, 1000, true);
  ASSERT_TRUE(wire::LineCrcHolds(line));
  for (uint32_t bit = 0; bit < kLineBytes * 8; ++bit) {
    line[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(wire::LineCrcHolds(line)) << "bit " << bit;
    line[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
}

}  // namespace
}  // namespace pando
