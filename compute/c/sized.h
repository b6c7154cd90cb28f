// Structs that begin with their size, as the program's headers have them: it may have been built
// with older or newer ones than this library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando::c {

// The largest that any version may have.
inline constexpr size_t kSizedMax = 4096;

// The size that the struct at `given` says, which no fields of T have to follow.
template <typename T>
absl::StatusOr<size_t> SizeOf(const T* given, const char* what) {
  static_assert(std::is_trivially_copyable_v<T> && offsetof(T, size) == 0);
  static_assert(sizeof(T) % 8 == 0 && sizeof(T) <= kSizedMax);
  size_t size;
  std::memcpy(&size, given, sizeof(size));
  if (size >= sizeof(size) && size <= kSizedMax && size % 8 == 0) [[likely]]
    return size;
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": its size says ", size,
                   ", which no version has; set it to sizeof, as its PANDO_..._INIT does"));
}

// The options at `given`: what it has of them, over the defaults. NULL: these. InvalidArgument: a
// size that cannot be, or an option that this library does not know.
template <typename T>
absl::StatusOr<T> ReadSized(const T* given, const T& defaults, const char* what) {
  T options = defaults;
  if (given == nullptr) return options;
  PANDO_ASSIGN_OR_RETURN(const size_t size, SizeOf(given, what));
  std::memcpy(&options, given, std::min(size, sizeof(T)));
  options.size = sizeof(T);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": sets an option at byte ", i,
                     " that this library, which is older than the program, does not know"));
  }
  return options;
}

// Writes what the struct at `to`, whose size its owner has set, has room for: 0 to fields of a
// newer one.
template <typename T>
absl::Status WriteSized(const T& values, T* to, const char* what) {
  if (to == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
  PANDO_ASSIGN_OR_RETURN(const size_t size, SizeOf(to, what));
  const size_t end = std::min(size, sizeof(T));
  std::memcpy(reinterpret_cast<char*>(to) + sizeof(size),
              reinterpret_cast<const char*>(&values) + sizeof(size), end - sizeof(size));
  std::memset(reinterpret_cast<char*>(to) + end, 0, size - end);
  return absl::OkStatus();
}
// Before anything is done whose result has no place.
template <typename T>
absl::Status CheckSized(const T* to, const char* what) {
  if (to == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
  return SizeOf(to, what).status();
}

// As an int of the C++ interface, or InvalidArgument.
template <typename To, typename From>
absl::Status Narrow(From value, const char* what, To* to) {
  if (!std::in_range<To>(value)) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", value, ", which cannot be"));
  }
  *to = static_cast<To>(value);
  return absl::OkStatus();
}

inline absl::Status ReadFlag(int64_t value, const char* what, bool* to) {
  if (value != 0 && value != 1) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", value, ", and a flag: 0 or 1"));
  }
  *to = value == 1;
  return absl::OkStatus();
}

}  // namespace pando::c
