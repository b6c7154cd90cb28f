// What every function of the C interface is wrapped in: a code and a message come out, and nothing
// else.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <string_view>

#include "absl/status/status.h"
#include "pando.h"

namespace pando::c {

// Whose call this thread is in the middle of.
enum class Inside : uint8_t { kProgram, kExecutorCallback, kCallback };
Inside CurrentlyInside();

// While a callback of the program runs on this thread.
class CallbackScope {
 public:
  explicit CallbackScope(Inside inside);
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

 private:
  const Inside before_;
};

pando_code CodeOf(const absl::Status& status);
// absl has a string_view of its own on some machines.
inline std::string_view MessageOf(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}
// Keeps the message for pando_last_message(). Allocates nothing.
pando_code Fail(pando_code code, std::string_view message) noexcept;

// From where a function may be called.
enum class From : uint8_t { kProgram, kProgramOrExecutor, kAnywhere };
inline bool IsAllowed(From from) {
  const Inside inside = CurrentlyInside();
  return inside == Inside::kProgram || from == From::kAnywhere ||
         (inside == Inside::kExecutorCallback && from == From::kProgramOrExecutor);
}

// `job` returns an absl::Status.
template <From from = From::kProgram, typename Job>
pando_code Call(const Job& job) noexcept {
  try {
    if (!IsAllowed(from)) [[unlikely]] {
      return Fail(PANDO_FAILED_PRECONDITION, "this may not be called inside a callback");
    }
    const absl::Status status = job();
    if (status.ok()) [[likely]]
      return PANDO_OK;
    return Fail(CodeOf(status), MessageOf(status));
  } catch (const std::bad_alloc&) {
    return Fail(PANDO_RESOURCE_EXHAUSTED, "this process has no more memory");
  } catch (const std::exception& error) {
    return Fail(PANDO_INTERNAL, error.what());
  } catch (...) {
    return Fail(PANDO_INTERNAL, "an exception that is not a std::exception");
  }
}

inline pando_bytes BytesOf(std::string_view bytes) { return {bytes.data(), bytes.size()}; }
inline std::string_view ViewOf(pando_bytes bytes) {
  return {static_cast<const char*>(bytes.data), bytes.size};
}

// InvalidArgument: no bytes that can be.
inline constexpr size_t kBytesMax = 1 << 20;
inline bool AreBytes(pando_bytes bytes) {
  return bytes.size <= kBytesMax && (bytes.data != nullptr || bytes.size == 0);
}
absl::Status CheckBytes(pando_bytes bytes, const char* what);

// InvalidArgument: NULL.
absl::Status CheckGiven(const void* pointer, const char* what);

}  // namespace pando::c
