// The functions of Session::Upsert(). They compute a key's new value under its leaf's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pando {

// Each makes the new value from the present value and the operand. kAdd, kMin and kMax take 64-bit
// integers: 8 bytes, little-endian, in two's complement (Int64Value()); sums wrap around. With all
// of them an absent key gets the operand as its value.
enum class UpsertFunction : uint32_t {
  kAdd = 1,
  kMin = 2,
  kMax = 3,
  kAppend = 4,  // the operand after the present value
  // From here on: what programs register (Client::RegisterUpsertFunction()).
  kFirstRegistered = 1024,
};

// A program's own function. Returns the new value of `key`, whose value is `present` (none: the key
// is absent). An error, an exception, or a result longer than the tree's values refuses the
// operation: nothing is changed.
//
// It runs under the lock of the key's leaf, on the thread of any session of this client, on several
// threads at once. It runs again if its result could not be used (a split lacked memory). So it
// must be thread-safe, quick, and a function of its arguments alone. It must not wait, nor call
// Pando. Its stack has 128 KiB, of a coroutine: no deep recursion, no large arrays.
using UpsertCallback = std::function<absl::StatusOr<std::string>(
    std::string_view key, std::optional<std::string_view> present, std::string_view operand)>;

// Converts a number to the bytes that kAdd, kMin and kMax store, and back. Nothing: the value does
// not have 8 bytes.
std::string Int64Value(int64_t number);
std::optional<int64_t> ParseInt64Value(std::string_view value);

}  // namespace pando
