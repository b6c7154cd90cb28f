// How the parsers of control messages' bodies end. Internal to common/wire.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/wire/byte_codec.h"

namespace pando::wire {

inline absl::Status Malformed(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("control message: malformed ", what));
}

// `value` if the whole body was taken, and nothing was missing.
template <typename T>
absl::StatusOr<T> DoneOr(const ByteReader& reader, T value, absl::string_view what) {
  if (!reader.Done()) return Malformed(what);
  return value;
}

}  // namespace pando::wire
