// Bodies of the control messages that a backend exchanges for itself: values of a fixed layout, as
// they lie in memory, and statuses.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace pando {

static_assert(std::endian::native == std::endian::little, "bodies are sent as they lie in memory");

template <typename T>
std::string EncodeBody(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

// DataLoss if the size is not T's. `what` it should be, for the message.
template <typename T>
absl::StatusOr<T> ParseBody(std::string_view body, const char* what) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (body.size() != sizeof(T)) {
    return absl::DataLossError(
        absl::StrCat(what, " has ", body.size(), " bytes instead of ", sizeof(T)));
  }
  T value;
  std::memcpy(&value, body.data(), sizeof(T));
  return value;
}

// A status that is not OK: its code in 4 bytes and its message, of which 1,024 bytes are kept.
std::string EncodeStatus(const absl::Status& status);
// Never OK: DataLoss for what is no such body.
absl::Status ParseStatus(std::string_view body);

}  // namespace pando
