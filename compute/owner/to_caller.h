// What callers of the library are told where something was in the way for now. Inside that is
// Aborted, and is tried again; where a call ends nobody tries any more, as its time is over.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pando {

// `next`: what the caller may do.
inline absl::Status ToCaller(const absl::Status& status, absl::string_view next) {
  if (!absl::IsAborted(status)) return status;
  return absl::DeadlineExceededError(absl::StrCat(status.message(), "; ", next));
}

}  // namespace pando
