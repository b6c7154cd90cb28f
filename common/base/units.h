// Byte sizes as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pando {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// "4096", "64K", "1.5GiB", "2 MB" (K, M, G, T are powers of 1024 with or without "iB" or "B", any
// case). InvalidArgument for anything else, negative or over 2^63.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);

// "512 B", "64.0 KiB", "1.5 GiB".
std::string FormatBytes(uint64_t bytes);
// "950", "12.3 k", "4.56 M": counts and rates, three digits.
std::string FormatCount(double count);

}  // namespace pando
