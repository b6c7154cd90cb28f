#include "compute/c/call.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/c/handle.h"
#include "pando/version.h"

namespace pando::c {
namespace {

thread_local Inside currently_inside = Inside::kProgram;
thread_local char last_message[1024];

}  // namespace

Inside CurrentlyInside() { return currently_inside; }

CallbackScope::CallbackScope(Inside inside) : before_(currently_inside) {
  currently_inside = inside;
}
CallbackScope::~CallbackScope() { currently_inside = before_; }

pando_code CodeOf(const absl::Status& status) {
  if (IsConditionFailed(status)) return PANDO_CONDITION_FAILED;
  if (IsClosed(status)) return PANDO_CLOSED;
  return static_cast<pando_code>(status.raw_code());
}

pando_code Fail(pando_code code, std::string_view message) noexcept {
  const size_t size = std::min(message.size(), sizeof(last_message) - 1);
  std::memcpy(last_message, message.data(), size);
  last_message[size] = '\0';
  return code;
}

absl::Status CheckBytes(pando_bytes bytes, const char* what) {
  if (AreBytes(bytes)) [[likely]]
    return absl::OkStatus();
  if (bytes.data == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is NULL, and has ", bytes.size, " bytes"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", bytes.size, " bytes, more than ", kBytesMax));
}

absl::Status CheckGiven(const void* pointer, const char* what) {
  if (pointer != nullptr) [[likely]]
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
}

}  // namespace pando::c

extern "C" {

const char* pando_last_message(void) { return pando::c::last_message; }

const char* pando_version(void) { return PANDO_VERSION_STRING; }

uint64_t pando_open_handles(void) { return pando::c::OpenHandles(); }

const char* pando_code_name(pando_code code) {
  switch (code) {
    case PANDO_OK:
      return "OK";
    case PANDO_CANCELLED:
      return "CANCELLED";
    case PANDO_OUTCOME_UNKNOWN:
      return "OUTCOME_UNKNOWN";
    case PANDO_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case PANDO_DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case PANDO_NOT_FOUND:
      return "NOT_FOUND";
    case PANDO_ALREADY_EXISTS:
      return "ALREADY_EXISTS";
    case PANDO_PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    case PANDO_RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case PANDO_FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case PANDO_ABORTED:
      return "ABORTED";
    case PANDO_OUT_OF_RANGE:
      return "OUT_OF_RANGE";
    case PANDO_UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case PANDO_INTERNAL:
      return "INTERNAL";
    case PANDO_UNAVAILABLE:
      return "UNAVAILABLE";
    case PANDO_DATA_LOSS:
      return "DATA_LOSS";
    case PANDO_UNAUTHENTICATED:
      return "UNAUTHENTICATED";
    case PANDO_CONDITION_FAILED:
      return "CONDITION_FAILED";
    case PANDO_CLOSED:
      return "CLOSED";
    default:
      return "?";
  }
}

}  // extern "C"
