// The functions of Session::Upsert(): what becomes of a key's value, decided under its leaf's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pando {

// What is made of the present value and the operand. kAdd, kMin and kMax take 64-bit integers: 8
// bytes, little-endian, in two's complement (Int64Value()); sums wrap around. An absent key gets
// the operand as its value, from all of them.
enum class UpsertFunction : uint32_t {
  kAdd = 1,
  kMin = 2,
  kMax = 3,
  kAppend = 4,  // the operand behind the present value
  // From here on: what programs register (Client::RegisterUpsertFunction()).
  kFirstRegistered = 1024,
};

// A program's own function: the new value of `key`, whose value is `present` (none: the key is
// absent). An error refuses the operation: nothing is changed. So does an exception, and a result
// longer than the tree's values.
//
// It runs under the lock of the key's leaf, on the thread of any session of this client, of several
// at once, and again where its result could not be used (a split lacked memory). So it must be
// thread-safe, quick, and a function of its arguments alone, and neither wait nor call anything of
// Pando.
using UpsertCallback = std::function<absl::StatusOr<std::string>(
    std::string_view key, std::optional<std::string_view> present, std::string_view operand)>;

// A number as kAdd, kMin and kMax store it, and back; nothing: not of 8 bytes.
std::string Int64Value(int64_t number);
std::optional<int64_t> ParseInt64Value(std::string_view value);

}  // namespace pando
