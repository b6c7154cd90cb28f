// HMAC-SHA256 of libcrypto, over parts that cannot be shifted into each other. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace pando {

inline constexpr size_t kMacBytes = 32;
using Mac = std::array<uint8_t, kMacBytes>;

// Over the parts, each behind its length: no two lists of parts give the same bytes.
Mac HmacSha256(std::string_view key, std::initializer_list<std::string_view> parts);

// Takes the same time for any bytes.
bool MacsEqual(const Mac& a, const Mac& b);

}  // namespace pando
