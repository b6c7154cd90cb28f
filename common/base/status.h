// Status helpers shared by every room. Errors that can happen in operation are absl::Status; our
// own bugs are CHECKs. No exception crosses a public interface.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando {

// An operation whose effect may or may not have happened (its chain failed or its deadline passed
// after the write-back was posted). absl has no code for this; kUnknown is used for nothing else in
// Pando.
absl::Status OutcomeUnknownError(std::string_view message);
bool IsOutcomeUnknown(const absl::Status& status);

// A conditional write that was refused because of what the key's value is: it changed nothing.
// FailedPrecondition, marked, as others end in that, too.
absl::Status ConditionFailedError(std::string_view message);
bool IsConditionFailed(const absl::Status& status);

// The same code with `context` put before the message: "open tree 'words': server 2: ...".
absl::Status Annotate(const absl::Status& status, std::string_view context);

}  // namespace pando

#define PANDO_STATUS_CONCAT_INNER(a, b) a##b
#define PANDO_STATUS_CONCAT(a, b) PANDO_STATUS_CONCAT_INNER(a, b)

#define PANDO_RETURN_IF_ERROR(expression)      \
  do {                                         \
    absl::Status pando_status_ = (expression); \
    if (!pando_status_.ok()) [[unlikely]]      \
      return pando_status_;                    \
  } while (false)

#define PANDO_ASSIGN_OR_RETURN(declaration, expression) \
  PANDO_ASSIGN_OR_RETURN_IMPL(PANDO_STATUS_CONCAT(pando_or_, __LINE__), declaration, expression)
#define PANDO_ASSIGN_OR_RETURN_IMPL(temporary, declaration, expression) \
  auto temporary = (expression);                                        \
  if (!temporary.ok()) [[unlikely]]                                     \
    return temporary.status();                                          \
  declaration = std::move(temporary).value()
